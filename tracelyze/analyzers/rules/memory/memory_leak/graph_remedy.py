"""What lets go of autograd graphs that a training loop keeps: the line that stores a tensor, an edit of it, words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.memory.memory_leak import filled_lists
from tracelyze.analyzers.script import kept_tensors
from tracelyze.analyzers.script.editing.storing import handed_over
from tracelyze.analyzers.script.remedy import example_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.script.kept_tensors import Kept
    from tracelyze.diagnosis import Diff, Location

_ANY: Final = (
    "Leave the backward pass as it is. If the loop keeps a loss, an output or a hidden state beyond the step, detach "
    "it, and add loss.detach() to a running sum: code that reads it later works as before."
)
_EXAMPLE: Final = (
    "kept.append(loss.detach())  # where a list, dictionary or attribute keeps a loss or an output\n"
    "running_loss += loss.detach()  # where the loop adds up losses"
)
_OF_LINES: Final = (
    "Leave the backward pass as it is, and store the tensor without its graph: code that reads its value later works "
    "as before."
)
_RETAINED: Final = "Drop retain_graph=True from the backward, and detach what the loop keeps beyond the step."


@dataclass(frozen=True)
class GraphRemedy:
    """`line`: the one that stores a tensor with its graph, None if that is not known; `cause`: what is stored there."""

    line: Location | None
    seen_at: Location | None
    cause: str
    fix: str
    example: str
    edit: Diff | None


def of(optimization: Optimization, stored: list[Kept]) -> GraphRemedy:
    """The remedy for graphs that these lines keep."""
    line, edit = (stored[0].location, kept_tensors.edit(stored)) if stored else (None, None)
    handed = handed_over.to(optimization, line) if len(stored) == 1 else None
    fix, example = _words(optimization, stored)
    if edit:
        fix, example = _OF_LINES + kept_tensors.others(stored, edit), example_of(edit)
    elif handed:
        fix += handed.instead
    elif len(stored) == 1 and (filled := filled_lists.of(optimization.process, line)):
        seen = line if filled.place is not line else optimization.backward_location
        return GraphRemedy(filled.place, seen, filled.told, fix, filled.code or example, None)
    return GraphRemedy(
        line=line,
        seen_at=(handed.place if handed else optimization.backward_location) if line else None,
        cause=kept_tensors.told(stored) + (handed.told if handed else ""),
        fix=fix + kept_tensors.outputs(optimization, stored),
        example=example,
        edit=edit,
    )


def _words(optimization: Optimization, stored: list[Kept]) -> tuple[str, str]:
    """What to do, and an example, where there is no edit."""
    own, retained = kept_tensors.guarded(optimization, stored), kept_tensors.retains(optimization)
    if own:
        return _RETAINED if retained else _OF_LINES, own
    if stored:
        return _OF_LINES, _EXAMPLE
    return (_RETAINED, "") if retained else (_ANY, _EXAMPLE)
