"""A schedule whose length counts batches, stepped with every update, each of which accumulates several of them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.schedules.planned import epoch_loops
from tracelyze.analyzers.computed.schedules.schedulers import known_rates
from tracelyze.analyzers.rules.updates.learning_rate_schedule.findings import Mismatch
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Diff

ABOUT: Final = 1.25  # the last, short window of each epoch is stepped or left out
PER_STEP: Final = 0.9  # share of the steps: GradScaler skips some, and then a scheduler is not stepped either
ALMOST: Final = 0.2  # of the highest rate: a schedule that ends there has come to its end
TOTAL: Final = ("OneCycleLR", "OneCycle")  # the rule stops-short judges these
_LENGTHS: Final = ("num_training_steps", "T_max", "total_iters", "total_steps")
_PARTS: Final = re.compile(r"accum", re.IGNORECASE)


def mismatch(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """Of a training that came to its end, and whose validation was not about to become worse."""
    rate, count, each = known_rates(optimization), len(optimization.steps), batches_of_a_step(optimization)
    if optimization.process.exit.kind != "finished" or len(schedulers) != 1 or len(rate) < limits["steps"]:
        return None
    row = schedulers[0]
    length, batches = int(row["horizon"] or 0), count * each
    with_each = PER_STEP * count <= row["steps"] <= ABOUT * count
    in_batches = each > 1 and batches / ABOUT <= length <= batches * ABOUT
    if not with_each or not in_batches or row["name"] in TOTAL or rate[-1] <= ALMOST * rate.max():
        return None
    if epoch_loops.worse_at_the_end(optimization.process):
        return None
    made = optimization.process.site(row["made_at"])
    own = own_statement.at(optimization.process, made)
    diff, factor = _without_factor(own or own_statement.begun_at(optimization.process, made))
    return Mismatch(
        scheduler=row,
        title=f"The length of {row['name']} counts batches, but a step of it is {plural(each, 'batch')}",
        what=f"It was made for {length:,} steps and stepped with each of the {count:,} steps of the optimizer, each of "
        f"which accumulates {each} batches. So it came to {percent(row['steps'] / length)} of its length: the rate "
        f"began at {number(float(rate[0]))} and was {number(float(rate[-1]))} at the end.",
        fix="Give the schedule its length and its warm-up in steps of the optimizer"
        + (f": leave out the factor {factor}." if factor else f", of which {each} batches make one."),
        code=_divided(own, each) or ("" if factor else f"total_steps = {count}  # all that this training makes"),
        diff=diff if own is not None else None,  # else other arguments may hold it, too
        confidence="likely",
        false_alarm="A schedule that goes on in another run, which happens to be as long as this one in batches.",
    )


def batches_of_a_step(optimization: Optimization) -> int:
    """How many backwards the median step accumulates; 1 where that is not known."""
    parts = optimization.steps["backwards"]
    return int(np.median(parts[np.isfinite(parts)])) if np.isfinite(parts).any() else 1


def _without_factor(own: OwnStatement | None) -> tuple[Diff | None, str]:
    """The edit that leaves the number of accumulated batches out of each product in the statement, and its name."""
    if own is None:
        return None, ""
    parts: dict[ast.expr, str] = {}
    names = set[str]()
    for node in ast.walk(own.parsed.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for factor, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(factor, ast.Name | ast.Attribute) and _PARTS.search(ast.unparse(factor)):
                    names.add(own.parsed.text_of(factor))
                    parts[node] = own.parsed.text_of(other)
    nested = any(one is not other and one in ast.walk(other) for one in parts for other in parts)
    if nested or len(names) != 1:
        return None, ""
    return own.changed(own.parsed.with_parts(parts)), names.pop()


def _divided(own: OwnStatement | None, each: int) -> str:
    """The statement with its length divided by the batches of a step; empty where it gives none by name."""
    if own is None or not own.is_whole:
        return ""
    given = [one.value for call in _calls(own.parsed) for one in call.keywords if one.arg in _LENGTHS]
    if len(given) != 1 or _PARTS.search(own.parsed.text_of(given[0])):
        return ""
    return own.dedented(own.parsed.with_parts({given[0]: f"{own.parsed.operand(given[0])} // {each}"}))


def _calls(parsed: ParsedLine) -> list[ast.Call]:
    return [node for node in ast.walk(parsed.tree) if isinstance(node, ast.Call)]
