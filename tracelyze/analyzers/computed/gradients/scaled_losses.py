"""What a scaler leaves out: the only loss beside others that is not scaled, and steps of the optimizer itself."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.computed.optimization import clip_values
from tracelyze.analyzers.evidence import edits
from tracelyze.analyzers.evidence.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.parsed_line import ParsedLine
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Location

_STEP = "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()"


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
    text = own.parsed.with_parts({call.func: f"{scalers.pop()}({one.code}).backward"})
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
