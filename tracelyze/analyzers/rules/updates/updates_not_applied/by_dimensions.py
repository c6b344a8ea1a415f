"""An optimizer that updates tensors of some numbers of dimensions and passes over all others."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Location

_FARTHEST: Final = 80  # lines from the head of a step: what stands further below is another class's


class Passed(NamedTuple):
    """What tells the tensors apart, what to change, an example, and the line of the step that decides by it."""

    why: str
    fix: str
    code: str
    line: Location


def over(optimization: Optimization, stays: list[int | None], moves: list[int | None]) -> Passed | None:
    """What to say where the numbers of dimensions alone tell which tensors the step leaves as they are (`stays`) and
    which it changes (`moves`), and a single line of the script's own step decides by them."""
    if not moves or None in stays or None in moves or set(stays) & set(moves):
        return None
    line = _decides(optimization)
    if line is None:
        return None
    left, changed = (sorted({int(one) for one in those if one is not None}) for those in (stays, moves))
    return Passed(
        f" All of these have {_counted(left)}, and all that change have {_counted(changed)}. Line "
        f"{line.line} is the only place in the optimizer's step that decides by them.",
        "Give the tensors that the step leaves alone to another optimizer, such as AdamW, that steps and clears beside "
        "it. Or update them in this step, too.",
        _divided(optimization, changed[0]) if len(changed) == 1 else "",
        line,
    )


def _counted(numbers: list[int]) -> str:
    *others, last = numbers
    return f"{', '.join(map(str, others))} or {plural(last, 'dimension')}" if others else plural(last, "dimension")


def _decides(optimization: Optimization) -> Location | None:
    """The only line of the optimizer's own step that decides by the number of dimensions."""
    defined = optimization.process.site(optimization.facts.get("step_defined_at"))
    if defined is None:
        return None
    lines = [one for one in optimization.process.locations("by-dimensions") if one.file == defined.file]
    lines = [one for one in lines if 0 < one.line - defined.line <= _FARTHEST]
    return lines[0] if len(lines) == 1 else None


def _divided(optimization: Optimization, dimensions: int) -> str:
    """The script's own statement that makes the optimizer, given those tensors alone, and another one of the others."""
    own = own_statement.at(optimization.process, optimization.made_at)
    call = own.only_call(str(optimization.facts.get("name"))) if own is not None else None
    given = call.args[0] if call is not None and call.args else None
    if own is None or not isinstance(given, ast.Call) or name_of(given.func) != "parameters":
        return ""
    held = own.parsed.text_of(given)
    made = own.dedented(own.parsed.with_parts({given: "own"}))
    return (
        f"own = [p for p in {held} if p.ndim == {dimensions}]\n"
        f"others = [p for p in {held} if p.ndim != {dimensions}]\n"
        f"{made}\n"
        "beside = torch.optim.AdamW(others, lr=1e-3)  # step() and zero_grad() of both, in each step"
    )
