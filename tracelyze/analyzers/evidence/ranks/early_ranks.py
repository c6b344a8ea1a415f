"""A sampler or data set of the script's own that asked for its rank before there was a process group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.evidence import script_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

FIX: Final = "Make the process group first{line}, and {what} after it: then {kind} gets the rank that it asks for."
CODE: Final = "torch.distributed.init_process_group()  # once, above the line that makes the loader"


class Undivided(NamedTuple):
    """The line because of which ranks share their data, what to change and an example."""

    line: Location | None
    fix: str
    code: str


def of(process: Process, loader: Mapping[str, Any]) -> Undivided | None:
    """The line that makes the loader; of a function that is called where the loop stands, the line that calls it."""
    kind = str(loader.get("early_rank") or "")
    if not kind:
        return None
    made, read = process.site(loader.get("made_at")), process.site(loader.get("site"))
    called, group = process.site(loader.get("called_at")), script_lines.only(process, "group-text")
    beside = [one for one in (read, group) if one is not None]
    apart = called is not None and not any(one.file_function == made.file_function for one in beside if made)
    place = called if apart and any(one.file_function == called.file_function for one in beside if called) else made
    line = f" (line {group.line} does)" if group is not None else ""
    what = f"run line {place.line}" if place is not None else "make the loader"
    code = f"{CODE}\n{place.source.strip()}" if place is not None and place.source.strip().endswith(")") else CODE
    return Undivided(place, FIX.format(line=line, what=what, kind=kind), code)
