"""A LambdaLR whose function returns a rate, where it is asked for a factor of the optimizer's own rate."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Location, Setting

_TENFOLD: Final = 10  # the least raise that shows (clip_values.usual_rate)
_RAISE: Final = "Raise the learning rate{by} tenfold each time, until the loss falls from the first steps on."
_OR_ADAM: Final = (
    " Or train with AdamW, whose steps do not shrink with the gradients, at a usual rate of its own: about 1e-3, or "
    "1e-5 to 5e-5 for a pretrained transformer."
)
_AS_FOR_ADAM: Final = (
    " SGD multiplies the gradient by the rate, and rates that are usual for Adam are often far too low for it."
)
_OF_ADAM: Final = 1e-3  # derived: Adam's own default; SGD without momentum is rarely used below it
_DIVIDE: Final = (
    "Let the function that LambdaLR is given return a factor, 1 at the height of the schedule, and not a rate: "
    "LambdaLR multiplies the optimizer's rate by it."
)
_CODE: Final = 'scheduler = LambdaLR(optimizer, lambda step: rate_at(step) / optimizer.defaults["lr"])'
_HIGHEST_BASE: Final = 0.1  # a rate of 1 or so stands there on purpose, so that the function may return the rate itself
_SAME: Final = 0.01  # of the rate: the highest factor is the rate once more, as the schedule reaches it


def said(optimization: Optimization) -> str:
    """The optimizer and its usual rate, in words: the median, where a schedule changes it."""
    usual, highest = (float(of(optimization.steps["lr"])) for of in (np.nanmedian, np.nanmax))
    median = "median " * (number(highest) != number(usual))
    return f"{optimization.facts.get('name') or 'the optimizer'} at a {median}learning rate of {number(usual)}"


def is_adams(optimization: Optimization, highest: float) -> bool:
    """Whether SGD has a rate that is usual for Adam alone: how far to raise it, the size of its updates does not say,
    and some models learn with SGD at no rate."""
    return optimization.facts.get("name") == "SGD" and highest <= _OF_ADAM


def setting(optimization: Optimization, rate: float, highest: float) -> Setting | None:
    """The rate as a setting of the script, which is to be this where it is known how far to raise it."""
    of_rate = schedulers.setting_of_rate(optimization, rate)
    return replace(of_rate, instead="") if of_rate and is_adams(optimization, highest) else of_rate


def remedy(optimization: Optimization, rate: float, highest: float) -> Remedy:
    """What to change where the rate is too low, of which the `highest` is to be `rate`: a scheduler whose highest
    factor is the optimizer's rate itself, so that a step's rate is that number squared; without one, the rate."""
    row, factor = schedulers.outer(optimization), schedulers.small_factor(optimization)
    base = float(row["base_lr"]) if row is not None and row["name"] == "LambdaLR" and factor is not None else math.inf
    if row is None or factor is None or base >= _HIGHEST_BASE or not math.isclose(factor, base, rel_tol=_SAME):
        place = schedulers.rate_location(optimization)
        if is_adams(optimization, highest):
            return Remedy(_RAISE.format(by=",") + _OR_ADAM, place=place, why=_AS_FOR_ADAM)
        code, diff = schedulers.with_rate(optimization, rate, highest), schedulers.edit_of_rate(optimization, rate)
        times = number(float(f"{rate / highest:.2g}"))
        by = f" {times}-fold, and from there" if times != number(_TENFOLD) else ","
        return Remedy(_RAISE.format(by=by), code, place, diff)
    location = optimization.process.site(row["made_at"])
    why = (
        f" The optimizer was made with a rate of {number(base)}, and LambdaLR multiplies that by what its function "
        f"returns, {number(factor)} at most: the rate itself, where a factor was due."
    )
    code, diff = _divided(optimization, location)
    return Remedy(_DIVIDE, code, location or schedulers.rate_location(optimization), diff, why)


def _divided(optimization: Optimization, location: Location | None) -> tuple[str, Diff | None]:
    """The line that makes the scheduler, with a function of which the optimizer's rate is divided out."""
    own = own_statement.at(optimization.process, location)
    call = own.only_call("LambdaLR") if own is not None else None
    given = call.args if call is not None else []
    plain = len(given) > 1 and all(isinstance(one, ast.Name | ast.Attribute) for one in given[:2])
    if own is None or not own.is_whole or not plain:
        return _CODE, None
    optimizer, function = own.parsed.text_of(given[0]), own.parsed.text_of(given[1])
    text = own.parsed.with_parts({given[1]: f'lambda step: {function}(step) / {optimizer}.defaults["lr"]'})
    return own.dedented(text), own.changed(text)
