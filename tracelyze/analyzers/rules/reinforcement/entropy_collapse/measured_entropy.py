"""The entropy of a policy's choices where nobody logs it: read off its losses, beside the rewards that are logged, or
that the script holds in variables."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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
_ENDS = 3  # looks at the start, and at the end: they get rarer, so that few lie near the end
_UNLEARNED = 0.9  # of the entropy at the start: rewards that came by above it are those of the policy as it began
_FEW = 3  # first rewards: a task may be solved while the entropy has hardly changed
_EQUAL = 0.5  # of that of equal odds: a policy that begins below it was trained before, and may be as good as it gets
_SIGMAS = 2.0  # of the noise of rewards that may hide a gain
_ZERO = 1e-5  # rewards that were normalised have this mean
_FEWEST = 5  # rewards in variables since the fall: they are read at looks only, and what they scatter by is allowed for
_FIRST, _FALLING = 20, 0.8  # looks, of which a number falls at so many: a sum of costs that still runs; rewards scatter
_UNIT = 0.05  # from a deviation of 1, that of rewards that were normalised
_OTHERS = 0.2  # share of rewards of the other sign, among those that a baseline may have been taken from
_CENTRED: Final = ", and the rewards that the script holds are about zero: a baseline may have been taken from them"
# Averages begin at a value of their own. What is called a return may hold what a value function expects.
_AVERAGED: Final = frozenset(("running", "avg", "average", "mean", "median"))
_EXPECTED: Final = frozenset(("return", "returns"))


@dataclass(frozen=True)
class Measure:
    """A measure of how widely a policy draws, and what is said of it. `key`: its name in what was recorded of a look;
    `looked_at`, `drew`: of several trainings which one it is of, as the end of a sentence."""

    key: str
    name: str
    noun: str
    whole: str
    looked_at: str
    drew: str
    opening: str
    moral: str
    fix: str
    fix_code: str
    false_alarm: str


ENTROPY: Final = Measure(
    key="entropy",
    name="entropy of the choices",
    noun="entropy",
    whole="the entropy of what the policy chooses from",
    looked_at="the odds of a policy",
    drew="chose by these odds",
    opening="The odds by which the policy chooses, read off its losses, had an entropy of {first} at first; equal odds "
    "have {most}.",
    moral="always does the same",
    fix="Lower the learning rate, subtract an entropy bonus from the loss, and log the entropy beside the reward.",
    fix_code="loss = policy_loss - 0.01 * dist.entropy().mean()  # and a learning rate of a tenth",
    false_alarm="Policies that play against each other, tasks that get harder, a task that is solved as it begins.",
)


def collapse(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """Whether it fell to a fraction, and no reward is above what it was before. None: it or the rewards are unknown."""
    facts = _looks(process)
    if not facts or not _rewards(process, facts):
        return None
    return narrowed(process, rule, limits, facts, ENTROPY, trained=_EQUAL * facts[0]["most"])


def narrowed(
    process: Process, rule: str, limits: Limits, facts: list[dict[str, Any]], measure: Measure, trained: float
) -> Finding | Passed | Skipped:
    """Whether a measure fell to a fraction, and no reward is above what it was before. A policy that begins below
    `trained` was trained before."""
    if len(process.trainings) > 1:
        return Skipped(f"there are several trainings: which of them {measure.drew} is not known")
    if len(facts) < limits["steps"]:
        return Skipped(f"{plural(len(facts), 'look')} at {measure.looked_at}: {limits['steps']:.0f} are needed")
    seen, noun = metrics.Metric(measure.name, _column(facts, "step"), _column(facts, measure.key)), measure.noun
    first, last = float(seen.values[:_ENDS].max()), float(np.median(seen.values[-_ENDS:]))
    bound = limits["fraction"] * first
    went = f"{measure.whole} went from {number(first)} to {number(last)}"
    if first <= 0 or (seen.values[-_ENDS:] >= bound).any():
        return Passed(went)
    rewards, held = _rewards(process, facts), metrics.metric(process, "reward") is None
    if not rewards:
        return Skipped(f"{went}; what the rewards were is not known")
    begin, learned = (float(seen.steps[int(np.argmax(seen.values < one))]) for one in (bound, _UNLEARNED * first))
    for reward in rewards:
        why = _why_silent(reward, learned, begin, _FEWEST if held else limits["steps"] / 2, warm=first < trained)
        why = why or (_CENTRED if held and _both_signs(reward.values[reward.steps > begin]) else "")
        if why:
            return Passed(f"{went}{why}")
    reward = rewards[0]
    early, late = (float(np.median(reward.values[one])) for one in (reward.steps <= learned, reward.steps > begin))
    opening = measure.opening.format(first=number(first), most=number(facts[0].get("most", np.nan)))
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"The policy's {noun} collapsed, from {number(first)} to {number(last)}, and the reward does not rise",
        summary=(
            f"{opening} From step {begin + 1:,.0f} on it was below {number(bound)}, and is {number(last)} now. The "
            f"reward ({reward.name}) was {number(early)} before, and has been {number(late)} since. A policy that "
            f"{measure.moral} explores nothing: it does not find what would be better."
        ),
        fix=measure.fix,
        fix_code=measure.fix_code,
        first_step=int(begin) + 1,
        last_step=int(seen.steps[-1]) + 1,
        evidence=[
            Evidence(f"{noun} at the end", last, "", bound, limits.source("fraction"), role="most"),
            Evidence(f"{noun} at the start", first),
            Evidence("reward since then", late),
            Evidence("reward before", early),
        ],
        seen_at=process.longest.backward_location if process.optimizations else None,
        charts=metrics.picture(f"{noun.capitalize()} and reward", [seen, reward], [Mark(begin, noun)]),
        false_alarm=measure.false_alarm,
    )


def _rewards(process: Process, facts: list[dict[str, Any]]) -> list[metrics.Metric]:
    """The rewards that were logged; else those that variables held."""
    logged = metrics.metric(process, "reward", own_steps=False)
    return list(_held(facts)) if logged is None else [logged]


def _looks(process: Process) -> list[dict[str, Any]]:
    """What was seen of the odds that a policy chooses by, in order. Empty where no loss weighs choices by weights of
    both signs, as advantages are: those of samples have one."""
    rows = process.events_of(EVENT)
    facts = [{"step": row["step"]} | json.loads(row["text"]) for row in rows]
    signs = {one["sign"] for one in facts}
    is_policy = any(one["both_signs"] for one in facts) or {1.0, -1.0} <= signs
    return [one for one in facts if np.isfinite(one["entropy"])] if is_policy else []


def _held(facts: list[dict[str, Any]]) -> Iterator[metrics.Metric]:
    """Rewards in variables of the script, over the steps, which change and are of the policy's doing."""
    single = any(one["sign"] for one in facts)  # an update for each choice: an episode is still under way
    for name in dict.fromkeys(name for one in facts for name in one.get("rewards", ())):
        rows = [one["rewards"][name] | {"step": one["step"] + 1} for one in facts if name in one.get("rewards", ())]
        if len({row["kind"] for row in rows}) > 1:
            continue
        words = set(re.findall("[a-z]+", name.lower()))
        series, steps = _series(rows, words, single), _column(rows, "step")
        falls = np.diff(series[0][:_FIRST]) < 0 if series else np.zeros(0)
        if len(falls) and falls.mean() < _FALLING:
            known = [one for one in series if np.isfinite(one).all() and np.ptp(one) > 0]
            yield from (metrics.Metric(name, steps, one) for one in known)


