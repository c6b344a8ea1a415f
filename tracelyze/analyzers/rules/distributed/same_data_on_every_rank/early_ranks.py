"""A sampler or data set of the script's own that asked for its rank before there was a process group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.script import script_lines

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
    return Undivided(place, FIX.format(line=line, what=what, kind=kind), _example(group, place))


def _example(group: Location | None, place: Location | None) -> str:
    """The line that makes the loader below the one that makes the group: a second group raises, so that the script's
    own line is moved, or what calls it."""
    moved = place.source.strip() if place is not None and place.source.strip().endswith(")") else ""
    if group is None:
        return f"{CODE}\n{moved}".strip()
    if place is None or not moved:
        return f"# line {group.line} runs first, and once; below it make the loader"
    own = group.source.strip()
    if group.file_function == place.file_function and own.endswith(")"):
        return f"{own}  # line {group.line}, from where it stands today\n{moved}"
    maker = group.function.rpartition(".")[2]
    below = f"line {group.line}" if maker.startswith("<") else f"what calls {maker}(), where line {group.line} is"
    return f"# line {place.line}, below {below}:\n{moved}"
