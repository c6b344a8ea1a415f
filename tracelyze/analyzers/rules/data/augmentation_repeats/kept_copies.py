"""Copies of a dataset in workers that stay from epoch to epoch, and so never hear of another epoch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import loader_arguments, own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process

_OF_EPOCH: Final = re.compile(r"epoch", re.IGNORECASE)
_SAMPLER: Final = re.compile(r"sampler\.set_epoch")  # the loader asks it in the program: no worker has a copy
ARGUMENT: Final = "persistent_workers"
FIX: Final = (
    "Start the workers anew for each epoch, with persistent_workers=False. Or keep the epoch where workers that stay "
    "can see it: in shared memory, as a tensor after share_memory_()."
)


class Kept(NamedTuple):
    """Why the seed stays the same, the line that keeps the workers, and that line with workers that start anew."""

    said: str
    place: Location | None
    code: str


def of(process: Process, loader: Mapping[str, Any], seeds: Location | None) -> Kept | None:
    """Where a line seeds by the epoch, in workers that stay."""
    if not loader["num_workers"] or not loader[ARGUMENT] or seeds is None:
        return None
    if not _OF_EPOCH.search(code_of(seeds.source)):
        return None
    tells = script_lines.only(process, "set-epoch", rf"^(?!.*{_SAMPLER.pattern})")
    told = f", and line {tells.line} tells the copy of the training process alone" if tells is not None else ""
    said = (
        "by the epoch that the dataset holds. But with persistent_workers=True each worker keeps the copy that it was "
        f"started with{told}."
    )
    made = process.site(loader.get("made_at"))
    own = own_statement.at(process, made)
    text = own.with_argument(("DataLoader",), ARGUMENT, "False") if own is not None else ""
    lines = own.text.split("\n") if own is not None else []
    at = next((at for at, line in enumerate(lines) if ARGUMENT in code_of(line)), None)
    place = Location(own.file, own.line + at, made.function, lines[at].strip()) if own and made and at else made
    code = own.dedented(text) if own and text else loader_arguments.example(process, loader, {ARGUMENT: "False"})
    return Kept(said, place, code)
