"""entropy-collapse: the policy's entropy fell to a fraction of its start, or exploded, and the reward does not rise, or
the loss itself works for the fall."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.policies import losses
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.reinforcement.entropy_collapse import measured_deviation, measured_entropy
from tracelyze.analyzers.signatures import metrics
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_ABSENT = Skipped(
    "no loss that punishes entropy was seen, and no entropy of a policy beside a reward, by known names",
    "not-applicable",
)


def check(process: Process, limits: Limits) -> Outcome:
    """The sign of the entropy in the loss; else first against last fifth of what was logged, and the reward since; else
    the odds behind the policy's losses. Of continuous actions the deviation behind them, whatever was logged."""
    direct = losses.punished_entropy(process, RULE.id, limits)
    if isinstance(direct, Finding):
        return [direct]
    continuous = measured_deviation.collapse(process, RULE.id, limits)
    if isinstance(continuous, Finding):
        return [continuous]
    seen, reward = metrics.metric(process, "entropy"), metrics.metric(process, "reward")
    if seen is None or reward is None:
        measured = measured_entropy.collapse(process, RULE.id, limits)
        if isinstance(measured, Finding):
            return [measured]
        return (direct if isinstance(direct, Passed) else None) or continuous or measured or direct or _ABSENT
    if len(seen) < limits["steps"]:
        return Skipped(f"{plural(len(seen), 'entropy')}: {limits['steps']:.0f} are needed")
    first, last = seen.ends()
    if first <= 0:
        return continuous or Skipped("the entropy starts at zero or below: there is no level to compare with")
    fell, rose = last < limits["fraction"] * first, last > limits["multiple"] * first
    if isinstance(continuous, Passed) and not rose:  # below zero there is no level to compare with
        return continuous
    if not fell and not rose:
        return Passed(f"the entropy went from {number(first)} to {number(last)}")
    bound = limits["fraction"] * first if fell else limits["multiple"] * first
    beyond = seen.values < bound if fell else seen.values > bound
    begin = int(seen.steps[int(np.argmax(beyond))])
    after = reward.steps >= begin
    since = metrics.Metric(reward.name, reward.steps[after], reward.values[after])
    if len(since) < limits["steps"] / 2:
        return Passed("the entropy changed in the last steps only: what the reward has done since is not known")
    if metrics.rises(since):
        return Passed(f"the entropy went from {number(first)} to {number(last)} while the reward goes on rising")
    if fell and seen.name not in metrics.NAMES["entropy"] and _keeps_what_it_gained(reward, begin):
        return Passed(
            f"the entropy went from {number(first)} to {number(last)}, and the reward keeps the level that it rose to: "
            "the task may be solved"
        )
    return [_finding(seen, reward, begin, fell, limits)]


def _finding(seen: metrics.Metric, reward: metrics.Metric, begin: int, fell: bool, limits: Limits) -> Finding:
    """`begin`: the step from which on the entropy is beyond its bound, below it if it `fell`."""
    first, last = seen.ends()
    bound = limits["fraction"] * first if fell else limits["multiple"] * first
    after = reward.steps >= begin
    what, verb = ("collapsed", "fell") if fell else ("exploded", "rose")
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"The policy's entropy {what}, from {number(first)} to {number(last)}",
        summary=(
            f"The entropy {verb} from {number(first)} to {number(last)}, and since step {begin:,} the reward does "
            "not rise. "
            + (
                "A policy that always says the same thing does not explore, and its groups show no differences."
                if fell
                else "A policy that says anything with equal probability has lost what it knew."
            )
        ),
        fix="Lower the learning rate, raise the upper clip range or add an entropy bonus; look at completions."
        if fell
        else "Lower the learning rate and the entropy bonus, raise the weight of the KL term.",
        first_step=begin,
        last_step=int(seen.steps[-1]),
        evidence=[
            Evidence(
                "entropy at the end",
                last,
                "",
                bound,
                limits.source("fraction" if fell else "multiple"),
                role="most" if fell else "",
            ),
            Evidence("entropy at the start", first),
            Evidence("reward since then", float(np.median(reward.values[after]))),
        ],
        charts=metrics.picture("Entropy and reward", [seen, reward], [Mark(float(begin), "entropy")]),
        false_alarm="A task with one right answer, which is solved: the reward is at its maximum then.",
    )


def _keeps_what_it_gained(reward: metrics.Metric, begin: int) -> bool:
    """Whether the reward had risen by then and ends no lower. With scripts of their own, of small worlds, this is how a
    solved task looks: its best reward is not known."""
    before = reward.steps <= begin
    risen = metrics.rises(metrics.Metric(reward.name, reward.steps[before], reward.values[before]))
    start, end = reward.ends()
    reached = float(np.median(reward.values[before][-5:])) if before.any() else start
    return risen and end - start >= reached - end


RULE = Rule(
    id="entropy-collapse",
    family="reinforcement",
    severity="warning",
    title="The policy's entropy collapses",
    about="Exploration ends with the entropy of the policy: rewards stop rising where it is used up. Where none is "
    "logged, it is read off the losses that weigh the policy's choices; of continuous actions, where it may be "
    "negative, the standard deviation is.",
    check=check,
    verify="Record the run again: the entropy declines slowly while the reward rises.",
    absent="The run logged no entropy and no reward, and no policy's loss holds an entropy.",
    needs=(("scalars.value",), ("events.text",)),
    thresholds=(
        Threshold(
            "fraction", 0.1, "", "runs whose rewards stand still had used up nearly all of it (arXiv 2505.22617)"
        ),
        Threshold("multiple", 3, "", "a wide margin: the healthy GRPO run of the labelled set changes by 6%"),
        Threshold("steps", 20, "steps", "five in each fifth at least four times over"),
        Threshold("looks", 10, "losses", "three medians of three lie between start and end"),
        Threshold("punished", 0.9, "share", "a sign stands in the script, and is the same at all steps"),
        Threshold("left", 0.5, "", "of the start: a wrong sign without effect is no harm"),
    ),
    not_when="A slow decline to a plateau while the reward rises or has risen, an entropy bonus in the loss, "
    "classifiers that should become confident, as in training without labels.",
    references=("https://arxiv.org/abs/2505.22617", "https://arxiv.org/abs/2503.14476"),
)
