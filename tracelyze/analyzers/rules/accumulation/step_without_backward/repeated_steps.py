"""The line that makes an optimizer step again before the next backward, and what to change about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

_FIX: Final = "Step once per backward, or once per accumulated batch, right after the backward that completes it."
_CODE: Final = "loss.backward()\noptimizer.step()\noptimizer.zero_grad()"
_OUT: Final = "Take this step out: line {line} has stepped by then, once per backward."
_EVERY_OTHER: Final = (0.45, 0.55)  # of the steps: derived, one line of two makes half of them, a few at the ends aside
_IF: Final = re.compile(r"\s*if\b.*:\s*(?:#.*)?$")
_BARE: Final = re.compile(r"[A-Za-z_][\w.]*\.step\(\)\s*(?:#.*)?")


def remedy(optimization: Optimization, share: float) -> Remedy:
    """Of steps without a backward. `share`: how many of all steps since the first were such ones.

    Where a single line makes them, and a single other one makes as many with a backward, the first is one too many.
    """
    process = optimization.process
    again = _again(optimization)
    others = [one for one in process.locations("step") if again and one.file_line != again.file_line]
    if again is None or len(others) != 1:
        return _behind_a_condition(process) or Remedy(_FIX, _CODE, again)
    why = f" Line {again.line} makes these steps, after that of line {others[0].line}."
    if not _EVERY_OTHER[0] <= share <= _EVERY_OTHER[1]:  # one of them steps for some backwards only
        return Remedy(_FIX, "", again, why=why)
    return Remedy(_OUT.format(line=others[0].line), "", again, _without(process, again), why)


def _again(optimization: Optimization) -> Location | None:
    """The only line at which the only optimizer stepped without a new backward."""
    process = optimization.process
    lines = {one.file_line: one for one in process.locations("step-again")}
    return next(iter(lines.values())) if len(lines) == len(process.optimizations) == 1 else None


def _behind_a_condition(process: Process) -> Remedy | None:
    """Where the only line of a backward stands in the block of an `if`, and the only line that steps behind it."""
    steps, backwards = ({one.file_line: one for one in process.locations(role)} for role in ("step", "backward"))
    if len(process.optimizations) != 1 or len(steps) != 1 or len(backwards) != 1:
        return None
    ((step,), (backward,)) = (list(one.values()) for one in (steps, backwards))
    there, text = recorded_text.line_at(process, step), recorded_text.around(process, step)
    if there is None or step.file_function != backward.file_function or not _BARE.fullmatch(there[1]):
        return None
    at, indent = step.line - 1, len(there[0])
    while at in text and (not text[at].strip() or recorded_text.indent_of(text[at]) > indent):
        at -= 1
    head = text.get(at, "")
    within = [text[one] for one in range(at + 1, step.line) if text[one].strip()] if at in text else []
    if not _IF.match(head) or recorded_text.indent_of(head) != indent or not at < backward.line < step.line:
        return None
    if recorded_text.indent_of(text[backward.line]) != recorded_text.indent_of(within[0]):
        return None  # in a loop or a condition of its own
    deeper = " " * recorded_text.indent_of(within[0])
    return Remedy(
        f"Step only where backward ran: in the block of line {at}.",
        "",
        step,
        Diff(step.file, step.line, ["".join(there)], [deeper + there[1]]),
        f" Line {at} lets some batches run no backward, and line {step.line} steps after these, too.",
    )


def _without(process: Process, line: Location) -> Diff | None:
    """The line taken out: one that does nothing else, in a block that holds another statement beside it."""
    there, text = recorded_text.line_at(process, line), recorded_text.around(process, line)
    if there is None or not _BARE.fullmatch(there[1]):
        return None
    beside = [text.get(at, "") for at in (line.line - 1, line.line + 1)]
    plain = [one for one in beside if one.strip() and recorded_text.indent_of(one) == len(there[0])]
    whole = [one for one in plain if not one.strip().startswith((")", "]", "}", "#"))]
    return Diff(line.file, line.line, ["".join(there)], []) if whole else None
