"""A stream's samples divided among the workers that read it: by its own loop, else by every nth sample."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

FIX: Final = (
    "Let each worker yield its own part of the stream: in the dataset's __iter__, check which worker it runs in."
)
_IMPORTED: Final = "import itertools  # at the top of the file\n\n"
_WORKER: Final = (
    "worker = torch.utils.data.get_worker_info()\n"
    "first, every = (worker.id, worker.num_workers) if worker else (0, 1)\n"
)
CODE: Final = (
    f"{_IMPORTED}# in the dataset: rename __iter__ to samples, and add\n"
    "def __iter__(self):\n"
    "    worker = torch.utils.data.get_worker_info()\n"
    "    first, every = (worker.id, worker.num_workers) if worker else (0, 1)\n"
    "    yield from itertools.islice(self.samples(), first, None, every)"
)
_NUMBERS: Final = ("range", "arange", "count", "cycle", "repeat", "iter")  # rounds that may say nothing of the samples


class Divided(NamedTuple):
    """The line of the loop, what to do about it, and an example."""

    line: Location
    fix: str
    code: str


def by_the_loop(process: Process, reader: Location | None) -> Divided | None:
    """Of the only loop by which a stream yields all of its samples, if it goes over files or other parts of them; None
    where it only counts rounds."""
    found = [one for one in process.locations("stream-loop") if reader and one.file_function == reader.file_function]
    own = own_statement.at(process, found[0]) if len(found) == 1 else None
    head = own.parsed.statement if own is not None else None
    if own is None or not isinstance(head, ast.For):
        return None
    parts, calls = head.iter, [node for node in ast.walk(head.iter) if isinstance(node, ast.Call)]
    if any(name_of(one.func) in _NUMBERS for one in calls):
        return None
    fix = (
        f"Let each worker go through its own part of the loop in line {own.line}. If that has fewer rounds than there "
        "are workers, divide the samples within it instead."
    )
    changed = own.parsed.with_parts({parts: f"itertools.islice({own.parsed.text_of(parts)}, first, None, every)"})
    return Divided(found[0], fix, _IMPORTED + _WORKER + own.dedented(changed))
