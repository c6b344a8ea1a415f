"""Losses of a policy as their graphs showed at some steps: weights of its log-probabilities, its entropy, and how far
they are from the policy that acted."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import pictures, script_lines
from tracelyze.analyzers.evidence.candidates import coarse_rewards
from tracelyze.analyzers.evidence.charts import chart
from tracelyze.analyzers.evidence.datasets import equal_rewards, rounded_advantages
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Location

EVENT, ROWS, ACTED = "policy-loss", "policy-rows", "policy-acted"
_EARLY = 10  # looks at rollouts that follow each other: which samples were trained on before is known there
_BATCHES = 3  # looks at batches of completions: one may repeat its rows by chance, where the policy is all but certain
_MIXED = 1.5  # of policies that act at random in one step of three, or less often, and take that into account
_MOST = 0.5  # of a loss's samples
_END = 3  # looks whose median is the entropy at the start, and at the end: they get rarer, so that few lie near the end


@dataclass(frozen=True)
class Looks:
    """Looks at the losses of a policy, in order, each array of shape [looks]; NaN where a loss holds no such thing."""

    steps: Floats
    both_signs: Floats  # 1 where the weights of the log-probabilities have both signs, as advantages have
    undetached: Floats  # 1 where gradients go through these weights
    ratio_one: Floats  # 1 where all ratios to an older policy are 1
    entropy: Floats  # in nats, of the policy's choices
    most: Floats  # in nats, the entropy of equal odds
    punished: Floats  # 1 where the loss punishes entropy, -1 where it rewards it
    length: Floats  # places of the sequences that the policy wrote and is trained on
    full: Floats  # share of them that no mask ends before the last place
    last_same: Floats  # share of these that end in their commonest last symbol
    last: Floats  # last symbol of the first one


def looks(process: Process) -> Looks | None:
    """What was seen of the policy's losses; None where there were none."""
    rows = process.events_of(EVENT)
    if not rows:
        return None
    facts = [json.loads(row["text"]) for row in rows]
    names = [one.name for one in fields(Looks)][1:]
    columns = [np.array([float(one.get(name, np.nan)) for one in facts]) for name in names]
    return Looks(np.array([row["step"] for row in rows], dtype=float), *columns)


def ratios(seen: Looks) -> Floats | None:
    """Of the losses that hold ratios of probabilities: whether all of them are 1. None where no loss does."""
    known = seen.ratio_one[np.isfinite(seen.ratio_one)]
    return known if len(known) else None


def cut_off(seen: Looks) -> tuple[Floats, Floats] | None:
    """Of the losses with a mask: their steps, and the share of their sequences that run up to the longest length at
    which one was seen. None where no loss has such sequences, or where they all end in one symbol there."""
    known = np.isfinite(seen.full)
    if not known.any():
        return None
    whole = known & (seen.length == seen.length[known].max())
    _, counts = np.unique(seen.last[whole], return_counts=True)
    if float(np.median(seen.last_same[whole])) > _MOST and counts.max(initial=0) > _MOST * len(seen.last[whole]):
        return None
    return seen.steps[known], np.where(whole, seen.full, 0.0)[known]


def compare(process: Process) -> bool:
    """Whether a loss weighs the ratio of a policy to the one that acted: dropout would make these two differ."""
    seen = looks(process)
    detached = bool(process.events_of(ACTED))  # whatever weighs it
    return detached or (seen is not None and ratios(seen) is not None)


def trained_again(process: Process, share: float) -> int | None:
    """Early steps on samples of which that share was trained on before, since the policy acted last; of those whose
    samples differ, since small worlds repeat themselves. None where the policy was not seen to act."""
    facts = [json.loads(row["text"]) for row in process.events_of(ROWS)]
    if not any(one["acted"] for one in facts):
        return None
    again = [not one["acted"] and min(one["reused"], one["distinct"]) >= share for one in facts]
    return int(np.sum(again))


