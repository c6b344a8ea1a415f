"""updates-not-applied: steps of an optimizer leave a parameter with a gradient and a rate exactly as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization.updates import SIXTEEN_BITS, SampledUpdates, sampled_updates
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Tensors that no step ever changed, although rate times gradient is well above what their format resolves."""
    return combine(_check(optimization, limits) for optimization in process.optimizations)


def _check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    seen = sampled_updates(optimization.process.tables["parameters"], optimization.optimizer)
    enough = [updates for updates in seen if updates.dtype not in SIXTEEN_BITS and _is_enough(updates, limits)]
    if not enough:
        return Skipped("no parameter with a gradient and a learning rate was sampled often enough")
    still = [updates for updates in enough if _never_moved(updates)]
    if not still:
        return Passed(f"steps changed all of the {plural(len(enough), 'parameter')} that were sampled")
    return _finding(optimization, still, len(enough))


def _is_enough(updates: SampledUpdates, limits: Limits) -> bool:
    strong = np.nan_to_num(updates.expected, posinf=1.0) >= limits["expected"]
    return int(strong.sum()) >= limits["looks"] and float(np.nansum(updates.since)) >= limits["steps"]


def _never_moved(updates: SampledUpdates) -> bool:
    between = updates.unchanged_since[~np.isnan(updates.unchanged_since)]
    return bool((updates.unchanged == 1.0).all() and (updates.reached == 1.0).all() and (between == 1.0).all())


def _finding(optimization: Optimization, still: list[SampledUpdates], count: int) -> Finding:
    names = [updates.parameter for updates in still]
    shown = listed(names, most=4)
    begin, end = int(min(updates.step[0] for updates in still)), int(max(updates.step[-1] for updates in still))
    affected = np.ones(len(optimization.steps), dtype=bool)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain",
        title=f"{len(still)} of {plural(count, 'sampled parameter')} never change, although the optimizer steps",
        summary=(
            f"Copies of up to 256 values of each, taken before and after steps{timing.name_of(optimization)} between "
            f"{begin:,} and {end:,}, are the same bit for bit for {shown}. They have gradients, the optimizer holds "
            "them, and their learning rate is not zero: the step does not write to them."
        ),
        fix="Look at what the optimizer's step does with these tensors: an update of a copy (p = p - ... instead of "
        "p.sub_(...)), a step that another wrapper replaced, weights that are copied back from elsewhere.",
        fix_code="with torch.no_grad():\n    p.sub_(lr * p.grad)",
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("parameters that never changed", shown),
            Evidence("of the first of them", len(still[0].step), "measurements"),
            Evidence("rate times gradient, against its weights", float(np.median(still[0].expected))),
        ],
        cost=timing.cost_of(optimization, affected),
        location=optimization.process.site(optimization.facts.get("step_defined_at")) or optimization.step_location,
        seen_at=optimization.step_location,
        false_alarm="Tensors that are held fast on purpose, by an optimizer of the script's own.",
    )


RULE = Rule(
    id="updates-not-applied",
    family="gradients",
    severity="critical",
    title="Updates are not applied",
    about="An optimizer that steps without writing to a parameter trains the rest of the model around a dead part.",
    check=check,
    verify="Record the run again: every sampled parameter changes between steps.",
    excluded=(
        "A rate of zero, or updates below the precision of float32: rate times gradient is far above it.",
        "A line search that rejects steps: all samples agree.",
    ),
    needs=(("parameters.unchanged", "parameters.unchanged_since"),),
    thresholds=(
        Threshold("looks", 4, "measurements", "a line search or an accumulating optimizer rejects some steps, not all"),
        Threshold("steps", 30, "steps", "what does not change over so many steps is not trained"),
        Threshold("expected", 1e-5, "share", "a hundred times what float32 resolves (6e-8)"),
    ),
    not_when="Rates of zero, 16-bit weights, gradients too small to matter, closures.",
)
