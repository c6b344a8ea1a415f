"""What to change about a fault, as a finding says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diff, Location


@dataclass(frozen=True)
class Remedy:
    """What to change: in words, as an example, the line to change, and the edit where it is known to be right."""

    fix: str
    code: str = ""
    """An example, which whoever pastes it with their own names must end up with a working script."""
    place: Location | None = None
    """The line to change; None where it is the one that the finding is about, or where it is not known."""
    diff: Diff | None = None
    why: str = ""
    """A sentence about the cause, to be said beside the fix."""


def example_of(edit: Diff) -> str:
    """The lines that an edit puts there, as an example: without their indentation."""
    return "\n".join(line.strip() for line in edit.added)