def punished_entropy(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """Whether the loss falls as the policy's entropy falls, and whether that came about. None: no entropy was seen."""
    seen = looks(process)
    if seen is None or not np.isfinite(seen.entropy).any():
        return None
    known = np.isfinite(seen.entropy)
    if known.sum() < limits["looks"]:
        return Skipped(f"{plural(int(known.sum()), 'loss')} with an entropy seen: {limits['looks']:.0f} are needed")
    steps, entropy = seen.steps[known], seen.entropy[known]
    first, last = float(np.median(entropy[:_END])), float(np.median(entropy[-_END:]))
    went = f"the entropy in the loss went from {number(first)} to {number(last)}"
    share = float((seen.punished[known] > 0).mean())
    if share < limits["punished"]:
        return None if share == 0 else Passed(f"{went}; the loss rewards it at times")
    if last > limits["left"] * first:
        return Passed(f"{went}, although the loss is lower where it is")
    if not (seen.both_signs > 0).any():
        return Passed(f"{went}; nothing else says that this is a policy and no classifier that is to be sure")
    optimization = process.longest if process.optimizations else None
    backward = optimization.backward_location if optimization is not None else None
    line = script_lines.only(process, "entropy", r"^(?!.*\bprint\()")
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"The loss punishes the policy's entropy: it fell from {number(first)} to {number(last)}",
        summary=(
            "The entropy of the policy is added to the loss, where an entropy bonus is subtracted: each step makes "
            f"the policy more deterministic, whatever it is rewarded for. Its entropy fell from {number(first)} to "
            f"{number(last)}; a uniform policy has {number(float(seen.most[known][0]))}. A policy that always does the "
            "same thing does not explore."
        ),
        fix="Subtract the entropy: the loss is minimised, and the entropy should stay large.",
        fix_code="# in the line that adds the entropy to the loss; its other terms, and its weight, stay as they are:\n"
        "loss = loss - entropy_weight * dist.entropy().mean()",
        first_step=int(steps[0]) + 1,
        last_step=int(steps[-1]) + 1,
        evidence=[
            Evidence("losses that entropy makes larger", share, "share", *limits.against("punished")),
            Evidence("entropy at the end", last, "", limits["left"] * first, limits.source("left"), role="most"),
            Evidence("entropy at the start", first),
        ],
        location=line or backward,
        seen_at=backward,
        charts=[chart("Entropy of the policy", "step", "nats", steps, {"entropy": entropy})],
        false_alarm="Entropy that is minimised on purpose, late in a training.",
    )


