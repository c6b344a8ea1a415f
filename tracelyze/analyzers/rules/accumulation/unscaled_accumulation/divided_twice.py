"""Accumulated losses that are divided by the number of micro-batches twice: by the script, and by what calls backward.

The recorded divisor is then the square of that number. A loss that has a weight of a half and is divided for two
micro-batches is divided by four as well: the script's text has to say that it divides.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.diagnosis import Diff, Evidence, Finding, Location, Mark

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.analyzers.rule import Limits
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_NEAR: Final = 1e-4  # of the divisor: what float32 leaves of a factor that is no power of two


class Division(NamedTuple):
    """A statement of the script that divides a loss by a number of batches, and the edit that leaves that out."""

    place: Location
    diff: Diff | None


def finding(optimization: Optimization, alike: Mask, count: int, rule: str, limits: Limits) -> Finding | None:
    """`alike`: the steps of `count` micro-batches each, shape [steps]; None where they were not divided twice."""
    steps, process = optimization.steps, optimization.process
    known = alike & steps.known("loss_divisor") & steps.known("loss_is_mean")
    squared = np.isclose(steps["loss_divisor"], count**2, rtol=_NEAR) & (steps["loss_is_mean"] == 1)
    if known.sum() < limits["looked"] or squared[known].mean() < limits["share"] or process.world_size == count:
        return None  # sums over as many ranks as micro-batches are divided by the square, too
    found = divisions(optimization, count)
    who, fix = _divides(optimization)
    if len(found) < (1 if who else 2):
        return None
    one = found[0] if len(found) == 1 else None
    name = str(optimization.facts.get("name") or "the optimizer")
    matters = name in accumulation.SCALE_MATTERS
    called = "an update by hand" if name == "ByHand" else name
    effect = (
        f"With {called} each update is {count} times smaller than that of one large batch, as if the learning rate "
        f"were {count} times lower."
        if matters
        else f"{name} {'divides' if accumulation.evens_out(name) else 'may divide'} most of that out again, but "
        "gradient clipping and logged gradient norms are off by that factor."
    )
    return Finding(
        rule=rule,
        severity="warning" if matters else "info",
        confidence="likely",
        title=f"The loss of each micro-batch is divided by {count} twice",
        summary=(
            f"Every step accumulates {count} backwards, one for each micro-batch. Dividing each mean loss by {count} "
            f"gives the mean of all; what reached backward was divided by {count**2}. {who}{effect}"
        ),
        fix=fix + (" If the learning rate was chosen to suit these small gradients, lower it." if matters else ""),
        fix_code="" if one is not None and one.diff is not None else _example(optimization),
        diff=one.diff if one is not None else None,
        first_step=timing.step_at(optimization, 0),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("divisor of each micro-batch's mean loss", count**2, "", count, "its mean", role="expected"),
            Evidence("backwards per step", count),
            Evidence("steps whose divisor was seen", int(known.sum()), "steps", *limits.against("looked"), "basis"),
            Evidence("optimizer", called),
            Evidence("effect on the gradients", "they are too small", role="message"),
        ],
        traits=frozenset({"too-small"}),
        location=one.place if one is not None else optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.grad_norm(optimization, [Mark(1.0, f"{count} backwards per step")]),
        false_alarm="A loss that has a weight which happens to be the inverse of the number of micro-batches.",
    )


def divisions(optimization: Optimization, count: int) -> list[Division]:
    """The statements of the functions that compute losses or call backward, which divide a loss."""
    process = optimization.process
    places = [one for role in ("loss", "backward", "training-call") for one in process.locations(role)]
    functions = {one.file_function: one for one in places}
    lines = {
        (place.file, at): place.at(at, text)
        for place in functions.values()
        for at, text in recorded_text.of_function(process, place).items()
        if "/" in text and ("loss" in text.lower() or "backward(" in text)
    }
    found = {}
    for line in lines.values():
        own = own_statement.at(process, line)
        if own is not None and (own.file, own.line) not in found and (text := _undivided(own, count)) is not None:
            place = Location(own.file, own.line, line.function, own.text.split("\n")[0])
            found[own.file, own.line] = Division(place, own.changed(text) if text else _left_out(process, own, place))
    return list(found.values())


def _left_out(process: Process, own: OwnStatement, place: Location) -> Diff | None:
    """The edit that leaves out the statement, where another one stands beside it in its block."""
    lines, text = recorded_text.of_function(process, place), own.indent + own.text
    if "\n" in text or not own.stands:
        return None
    beside = [lines[at] for at in (own.line - 1, own.line + 1) if lines.get(at, "").strip()]
    depths = [recorded_text.indent_of(line) for line in beside if not line.lstrip().startswith("#")]
    return Diff(own.file, own.line, [text], []) if recorded_text.indent_of(text) in depths else None


def _undivided(own: OwnStatement, count: int) -> str | None:
    """The text of a statement without the division of a loss that it makes: empty where nothing is left of it, None
    where it makes none, or more."""
    statement = own.parsed.statement
    if isinstance(statement, ast.AugAssign):
        divides = isinstance(statement.op, ast.Div) and "loss" in parsed_line.name_of(statement.target).lower()
        return "" if divides and _counts(statement.value, count) else None
    calls = own.parsed.calls("backward", "manual_backward")
    roots = [call.args[0] for call in calls if call.args]
    roots += [call.func.value for call in calls if isinstance(call.func, ast.Attribute)]
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    named = target is not None and "loss" in parsed_line.name_of(target).lower()
    if isinstance(statement, ast.Return | ast.Assign) and statement.value is not None:
        roots += [statement.value] if named or target is None else []
    found = [one for one in roots if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]
    if len(found) != 1 or not _counts(found[0].right, count):
        return None
    left = found[0].left
    if target is not None and own.parsed.text_of(left) == own.parsed.text_of(target):
        return ""
    return own.parsed.with_parts({found[0]: own.parsed.text_of(left)})


def _counts(divisor: ast.expr, count: int) -> bool:
    """Whether an expression may be the number of micro-batches: that number, or a name."""
    if isinstance(divisor, ast.Constant):
        return divisor.value == count
    return isinstance(divisor, ast.Name | ast.Attribute)


def _divides(optimization: Optimization) -> tuple[str, str]:
    """A sentence about what divides beside the script, empty where the script calls backward itself; and what to do."""
    backward = optimization.backward_location
    source = backward.source if backward is not None else ""
    calls = parsed_line.parse(source)
    called = calls.calls("backward") if calls is not None else []
    holder = called[0].func.value if called and isinstance(called[0].func, ast.Attribute) else None
    if holder is not None and parsed_line.name_of(holder).lower().endswith("accelerator"):
        return (
            "Accelerate's backward() divides by gradient_accumulation_steps itself. ",
            f"Hand {ast.unparse(holder)}.backward() the loss undivided.",
        )
    if "backward(" in source or not source:
        return "", "Divide each loss once."
    return (
        "What calls backward for the script divides by the number of micro-batches itself. ",
        "Return the loss undivided.",
    )


def _example(optimization: Optimization) -> str:
    """The call that needs no division before it, where Accelerate makes it."""
    backward = optimization.backward_location
    if backward is not None and "accelerator.backward(" in backward.source:
        return "accelerator.backward(loss)  # without a division before it"
    return ""
