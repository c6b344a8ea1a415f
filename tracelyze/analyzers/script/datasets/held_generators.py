"""The line that makes a generator of random numbers which a dataset holds, and what stands in its place where nothing
can be told to the loader: a trainer makes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement, trainer_examples

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

FIX: Final = (
    "Make it in each worker, from torch's seed, which differs between workers and epochs: by a property of the dataset "
    "instead of line {}."
)
_DRAWN: Final = re.compile(r"\bself\.(\w+)\.\w+\s*\(|\bgenerator\s*=\s*self\.(\w+)")
_SEEDS: Final = ("default_rng", "RandomState", "Random", "manual_seed")
_SHORT: Final = ("RandomState",)  # its seeds have 32 bits


def by_trainer(process: Process, loader: Mapping[str, Any]) -> bool:
    """Whether a trainer makes this loader, which takes no worker_init_fn for it: transformers' sets its own."""
    made = process.site(loader.get("made_at"))
    _, method = trainer_examples.trainer_of(process)
    return method == "train" and made is not None and "DataLoader" not in made.source


def made(process: Process) -> Location | None:
    """The only line in an `__init__` that makes what samples draw from, as an attribute of the same name."""
    drawn = process.locations("draws")
    names = {name for one in drawn for found in _DRAWN.findall(one.source) for name in found if name}
    files = {one.file for one in drawn}
    lines = [one for one in process.locations("seed") if one.function == "__init__" and one.file in files]
    named = [one for one in lines if _attribute(one) in names]
    return named[0] if len({one.file_line for one in named}) == 1 else None


def in_each_worker(process: Process, place: Location) -> str:
    """A property in place of the line, which makes the generator anew where torch's seed is another; empty where the
    line is not known as a whole."""
    name, value = _attribute(place), _seeded_by(process, place, "seed")
    return value and (
        f"@property\ndef {name}(self):  # in the class; line {place.line} goes\n    seed = torch.initial_seed()\n"
        '    if getattr(self, "_seed", None) != seed:\n'
        f"        self._seed, self._{name} = seed, {value}\n"
        f"    return self._{name}"
    )


def seeded_by_worker(process: Process) -> str:
    """A line of a worker_init_fn that makes the generator of the worker's copy of the dataset, as the script makes its
    own; empty where it is not known how."""
    place = made(process)
    value = _seeded_by(process, place, "info.seed") if place is not None else ""
    if place is None or not value or "self." in value:
        return ""
    return f"info.dataset.{_attribute(place)} = {value}  # as line {place.line} makes it"


def _seeded_by(process: Process, place: Location, seed: str) -> str:
    """What the line gives its attribute, made from another seed; empty where the line is not known as a whole."""
    own = own_statement.at(process, place)
    call = own.only_call(*_SEEDS) if own is not None else None
    if own is None or call is None or not _attribute(place) or "\n" in own.text:
        return ""
    if len(call.args) != 1 or call.keywords:
        return ""
    short = any(one in place.source for one in _SHORT)
    return own.parsed.with_parts({call.args[0]: f"{seed} % 2**32" if short else seed}).partition("=")[2].strip()


def _attribute(place: Location) -> str:
    found = re.match(r"self\.(\w+)\s*=(?!=)", place.source)
    return found[1] if found else ""
