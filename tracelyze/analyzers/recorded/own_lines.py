"""Which of several lines of a role belongs to one training of a process that makes several.

What a line does was recorded of the whole process. Trainings that stand in different functions, or files, have lines of
their own: the one that clips for a teacher is not the one that clips for its student.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


def first(process: Process, lines: Sequence[Location]) -> Location | None:
    """The first of the lines; of one training of several, the first in a function that makes its steps or its
    backwards, else in a file that does."""
    if not process.training or len(lines) < 2:
        return lines[0] if lines else None
    facts = [one.facts for one in process.optimizations]
    own = [process.site(row.get(name)) for name in ("site", "backward_site") for row in facts]
    functions = [one.file_function for one in own if one is not None]
    beside = [line for function in functions for line in lines if line.file_function == function]
    beside += [line for file, _ in functions for line in lines if line.file == file]
    return next(iter([*beside, *lines]))