def zero_advantages(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """Whether the weights were all zero in many steps. None: no weights of a policy's loss were seen."""
    rows = [row for row in process.tables["loss_graphs"].records() if row["weights"]]
    if not rows:
        return None
    steps = np.array([row["step"] for row in rows])
    even = rounded_advantages.steps(process)
    exact = np.array([row["weights_zero"] >= 1.0 for row in rows])
    zero = exact | np.array([rounded_advantages.is_zero(row, even) for row in rows])
    rounded = "" if exact[zero].all() else number(max(row["weights_largest"] for row in _of(rows, zero & ~exact)))
    steps, zero = np.unique(steps), np.array([zero[steps == one].all() for one in np.unique(steps)])
    if len(steps) < limits["steps"]:
        return Skipped(f"{plural(len(steps), 'step')} with weights of a policy seen: {limits['steps']:.0f} are needed")
    share = float(zero.mean())
    if share < limits["share"]:
        return Passed(f"{percent(share)} of the {len(steps)} steps looked at had weights that were all zero")
    early = zero[: max(3, len(zero) // 5)]
    if early.mean() < limits["share"]:
        return Passed("the weights of the policy's loss became zero on the way: a task that is solved does this")
    signed = any(row["weights_negative"] for row in rows)  # no mask has such
    optimization = _of_step(process, float(np.median(steps)))
    learns = not signed and optimization is not None and not _learns_nothing(process, optimization, steps[0], limits)
    if learns and not _is_policy(process):
        return Skipped(
            "weights of log-probabilities are all zero, but something else gives gradients: they may be a mask of "
            "samples, as with pseudo-labels"
        )
    begin, end, training = int(steps[int(np.argmax(zero))]) + 1, int(steps[-1]) + 1, ""
    if optimization is not None and len(process.trainings) > 1:  # numbers of steps are those of the training, then
        training = next((one.training for one in process.trainings if _holds(one, optimization)), "")
        before = _steps_of_others(process, training, int(steps[0]))
        begin, end = 1 if zero[0] else begin - before, end - before
    if zero[-1] and optimization is not None:  # looks get rarer: the last one need not be at the last step
        end = max(end, len(optimization.steps))
    what = "rounding errors" if rounded else "all zero"
    alike = _completions_alike(process, steps[zero])
    seen = process.site(rows[0]["site"])
    seen = seen or (optimization.backward_location if optimization is not None else None)
    computed = script_lines.only(process, "advantage")
    equal = None if alike else equal_rewards.at(process, steps[zero])
    rewards = None if alike or computed else coarse_rewards.within(process, script_lines.rewarding(process, seen))
    fix, code = _remedy(process, alike, equal, rewards)
    return Finding(
        rule=rule,
        severity="warning",
        confidence="certain" if signed and not rounded else "likely",
        title=f"The policy's advantages are {what} in {share_of(share, 'steps')}"
        + (f" ({training})" if training else ": nothing to learn from"),
        summary=(
            f"In {int(zero.sum())} of {len(zero)} steps checked, every weight that multiplies the log-probabilities in "
            "the policy loss is "
            + (
                f"what rounding leaves of zero, or an epsilon makes of that ({rounded} at most). It says nothing of "
                "what was answered."
                if rounded
                else "exactly zero, and so is the policy's "
                f"gradient{': what gradients there are come of other terms, such as entropy' * learns}."
            )
            + (
                f" The rewards are all equal: every element of {equal.name} is {number(equal.value)}, whatever was "
                "answered."
                if equal
                else ""
            )
            + " Advantages are differences within a group, or from a baseline: they vanish if all rewards are equal."
            + (
                f" In the batches looked at each row stands {alike} times over, or more: all completions of a prompt "
                "are one and the same. Greedy decoding makes them so, or a policy that has become certain."
                if alike
                else ""
            )
        ),
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=end,
        trainings=[training] if training else [],
        evidence=[
            Evidence("steps whose weights are all zero", share, "share", *limits.against("share")),
            Evidence("steps looked at", len(zero), "steps", *limits.against("steps"), role="basis"),
        ],
        location=(_line_that_writes(process) if alike else equal and equal.place) or computed or rewards or seen,
        seen_at=seen,
        charts=pictures.loss(optimization, [Mark(float(begin), "no advantage")]) if optimization is not None else [],
        false_alarm="Groups that are drawn again until they differ.",
    )


def _of(rows: list[dict[str, Any]], chosen: Any) -> list[dict[str, Any]]:
    return [row for row, one in zip(rows, chosen, strict=True) if one]


def _remedy(
    process: Process, alike: int, equal: equal_rewards.EqualRewards | None, rewards: Location | None
) -> tuple[str, str]:
    """What to do about advantages that are all zero, and an example."""
    if alike:
        fix = (
            "Draw the completions: generate(..., do_sample=True). Without it generate() decodes greedily, whatever its "
            "temperature is. If it samples already, raise the temperature, or hold the policy back (entropy, KL)."
        )
        return fix, "completions = model.generate(prompts, do_sample=True, temperature=1.0)"
    if (rounded := coarse_rewards.remedy(process, equal.place if equal else rewards)) is not None:
        return rounded
    compared = equal_rewards.example(process, equal.place) if equal else ""
    if equal and compared:
        fix = (
            f"Look at what the reward function compares: everything gets {number(equal.value)}. If it is right, the "
            "prompts are all too easy or too hard: choose others, or reward a part of the task."
        )
        return fix, compared
    fix = (
        "Print the rewards of a few groups. If all are equal: look at the reward function; if prompts are all too "
        "easy or too hard, choose others, draw more completions per prompt, or reward a part of the task."
    )
    if rewards:
        return fix, f"print(rewards[:8])  # in {rewards.function}, above its return: are they all equal?"
    return fix, "print(rewards.view(-1, group).std(dim=1))   # zero: nothing to learn from that group"


def _completions_alike(process: Process, steps: Floats) -> int:
    """How often each row of ids stands in the batches of these steps, at least, if always several times; else 0.

    Only of models that wrote these rows: at such a step it was given shorter ones without gradients, the prompts. Of a
    policy that is given states, a row that comes again says nothing of what was done there.
    """
    widths: dict[tuple[int, str], int] = {}
    trained: list[dict[str, Any]] = []
    for row in process.tables["batches"].records():
        if row["step"] in steps and "int" in str(row["dtype"]) and row["prints"] and "-" not in row["prints"].split():
            width = int(str(row["shape"]).rpartition("x")[2])
            if row["trained"]:
                trained.append(row | {"width": width})
            else:
                key = row["step"], str(row["field"])
                widths[key] = min(width, widths.get(key, width))
    written = [row for row in trained if widths.get((row["step"], str(row["field"])), row["width"]) < row["width"]]
    met = [Counter(row["prints"].split()) for row in written]
    counts = [min(one.values()) for one in met if len(one) > 1]  # one row in all: a mask, or the like
    return min(counts) if len(counts) >= _BATCHES and min(counts) > 1 else 0


def _line_that_writes(process: Process) -> Location | None:
    """The only line that calls generate() in a function that measures nothing."""
    measures = process.functions("measured")
    lines = [one for one in process.locations("forward") if ".generate(" in one.source]
    lines = [one for one in lines if one.file_function not in measures]
    return lines[0] if len(lines) == 1 else None


@dataclass(frozen=True)
class Apart:
    """First backwards after a policy acted, in order: how far its probabilities were from those that it acted with."""

    steps: Floats
    distances: Floats  # mean distance of the ratio of both from 1, each by 1 at most
    stale: bool  # A copy of the policy acts, whose weights never changed; else the policy as it is.
    dropouts: bool  # Dropout was active, where it acted or where it is trained.
    detached: bool = False  # The loss is weighed by the ratio as by a constant.


def apart(process: Process, limits: Limits) -> list[Apart | Passed | Skipped]:
    """Of each policy: how far it was from the one that acted, where that should not be far at all."""
    facts = [row | json.loads(row["text"]) for row in process.events_of(ACTED)]
    models = dict.fromkeys(one["model"] for one in facts)
    return [_apart([one for one in facts if one["model"] == model], limits) for model in models]


def _apart(looks: list[dict[str, Any]], limits: Limits) -> Apart | Passed | Skipped:
    looks = [one for one in looks if one["both_signs"] and np.isfinite(one["apart"]) and _acted(one)]
    if len(looks) < limits["looks"]:
        return Skipped(f"{plural(len(looks), 'first loss')} after a policy acted: {limits['looks']:.0f} are needed")
    again = [(one["reused"] or 0) > limits["again"] for one in looks[:_EARLY]]
    if np.mean(again) > limits["again"]:
        return Passed("the policy is trained on samples that it met before: how old they are is not known")
    met = [one["met"] for one in looks if one["met"] is not None]
    detached = any(one.get("detached") for one in looks)
    if met and not (np.median(met) if detached else any(met)):
        return Passed("the policy is not trained on what it acted upon last")
    alike = np.array([one["own"] or one["same"] for one in looks])
    copied = not any(one["own"] for one in looks)
    stale = copied and len({one["state"] for one in looks}) == 1 and not alike[len(alike) // 2 :].any()
    if not stale and alike.mean() < 1 - limits["again"]:
        return Passed("a copy of the policy acts, which takes over its weights now and then")
    judged = looks[len(looks) // 2 :] if stale else looks  # A copy that is never refreshed is close at first.
    steps, distances = (np.array([one[name] for one in judged], dtype=float) for name in ("step", "apart"))
    near = float((distances <= limits["near"]).mean())
    if float(np.median(distances)) <= limits["apart"] or near > limits["again"]:
        middle = number(float(np.median(distances)))
        return Passed(f"before the first update on them, the ratio of actions was {middle} from 1 (median)")
    if detached and max(one["largest"] for one in looks) <= _MIXED:
        return Passed("no weight is far above 1: some actions are drawn at random, which the weights correct for")
    return Apart(steps, distances, stale, any(max(one["dropouts"]) for one in judged), detached)


def _acted(look: dict[str, Any]) -> bool:
    """Whether the call that was seen acted. One on as many other samples, beside each loss, values what follows."""
    return not look["as_trained"] or (look["met"] or 0) >= _MOST


def _of_step(process: Process, step: float) -> Optimization | None:
    """The optimizer that made this step of the process; the one with the most steps where that is not known."""
    optimizers = process.steps["optimizer"]
    made = optimizers[min(int(step), len(optimizers) - 1)] if len(optimizers) else np.nan
    longest = process.longest if process.optimizations else None
    return next((one for one in process.optimizations if one.optimizer == made), longest)


def _holds(training: Process, optimization: Optimization) -> bool:
    return any(one.optimizer == optimization.optimizer for one in training.optimizations)


def _steps_of_others(process: Process, training: str, step: int) -> int:
    """How many of the process's steps before this one are those of other trainings than the named one."""
    own = [one for part in process.trainings if part.training == training for one in part.optimizations]
    others = ~np.isin(process.steps["optimizer"][:step], [one.optimizer for one in own])
    return int(others.sum())


def _is_policy(process: Process) -> bool:
    """Whether the loss is that of a policy, and no mask of pseudo-labels: it holds ratios to an older policy, or an
    entropy that it rewards, or the script speaks of advantages."""
    seen = looks(process)
    if seen is not None and (np.isfinite(seen.ratio_one).any() or (seen.punished < 0).any()):
        return True
    return bool(process.locations("advantage"))


def _learns_nothing(process: Process, optimization: Optimization, first: float, limits: Limits) -> bool:
    """Whether the gradients are zero in so many steps, or of those at which their norm was measured, since step
    `first` of the process."""
    share, later = limits["share"], np.arange(len(process.steps)) >= first
    of_it = process.steps["optimizer"] == optimization.optimizer
    own = later[of_it] if of_it.sum() == len(optimization.steps) else np.ones(len(optimization.steps), dtype=bool)
    norm, zeros = optimization.steps["grad_norm"][own], optimization.steps["grads_zero"][own]
    known, looked = np.isfinite(norm), np.isfinite(zeros)
    measured = known.any() and (norm[known] == 0).mean() >= share
    return bool(measured or (looked.any() and (zeros[looked] > 0).mean() >= share))
