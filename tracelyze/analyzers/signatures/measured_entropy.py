"""The entropy of a policy's choices where nobody logs it: read off its losses, beside the rewards that are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.analyzers.signatures import metrics
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats

EVENT: Final = "policy-choices"
NAME: Final = "entropy of the choices"
_ENDS = 3  # looks at the start, and at the end: they get rarer, so that few lie near the end
_UNLEARNED = 0.9  # of the entropy at the start: rewards that came by above it are those of the policy as it began
_FEW = 3  # first rewards: a task may be solved while the entropy has hardly changed
_EQUAL = 0.5  # of that of equal odds: a policy that begins below it was trained before, and may be as good as it gets
_SIGMAS = 2.0  # of the noise of rewards that may hide a gain
_ZERO = 1e-5  # rewards that were normalised have this mean


def measured(process: Process) -> tuple[metrics.Metric, float] | None:
    """The entropy over the steps of the process, and that of equal odds. None where no loss weighs choices by weights
    of both signs, as advantages are: those of samples have one."""
    facts = [(row["step"], json.loads(row["text"])) for row in process.events.records() if row["kind"] == EVENT]
    signs = {one["sign"] for _, one in facts}
    if not (any(one["both_signs"] for _, one in facts) or {1.0, -1.0} <= signs):
        return None
    steps, values = (np.array(one, dtype=float) for one in zip(*[(s, one["entropy"]) for s, one in facts], strict=True))
    known = np.isfinite(values)
    if not known.any():
        return None
    return metrics.Metric(NAME, steps[known], values[known]), max(one["most"] for _, one in facts)


def collapse(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """Whether it fell to a fraction, and no reward is above what it was before. None: it or the rewards are unknown."""
    found, reward = measured(process), metrics.metric(process, "reward", own_steps=False)
    if found is None or reward is None:
        return None
    seen, most = found
    if len(process.trainings) > 1:
        return Skipped("there are several trainings: which of them chose by these odds is not known")
    if len(seen) < limits["steps"]:
        return Skipped(f"{plural(len(seen), 'look')} at the odds of a policy: {limits['steps']:.0f} are needed")
    first, last = float(seen.values[:_ENDS].max()), float(np.median(seen.values[-_ENDS:]))
    bound = limits["fraction"] * first
    went = f"the entropy of what the policy chooses from went from {number(first)} to {number(last)}"
    if first <= 0 or last >= bound or (seen.values[-_ENDS:] >= bound).any():
        return Passed(went)
    begin = float(seen.steps[int(np.argmax(seen.values < bound))])
    before = reward.values[reward.steps <= seen.steps[int(np.argmax(seen.values < _UNLEARNED * first))]]
    since = reward.values[reward.steps > begin]
    if not len(before) or len(since) < limits["steps"] / 2:
        return Passed(f"{went}: what the reward was before, or has been since, is not known")
    silent = _kept(reward, before, since, warm=first < _EQUAL * most)
    if silent:
        return Passed(f"{went}, and {silent}")
    early, late = float(np.median(before)), float(np.median(since))
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"The policy's entropy collapsed, from {number(first)} to {number(last)}, and the reward does not rise",
        summary=(
            f"The odds by which the policy chooses, read off its losses, had an entropy of {number(first)} at first; "
            f"equal odds have {number(most)}. From step {begin:,.0f} on it was below {number(bound)}, and is "
            f"{number(last)} now. The reward was {number(early)} before that, and has been {number(late)} since. A "
            "policy that always does the same explores nothing: it does not find what would be better."
        ),
        fix="Lower the learning rate, subtract an entropy bonus from the loss, and log the entropy beside the reward.",
        fix_code="loss = policy_loss - 0.01 * dist.entropy().mean()  # and a learning rate of a tenth",
        first_step=int(begin) + 1,
        last_step=int(seen.steps[-1]) + 1,
        evidence=[
            Evidence("entropy at the end", last, "", bound, limits.source("fraction"), role="most"),
            Evidence("entropy at the start", first),
            Evidence("reward since then", late),
            Evidence("reward before", early),
        ],
        seen_at=process.longest.backward_location if process.optimizations else None,
        charts=metrics.picture("Entropy and reward", [seen, reward], [Mark(begin, "entropy")]),
        false_alarm="Two policies that play against each other: neither gains. A task that is solved as it begins.",
    )


def _kept(reward: metrics.Metric, before: Floats, since: Floats, warm: bool) -> str:
    """Why a low entropy may be as it should: what the reward has gained, or that it tells nothing. Else nothing."""
    values = reward.values
    if values.max() == values.min() or np.abs(values).max() < _ZERO:
        return "the reward is the same all along, or was normalised: it tells nothing"
    if metrics.rises(reward):
        return "the reward rises"
    noise = max(float(np.std(since)), statistics.spread(np.diff(values)) / np.sqrt(2))
    for earlier in (before, before[:_FEW]):
        margin = _SIGMAS * noise / np.sqrt(min(len(earlier), len(since)))
        gain = float(np.median(since) - np.median(earlier))
        if gain > margin or (warm and gain > -margin):
            return (
                "the reward is higher than before: the task may be solved"
                if gain > margin
                else ("the policy was trained before: the task may have been solved")
            )
    return ""
