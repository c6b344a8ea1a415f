"""zero-advantage: all completions of a group got the same reward, so nothing was learned from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.reinforcement.zero_advantage import advantages, averaged_groups, one_reward
from tracelyze.analyzers.signatures import metrics
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Steps whose groups had no spread of rewards, but for those of a task that is solved."""
    groups, spread = metrics.metric(process, "groups_alike"), metrics.metric(process, "reward_std")
    seen = groups or spread
    direct = advantages.zero_advantages(process, RULE.id, limits)
    if isinstance(direct, Finding):
        return [one_reward.told(process, direct)]
    if seen is None:
        return direct or Skipped("no weights of a policy's loss were seen, no reward_std was logged", "not-applicable")
    averaged = averaged_groups.of(process, groups, RULE.id, limits) if groups is not None else None
    if averaged is not None:
        return [averaged] if isinstance(averaged, Finding) else averaged
    if len(seen) < limits["steps"]:
        return Skipped(f"{plural(len(seen), 'step')} with rewards: {limits['steps']:.0f} are needed")
    alike = seen.values >= limits["groups"] if groups is not None else seen.values <= 0.0
    share = float(alike.mean())
    if share < limits["share"]:
        return Passed(f"{share_of(share, 'steps')} had no spread of rewards within their groups")
    reward = metrics.metric(process, "reward")
    if reward is not None and _solved(reward, seen.steps[alike], alike):
        return Passed("rewards have no spread any more because they are all at their maximum: the task is solved")
    begin = int(seen.steps[int(np.argmax(alike))])
    level = None if reward is None else float(np.median(reward.at(seen.steps[alike])))
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="likely",
            title=f"Nothing to learn from in {share_of(share, 'steps')}: equal rewards within each group",
            summary=(
                f"In {int(alike.sum()):,} of {len(alike):,} steps all completions of a prompt got the same reward"
                + (f" ({number(level)})" if level is not None else "")
                + ". Advantages are differences within a group: they are zero, and so is the gradient of the policy."
            ),
            fix="Look at the reward function on a few completions. If prompts are all too easy or too hard: choose "
            "others, draw more completions per prompt, or give part of the reward for part of the task.",
            first_step=begin,
            last_step=int(seen.steps[-1]),
            evidence=[
                Evidence("steps without a spread of rewards", share, "share", *limits.against("share")),
                Evidence("column", seen.name),
                Evidence("reward in these steps", level),
            ],
            charts=metrics.picture("Rewards", [seen, reward] if reward else [seen], [Mark(float(begin), "no spread")]),
            false_alarm="Groups that are drawn again until they differ (dynamic sampling), logged before that.",
        )
    ]


def _solved(reward: metrics.Metric, steps: np.ndarray, alike: np.ndarray) -> bool:
    """Whether the rewards there are the highest of a run that had others before."""
    highest = float(reward.values.max())
    there = reward.at(steps)
    return bool(not alike[0] and reward.values.min() < highest and np.nanmedian(there) >= highest)


RULE = Rule(
    id="zero-advantage",
    family="reinforcement",
    severity="warning",
    title="Equal rewards within each group",
    about="Policies that are trained on differences within groups of completions learn nothing from equal rewards: "
    "what rounding leaves of zero, and an epsilon makes of that, is no difference.",
    check=check,
    verify="Record the run again: reward_std is above zero in most steps.",
    absent="The run logged no rewards.",
    needs=(("scalars.value",), ("loss_graphs.weights_zero",)),
    excluded=(
        "A loss that reads 0: the weights themselves are zero, not their mean.",
        "Masks: constants that are zeros and ones are no weights.",
        "A task that is solved on the way: the weights are zero from the start.",
    ),
    thresholds=(
        Threshold("groups", 1.0, "share", "of a step's groups: one that differs is something to learn from"),
        Threshold("share", 0.5, "share", "half of the steps: solved and hopeless prompts are a part of every set"),
        Threshold("steps", 10, "steps", "fewer are the start of a run"),
        *averaged_groups.THRESHOLDS,
    ),
    not_when="Some prompts that are solved or hopeless, tasks that are solved in the end, rewards that differ by more "
    "than rounding.",
    references=("https://arxiv.org/abs/2503.14476",),
)
