"""sampler-mismatch: the engine that samples and the model that trains give the same tokens other probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.signatures import metrics
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """A gap of log-probabilities that grows, or importance ratios beyond what clipping allows."""
    gap, ratio = metrics.metric(process, "logp_gap"), metrics.metric(process, "importance")
    if gap is None and ratio is None:
        return Skipped("no gap or ratio of sampler and trainer was logged under a name that is known", "not-applicable")
    if gap is not None and len(gap) >= limits["steps"]:
        first, last = gap.ends()
        if last > limits["gap"] and last > limits["growth"] * first:
            over = gap.values > max(limits["gap"], limits["growth"] * first)
            late = Evidence("gap at the end", last, "", limits["growth"] * first, limits.source("growth"))
            return [_finding(gap, int(np.argmax(over)), f"grew from {number(first)} to {number(last)}", late)]
    if ratio is not None and len(ratio) >= limits["steps"]:
        later = float(np.median(np.abs(ratio.values[len(ratio) // 2 :] - 1.0)))
        if later > limits["ratio"]:
            over = np.abs(ratio.values - 1.0) > limits["ratio"]
            late = Evidence("distance of the ratio from 1", later, "", limits["ratio"], limits.source("ratio"))
            return [_finding(ratio, int(np.argmax(over)), f"puts importance ratios {number(later)} away from 1", late)]
    seen = gap or ratio
    assert seen is not None
    if len(seen) < limits["steps"]:
        return Skipped(f"{plural(len(seen), 'step')}: {limits['steps']:.0f} are needed to see a gap grow")
    return Passed(f"{seen.name} went from {number(seen.ends()[0])} to {number(seen.ends()[1])}")


def _finding(seen: metrics.Metric, first: int, what: str, late: Evidence) -> Finding:
    begin = int(seen.steps[first])
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Sampler and trainer disagree: their gap {what}",
        summary=(
            f"The log-probabilities that the sampling engine and the trained model give to the same tokens differ; the "
            f"gap {what}. Updates then follow a policy that never acted. Weights that reach the sampler late, "
            "quantised or merged adapters, another attention or softmax precision do that."
        ),
        fix="Check that weights are synchronised after every step and in the same precision; correct with truncated "
        "importance sampling.",
        fix_code="GRPOConfig(vllm_importance_sampling_correction=True)",
        first_step=begin,
        last_step=int(seen.steps[-1]),
        evidence=[late, Evidence("column", seen.name)],
        charts=metrics.picture("Sampler against trainer", [seen], [Mark(float(begin), "gap")]),
        false_alarm="Off-policy training on purpose, whose ratios are corrected.",
    )


RULE = Rule(
    id="sampler-mismatch",
    family="reinforcement",
    severity="warning",
    title="Sampler and trainer disagree",
    about="Policy gradients assume that what is updated is what acted.",
    check=check,
    verify="Record the run again: the gap stays as small as at the start.",
    absent="The run logged nothing of a sampler under a name that is known.",
    needs=(("scalars.value",),),
    thresholds=(
        Threshold(
            "growth", 3, "", "derived: a gap between kernels is constant; three is far beyond its noise between batches"
        ),
        Threshold("gap", 0.05, "", "derived: tokens at four times this mean gap reach the usual clip range"),
        Threshold("ratio", 0.2, "", "the usual clip range of the policy ratio"),
        Threshold("steps", 20, "steps", "four in each fifth"),
    ),
    not_when="A constant small gap between kernels.",
    references=("https://fengyao.notion.site/off-policy-rl",),
)