def _series(rows: list[dict[str, Any]], words: set[str], single: bool) -> list[Floats]:
    """What a variable says of the rewards at each look: the first is what a policy is to make large."""
    mean, total, count, spread = (_column(rows, name) for name in ("mean", "sum", "count", "spread"))
    if rows[0]["kind"] == "number":
        return [] if words & _AVERAGED or len(words) < 2 or single else [total]
    if rows[0]["kind"] == "list" and count[-1] > count[0] and (np.diff(count) >= 0).all():  # of all episodes so far
        of_episodes = count[-1] - count[0] <= rows[-1]["step"] - rows[0]["step"] and not (single and len(words) < 2)
        return [mean] if of_episodes and "running" not in words else []
    normalised = np.median(np.abs(mean)) < _ZERO or np.median(np.abs(spread - 1)) < _UNIT
    return [] if single or normalised or words & _EXPECTED else [total, mean]


def _why_silent(reward: metrics.Metric, learned: float, begin: float, fewest: float, warm: bool) -> str:
    """Why a low entropy may be as it should: what the reward has gained, or that it tells nothing. Else nothing."""
    values, before, since = reward.values, reward.values[reward.steps <= learned], reward.values[reward.steps > begin]
    if not len(before) or len(since) < fewest:
        return ": what the reward was before, or has been since, is not known"
    if np.ptp(values) == 0 or np.abs(values).max() < _ZERO:
        return ", and the reward is the same all along, or was normalised: it tells nothing"
    if metrics.rises(reward):
        return ", and the reward rises"
    noise = max(float(np.std(since)), statistics.spread(np.diff(values)) / np.sqrt(2))
    for earlier, later in itertools.product((before, before[:_FEW]), (since, since[-max(_FEW, len(since) // 5) :])):
        margin = _SIGMAS * noise / np.sqrt(min(len(np.unique(earlier)), len(np.unique(later))))
        gain = float(np.median(later) - np.median(earlier))
        if gain > margin:
            return ", and the reward is higher than before: the task may be solved"
        if warm and gain > -margin:
            return ": the policy was trained before, and may be as good as it gets"
    return ""


def _both_signs(values: Floats) -> bool:
    return bool(min((values > 0).mean(), (values < 0).mean()) > _OTHERS)


def _column(rows: list[dict[str, Any]], name: str) -> Floats:
    return np.array([row[name] for row in rows], dtype=float)
