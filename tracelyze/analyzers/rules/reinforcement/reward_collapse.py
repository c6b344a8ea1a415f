"""reward-collapse: the reward fell for good from the level that it had reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script.editing.remade import signs
from tracelyze.analyzers.script.loss import assignment
from tracelyze.analyzers.script.settings import framework_arguments
from tracelyze.analyzers.signatures import metrics
from tracelyze.diagnosis import Evidence, Finding, Mark, Setting
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

BLOCKS = 20
RATE = Setting(("learning_rate",), ())


def check(process: Process, limits: Limits) -> Outcome:
    """The last fifth of the rewards against the best level before, and the KL divergence meanwhile."""
    reward, divergence = metrics.metric(process, "reward"), metrics.metric(process, "kl")
    if reward is None:
        return Skipped("no reward was logged under a name that is known", "not-applicable")
    if len(reward) < limits["rewards"]:
        return Skipped(f"{len(reward)} rewards: {limits['rewards']:.0f} are needed to tell a fall from noise")
    level = reward.blocks(BLOCKS)
    early, late = level[: -BLOCKS // 5], level[-BLOCKS // 5 :]
    best, place = float(early.max()), int(np.argmax(early))
    gained = best - float(level[0])
    noise = statistics.spread(np.diff(level)) / np.sqrt(2)
    margin = max(limits["sigmas"] * noise, limits["lost"] * gained)
    if gained <= 0:
        return _from_the_start(process, reward, divergence, limits)
    end = float(np.median(late))
    if not (late < best - margin).all():
        return Passed(f"the reward ended at {number(end)}; the best level was {number(best)}")
    begin = int(reward.steps[min((place + 1) * len(reward) // BLOCKS, len(reward) - 1)])
    ratio = metrics.growth(divergence, begin)
    jumped = ratio is not None and ratio >= limits["kl"]
    if divergence is not None and not jumped and not _is_worse(reward, divergence, limits):
        return Passed("the reward fell, and the policy stayed as close to its reference as before")
    kl = limits.against("kl") if jumped else ()
    line, backward = assignment.of_last(process)
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="likely" if jumped else "possible",
            title=f"The reward collapsed, from {number(best)} to {number(end)}",
            summary=(
                f"The reward had risen to {number(best)} by step {begin:,} and fell to {number(end)} for good, which "
                f"is {number((best - end) / gained)} times what had been gained."
                + (f" The KL divergence from the reference grew {number(ratio)}-fold since." if ratio else "")
            ),
            fix="Go back to a checkpoint from before the fall; lower the learning rate, raise the weight of the KL "
            "term, and clip the ratio tighter. See that no weight in the loss, as an entropy's, grows over the run.",
            first_step=begin,
            last_step=int(reward.steps[-1]),
            evidence=[
                Evidence("reward at the end", end, "", best - margin, limits.source("lost"), role="most"),
                Evidence("best level before", best), Evidence("KL divergence, end over then", ratio, "", *kl),
            ],
            location=framework_arguments.in_place_of(line or backward, process, RATE.names),
            seen_at=backward,
            setting=RATE,
            charts=metrics.picture("Reward", [reward, *filter(None, [divergence])], [Mark(begin, "best level")]),
            false_alarm="A curriculum whose tasks get harder, or a change of environment.",
        )
    ]  # fmt: skip


def _is_worse(reward: metrics.Metric, divergence: metrics.Metric, limits: Limits) -> bool:
    """Whether the policy ends worse than it began, and further from its reference than ever before."""
    level, apart = reward.blocks(BLOCKS), divergence.blocks(BLOCKS)
    noise = statistics.spread(np.diff(reward.values)) / np.sqrt(2 * reward.at_start)
    fallen = max(limits["fallen"] * abs(reward.start), limits["sigmas"] * noise)
    moved = len(apart) == len(level) and apart[-BLOCKS // 5 :].min() > apart[: -BLOCKS // 5].max()
    return bool(moved and reward.start - level[-BLOCKS // 5 :].max() > fallen)


def _from_the_start(
    process: Process, reward: metrics.Metric, divergence: metrics.Metric | None, limits: Limits
) -> Outcome:
    """A reward that never rises: below its first level for good, while the policy moves away from its reference."""
    start = reward.start
    level = reward.blocks(BLOCKS)
    late, noise = level[-BLOCKS // 5 :], statistics.spread(np.diff(reward.values)) / np.sqrt(2)
    end = float(np.median(late))
    if start - end < limits["fallen"] * abs(start) or not (late < start - limits["sigmas"] * noise).all():
        return Passed(f"the reward ended at {number(end)}; it began at {number(start)}")
    apart = divergence.blocks(BLOCKS) if divergence is not None else np.zeros(1)
    if divergence is None or apart[-1] <= 0 or apart[-1] < limits["kl"] * apart[0]:
        return Passed("the reward fell, and nothing shows that the policy moved away from its reference")
    line, backward = assignment.of_last(process)
    turned = signs.without_minus(process, line) or signs.with_minus(process, line)
    found = Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"The reward falls from the start on, from {number(start)} to {number(end)}",
        summary=(
            f"The reward began at {number(start)} and is lower at the end, {number(end)}, while the KL divergence from "
            f"the reference grew to {number(float(apart[-1]))}. So the policy did learn, but away from the reward, as "
            "with a flipped sign in its loss."
        ),
        fix="Check the sign of the policy's loss. What is minimised is minus the advantage times the log-probability; "
        "cross_entropy gives minus that log-probability already.",
        fix_code=turned or "loss = -(advantage * log_prob).mean()  # where log_prob is below zero",
        first_step=int(reward.steps[0]),
        last_step=int(reward.steps[-1]),
        evidence=[
            Evidence("reward at the end", end, "", start - limits["fallen"] * abs(start), limits.source("fallen"),
                     role="most"),
            Evidence("reward at the start", start),
            Evidence("KL divergence at the end", float(apart[-1])),
        ],
        location=line or backward,
        seen_at=backward,
        charts=metrics.picture("Reward", [reward, divergence]),
        false_alarm="A curriculum whose tasks get harder, or an opponent that learns as well.",
    )  # fmt: skip
    return [found]


RULE = Rule(
    id="reward-collapse",
    family="reinforcement",
    severity="warning",
    title="The reward collapses",
    about="A policy that leaves the region where its reward was learned loses what it gained.",
    check=check,
    verify="Record the run again: the reward keeps the level that it reaches.",
    absent="The run logged no rewards, or under a name that is not known.",
    needs=(("scalars.value",),),
    thresholds=(
        Threshold("lost", 0.75, "share", "of the gain; a policy that kept a quarter of it has not left for good"),
        Threshold("sigmas", 6, "", "as for loss-divergence: autocorrelated noise exceeds it in one run of a hundred"),
        Threshold("fallen", 0.25, "share", "of the reward at the start: a good policy loses a little as it explores"),
        Threshold("kl", 3, "", "a jump: growth that is steady over the run makes less of it in its last part"),
        Threshold("rewards", 40, "", "two in each of twenty blocks"),
    ),
    not_when="Slow growth of the KL divergence with a rising reward.",
)
