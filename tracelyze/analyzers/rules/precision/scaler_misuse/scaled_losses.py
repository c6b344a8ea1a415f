"""What a scaler leaves out: the only loss beside others that is not scaled, and steps of the optimizer itself; and what
is said of each way to use half of it, as a title and a clause."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.computed.optimization import clip_values
from tracelyze.analyzers.script import edits
from tracelyze.analyzers.script.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Diff, Location

_STEP = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"

STILL = (
    "optimizer.step() uses scaled gradients: only half of GradScaler is used",
    (
        "the loss went through scaler.scale(), but optimizer.step() was called directly: the gradients were too large "
        "by the loss scale ({factor}), overflows were not skipped, and the scale never adapts. Adam hides this; "
        "weight decay, clipping and SGD do not."
    ),
)
NEVER = (
    "The scaler divides gradients that were never scaled",
    (
        "backward ran on the unscaled loss, but the scaler divided the gradients by the scale ({factor}): SGD "
        "hardly learns anything.{half}"
    ),
)
UNDERFLOW = " Small gradients underflow in float16, which the scaler should prevent."  # of NEVER
UNUSED = (
    "The result of scaler.scale() is not used: the scaler divides unscaled gradients",
    (
        "scaler.scale(loss) was called, but backward still ran on the unscaled loss: scale() returns a new loss and "
        "changes nothing in place. The scaler divided the gradients by the scale ({factor}): SGD hardly learns "
        "anything."
    ),
)
BESIDE = (
    "One of several losses is not scaled: the scaler divides its gradient away",
    (
        "one backward ran on a scaled loss and another on an unscaled loss. The scaler divides the sum of both by the "
        "scale ({factor}), so almost nothing is left of the second."
    ),
)
ANEW = (
    "A new GradScaler is made for every step: its scale never adapts",
    (
        "the scaler was new and had made no step before. Each new scaler starts at the same scale ({factor}): if that "
        "overflows, it does so at every step, and if a larger scale is needed, it never grows."
    ),
)
FIXES: Final = {
    NEVER[0]: "Call backward on scaler.scale(loss).",
    UNUSED[0]: "Call backward on what scaler.scale(loss) returns.",
    ANEW[0]: "Make the scaler once, before the loop. Scale every loss before backward, and step with "
    "scaler.step(optimizer).",
}
"""Of those whose fix is a shorter one than that of all."""


class Plain(NamedTuple):
    """The line, its text with the scaler, and the edit, where that is known to be right."""

    place: Location
    code: str
    diff: Diff | None


def plain(optimization: Optimization) -> Plain | None:
    """The only line whose backward is called on a plain loss, where all others that run one name the same scaler."""
    process = optimization.process
    scalers: set[str] = set()
    found: list[Plain | None] = []
    for place in process.locations("backward"):
        own = own_statement.at(process, place)
        call = _called(own.parsed) if own is not None else None
        if own is None or call is None:
            return None
        loss = call.func.value if isinstance(call.func, ast.Attribute) else call
        if isinstance(loss, ast.Call) and parsed_line.name_of(loss.func) == "scale":
            scalers.add(own.parsed.text_of(loss.func))
        else:
            found.append(Plain(place, own.parsed.text_of(loss), None))
    one = found[0] if len(found) == 1 else None
    own = own_statement.at(process, one.place) if one is not None else None
    if one is None or own is None or len(scalers) != 1:
        return None
    call = _called(own.parsed)
    if call is None:
        return None
    scale = scalers.pop()
    scaled = edits.scaled_above(process, one.place, scale, one.code) or f"{scale}({one.code})"
    text = own.parsed.with_parts({call.func: f"{scaled}.backward"})
    return Plain(one.place, own.dedented(text), own.changed(text))


class Stepped(NamedTuple):
    """What to do about steps that no scaler makes: words, an example, and an edit, where one line is all of it."""

    fix: str
    code: str
    diff: Diff | None


def stepped(optimization: Optimization) -> Stepped:
    """The step by the scaler; where gradients are clipped while they are scaled, unscaled before that."""
    diff = edits.step_by_scaler(optimization)
    clipped = bool((optimization.steps["clipped_scaled"] == 1).any())
    if not clipped:
        return Stepped("", _STEP, diff)
    match = edits.SCALER_STEP.fullmatch(diff.added[0].strip()) if diff else None
    scaler, optimizer = (match["scaler"], match["optimizer"]) if match else ("scaler", "optimizer")
    clip = clip_values.own_line(optimization)
    code = f"{scaler}.unscale_({optimizer})  # before the clip\n{clip}\n{scaler}.step({optimizer})\n{scaler}.update()"
    return Stepped(" Unscale the gradients before they are clipped.", code, None)


def _called(line: ParsedLine) -> ast.Call | None:
    """The only call of a method backward in a statement."""
    calls = line.calls("backward")
    return calls[0] if len(calls) == 1 and isinstance(calls[0].func, ast.Attribute) else None
