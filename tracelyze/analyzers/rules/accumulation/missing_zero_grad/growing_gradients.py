"""Gradients that pile up, seen in the gradient norm alone: it grows like a power of the step from the first step on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization


def finding(
    optimization: Optimization, rule: str, fix: str, fix_code: str, limits: Limits
) -> Finding | Passed | Skipped:
    """Only curves: the norm grows like a power of the step from the very beginning, and no warm-up explains it."""
    steps, number_of = optimization.steps, timing.numbers(optimization)
    if len(optimization.process.optimizations) > 1:
        return Skipped(
            "several optimizers and no direct evidence: their gradient norms drift for other reasons", "not-applicable"
        )
    measured = np.isfinite(steps["grad_norm"])
    if int(measured.sum()) < statistics.FEWEST_TO_GROW:
        return Skipped(
            f"{plural(int(measured.sum()), 'gradient norm')}: {statistics.FEWEST_TO_GROW} are needed to see "
            "how they grow"
        )
    growth = statistics.power_law_growth(number_of[measured], steps["grad_norm"][measured])
    if growth is None:
        return Passed("the gradient norm does not grow with the number of steps")
    rate = steps["lr"][np.isfinite(steps["lr"])]
    if len(rate) and rate[-1] == rate.max() and rate[-1] > limits["warm_up"] * rate[0]:
        return Passed("the gradient norm grows, but so does the learning rate to the end (warm-up)")
    loss = statistics.block_medians(steps["loss"][np.isfinite(steps["loss"])], 10)
    explained = len(loss) >= 2 and loss[-1] > limits["worse"] * abs(loss[0])
    begin = int(number_of[0])
    return Finding(
        rule=rule,
        severity="critical",
        confidence="possible" if explained else "likely",
        title=f"Gradients are likely never cleared: their norm has grown {number(growth.ratio)}-fold, step by step",
        summary=(
            f"The gradient norm grows like the number of steps to the power {growth.exponent:.2f} from the first step "
            "to the last. Gradients that are never cleared do exactly that: every step adds its own to the sum of all "
            "before it (power 1 if they point the same way, 0.5 if they do not). Only curves were recorded, so the "
            "clearing itself was not observed."
        ),
        fix=fix,
        fix_code=fix_code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, 0),
        evidence=[
            Evidence("exponent of growth", growth.exponent, "", statistics.LEAST_EXPONENT,
                     "unrelated gradients add up with exponent 0.5"),
            Evidence("exponent in the later half", growth.late_exponent, "", statistics.LARGEST_LATE_EXPONENT,
                     "an exponential blow-up exceeds 1.4", role="most"),
            Evidence("last norm over first norm", growth.ratio, "", statistics.LEAST_RATIO,
                     "a learning-rate warm-up stays within 2 to 5"),
        ],
        cost=timing.cost_of(optimization, np.ones(len(steps), dtype=bool)),
        charts=pictures.grad_norm(optimization, [Mark(float(begin), "growth begins")]),
        false_alarm="A loss that itself grows without bound, for another reason, can raise the norm in the same way.",
    )  # fmt: skip
