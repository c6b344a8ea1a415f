"""Advantages that are all zero: what a policy's loss weighs its choices by tells it nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.policies import losses, prompted_rewards, repeated_answers
from tracelyze.analyzers.evidence import pictures, script_lines, timing
from tracelyze.analyzers.evidence.candidates import coarse_rewards
from tracelyze.analyzers.evidence.datasets import equal_rewards, rounded_advantages
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Location

_SPREAD = "print(rewards.view(-1, group).std(dim=1))   # zero: nothing to learn from that group"
_BATCHES = 3  # looks at batches of completions: one may repeat its rows by chance, where the policy is all but certain


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
        training = timing.training_with(process, optimization)
        before = _steps_of_others(process, training, int(steps[0]))
        begin, end = 1 if zero[0] else begin - before, end - before
    if zero[-1] and optimization is not None:  # looks get rarer: the last one need not be at the last step
        end = max(end, len(optimization.steps))
    repeated = repeated_answers.of(process) if zero.all() else None
    alike = _completions_alike(process, steps[zero]) if repeated is None else 0
    seen = process.site(rows[0]["site"])
    seen = seen or (optimization.backward_location if optimization is not None else None)
    computed = script_lines.only(process, "advantage")
    equal = None if alike or repeated else equal_rewards.at(process, steps[zero])
    rewards = (
        None if alike or computed or repeated else coarse_rewards.within(process, script_lines.rewarding(process, seen))
    )
    joins = prompted_rewards.joining(process, rewards)
    fix, code = _remedy(process, alike, equal, rewards)
    if repeated is not None:
        fix, code = repeated.fix, repeated.code
    if joins is not None:
        fix = (
            "Print the rewards of a few groups. If all are equal, see whether the prompts themselves hold what is "
            f"rewarded: line {joins.line} joins them with the completions. Then look at the completions alone."
        )
    return Finding(
        rule=rule,
        severity="warning",
        confidence="certain" if signed and not rounded else "likely",
        title=f"The policy's advantages are {'rounding errors' if rounded else 'all zero'} in "
        + share_of(share, "steps")
        + (f" ({training})" if training else ": nothing to learn from"),
        summary=f"In {int(zero.sum())} of {len(zero)} steps checked, every weight that multiplies the "
        f"log-probabilities in the policy loss is {_what_they_are(rounded, learns)}{_why(equal, alike)}"
        + (repeated.why if repeated else ""),
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=end,
        trainings=[training] if training else [],
        evidence=[
            Evidence("steps whose weights are all zero", share, "share", *limits.against("share")),
            Evidence("steps looked at", len(zero), "steps", *limits.against("steps"), role="basis"),
        ],
        location=(repeated.place if repeated else None)
        or (_line_that_writes(process) if alike else equal and equal.place)
        or computed
        or joins
        or rewards
        or seen,
        seen_at=seen,
        charts=pictures.loss(optimization, [Mark(float(begin), "no advantage")]) if optimization is not None else [],
        false_alarm="Groups that are drawn again until they differ.",
        verify="Record the run again: in most steps some advantages differ from zero.",
    )


def _what_they_are(rounded: str, learns: bool) -> str:
    """What the weights are where they say nothing. `rounded`: the largest of the weights, where rounding made some of
    them differ from zero; else empty."""
    if rounded:
        return (
            f"what rounding leaves of zero, or an epsilon makes of that ({rounded} at most). It says nothing of what "
            "was answered."
        )
    others = ": what gradients there are come of other terms, such as entropy" if learns else ""
    return f"exactly zero, and so is the policy's gradient{others}."


def _why(equal: equal_rewards.EqualRewards | None, alike: int) -> str:
    """Sentences on the rewards, and on completions that are `alike` so many times over."""
    rewards = (
        f" The rewards are all equal: every element of {equal.name} is {number(equal.value)}, whatever was answered."
        if equal
        else ""
    )
    completions = (
        f" In the batches looked at each row stands {alike} times over, or more: all completions of a prompt are one "
        "and the same. Greedy decoding makes them so, or a policy that has become certain."
        if alike
        else ""
    )
    vanish = " Advantages are differences within a group, or from a baseline: they vanish if all rewards are equal."
    return rewards + vanish + completions


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
    if equal:
        what = f"line {equal.place.line} compares" if compared and equal.place else f"gives {equal.name}"
        fix = (
            f"Look at what {what}: everything gets {number(equal.value)}. If it is right, the prompts are all too easy "
            "or too hard: choose others, or reward a part of the task."
        )
        return fix, compared or _SPREAD
    fix = (
        "Print the rewards of a few groups. If all are equal: look at the reward function; if prompts are all too "
        "easy or too hard, choose others, draw more completions per prompt, or reward a part of the task."
    )
    if rewards:
        return fix, f"print(rewards[:8])  # in {rewards.function}, above its return: are they all equal?"
    return fix, _SPREAD


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


def _of_step(process: Process, step: float) -> Optimization | None:
    """The optimizer that made this step of the process; the one with the most steps where that is not known."""
    optimizers = process.steps["optimizer"]
    made = optimizers[min(int(step), len(optimizers) - 1)] if len(optimizers) else np.nan
    longest = process.longest if process.optimizations else None
    return next((one for one in process.optimizations if one.optimizer == made), longest)


def _steps_of_others(process: Process, training: str, step: int) -> int:
    """How many of the process's steps before this one are those of other trainings than the named one."""
    own = [one for part in process.trainings if part.training == training for one in part.optimizations]
    others = ~np.isin(process.steps["optimizer"][:step], [one.optimizer for one in own])
    return int(others.sum())


def _is_policy(process: Process) -> bool:
    """Whether the loss is that of a policy, and no mask of pseudo-labels: it holds ratios to an older policy, or an
    entropy that it rewards, or the script speaks of advantages."""
    seen = losses.looks(process)
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
