"""Groups of equal rewards in logs that are means over several steps each, as trainers write them by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.rule import Limits, Passed, Skipped, Threshold
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.signatures import metrics
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.diagnosis import Location

_SEVERAL: Final = 2  # steps from one log to the next: each is a mean over them
THRESHOLDS: Final = (
    Threshold("averaged", 0.95, "share", "of the groups of several steps: next to nothing is left to learn from"),
    Threshold("logs", 3, "logs", "two show a change, three whether it stays"),
    Threshold("apart", 1.0, "times", "derived: of rewards of 0 and 1, half or more got 0; of a solved task few do"),
    Threshold("lost", 0.8, "share", "of the highest mean reward: a policy that stays below that has been better"),
    Threshold("certain", 0.1, "share", "of the first entropy: next to nothing is drawn any more"),
)


def of(process: Process, groups: metrics.Metric, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """What such logs say; None where each is of one step."""
    if len(groups) < 2 or float(np.median(np.diff(groups.steps))) < _SEVERAL:
        return None
    steps = metrics.steps_logged_about(process, groups)
    if len(groups) < limits["logs"] or steps < limits["steps"]:
        return Skipped(
            f"{plural(len(groups), 'log')} of rewards over {plural(steps, 'step')}: {limits['logs']:.0f} over "
            f"{limits['steps']:.0f} are needed"
        )
    alike = groups.values >= limits["averaged"]
    share = float(alike.mean())
    if share < limits["share"]:
        return Passed(f"{percent(share)} of {len(groups)} logs had no spread of rewards within nearly all groups")
    unsolved = _unsolved(process, groups, alike, limits)
    if not alike[0] and not unsolved:
        return Passed("rewards lost their spread within groups on the way: a task that is solved does this")
    return _finding(process, groups, alike, unsolved, rule, limits)


def _unsolved(process: Process, groups: metrics.Metric, alike: Mask, limits: Limits) -> str:
    """A sentence that says why the task is not solved where groups are alike; empty where it may be."""
    reward, spread = metrics.metric(process, "reward"), metrics.metric(process, "reward_std")
    if reward is None:
        return ""
    there = reward.at(groups.steps[alike])
    level, highest = float(np.nanmedian(there)), float(reward.values.max())
    apart = float(np.nanmedian(spread.at(groups.steps[alike]))) if spread is not None else 0.0
    if apart >= limits["apart"] * abs(level) and apart > 0:  # over all prompts: within groups there is none
        return (
            f" The task is not solved: from prompt to prompt rewards do differ, by a standard deviation of "
            f"{number(apart)} at a mean of {number(level)}."
        )
    if highest > 0 and level <= limits["lost"] * highest:
        return f" The task is not solved: the mean reward is {number(level)} there, and was {number(highest)} before."
    return ""


def _finding(
    process: Process, groups: metrics.Metric, alike: Mask, unsolved: str, rule: str, limits: Limits
) -> Finding:
    apart = float(np.median(np.diff(groups.steps)))
    begin, last = int(groups.steps[int(np.argmax(alike))] - apart) + 1, int(groups.steps[-1])
    least, settled = float(groups.values[alike].min()), _settled(process, limits)
    fix = (
        "Look at a few completions with their rewards. If prompts are all too easy or too hard: choose others, draw "
        "more completions per prompt, or give part of the reward for part of the task."
    )
    line = _line(process)
    if settled:
        where = f" (line {line.line} of {line.function})" if line is not None else ""
        fix = (
            f"Look at a few completions with their rewards{where}: is that what you want? Then start again with a "
            "lower learning rate, a KL penalty or a higher temperature, so that the completions of a prompt go on "
            "differing."
        )
    stays = bool(alike[int(np.argmax(alike)) :].all())
    since = f"from step {begin:,} on" if stays else f"in {percent(float(alike.mean()))} of the logs"
    reward = metrics.metric(process, "reward")
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"Equal rewards within nearly all groups {since}: nothing to learn from there",
        summary=(
            f"In {int(alike.sum())} of {plural(len(alike), 'log')}, each a mean over {apart:.0f} steps, all "
            f"completions of a prompt got the same reward in {percent(least)} of the groups"
            + (" or more" if least < 1 else "")
            + ". Advantages are differences within a group: they are zero there, and so is the gradient of the policy."
            + unsolved
            + settled
        ),
        fix=fix,
        first_step=begin,
        last_step=last,
        evidence=[
            Evidence("groups without a spread of rewards", least, "share", *limits.against("averaged")),
            Evidence("logs like this", float(alike.mean()), "share", *limits.against("share")),
            Evidence("column", groups.name),
        ],
        location=line or process.location("backward"),
        seen_at=process.location("backward"),
        charts=metrics.picture("Rewards", [groups, reward] if reward else [groups], [Mark(float(begin), "no spread")]),
        false_alarm="Groups that are drawn again until they differ (dynamic sampling), logged before that.",
        verify=f"Record the run again: {groups.name} stays below {limits['averaged']:.2g}.",
    )


def _line(process: Process) -> Location | None:
    """The only line that looks for something in a completion, in the only function that gives rewards; else its first
    one."""
    gives = script_lines.only(process, "reward")
    looks = process.locations("reward-searched")
    alone = gives is not None and len(looks) == 1 and looks[0].file_function == gives.file_function
    return looks[0] if alone else gives


def _settled(process: Process, limits: Limits) -> str:
    """A sentence on a policy that has become certain; empty where it has not, or logged no entropy."""
    entropy = metrics.metric(process, "entropy")
    if entropy is None or not 0 <= entropy.values[-1] <= limits["certain"] * entropy.values[0]:
        return ""
    first, last = number(float(entropy.values[0])), number(float(entropy.values[-1]))
    return (
        f" The policy has become certain: its entropy was {first} in the first log and is {last} in the last. It "
        "answers a prompt in nearly the same way each time."
    )
