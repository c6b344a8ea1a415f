"""irregular-accumulation: some steps sum more, or fewer, micro-batches than their losses are divided by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script.editing.remade import windows as windows_of
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask


def check(process: Process, limits: Limits) -> Outcome:
    """Steps with more or fewer backwards, one per batch, than the constant that all losses are divided by."""
    if len(process.optimizations) > 1:
        return Skipped(accumulation.SEVERAL_OPTIMIZERS, "not-applicable")
    optimization = process.optimizations[0]
    steps = optimization.steps
    backwards, divisor = steps["backwards"], steps["loss_divisor"]
    usual = float(np.nanmedian(divisor)) if np.isfinite(divisor).any() else 1.0
    regular = (backwards == usual) & (divisor == usual)
    if not (backwards > 1).any():
        return Skipped("every step has one backward: nothing is accumulated", "not-applicable")
    if usual < 2 or regular.sum() < limits["steps"]:
        return Passed("losses are not divided by the number of backwards per step, so nothing is averaged that way")
    stepped = (divisor == usual) & ~timing.skipped(optimization)
    long = (backwards > limits["off"] * usual) & stepped
    short = accumulation.cut_short(optimization, usual / limits["off"]) & stepped
    enough = max(limits["steps"], limits["share"] * len(backwards))
    if max(long.sum(), short.sum()) < enough:
        more = f"{int(long.sum())} of {len(backwards):,} steps"
        return Passed(f"{plural(int(usual), 'backward')} per step, more in {more}")
    if not [site for site in process.locations("backward") if ".backward(" in site.source]:
        return Skipped("backward is called by a framework, which may normalise the loss by itself", "not-applicable")
    if long.sum() < enough:
        if accumulation.one_each(optimization)[short | regular].all():
            return [_finding(optimization, short, usual, True, limits)]
        return Skipped(f"{int(short.sum()):,} steps have fewer backwards, but {accumulation.NOT_PER_BATCH}")
    longer = f"{int(long.sum()):,} steps have more than the {usual:.0f} backwards that losses are divided by"
    if not accumulation.at_least_one_each(optimization)[long | regular].all():
        return Skipped(f"{longer}, but {accumulation.NOT_PER_BATCH}")
    watched = long & steps.known("grads_discarded") & steps.known("grads_cleared")
    if (watched & ((steps["grads_discarded"] > 0) | (steps["grads_cleared"] > 0))).any():
        return Passed(f"{longer}, but what was left over is cleared before they begin")
    if not watched.any():
        long &= ~accumulation.cleared_as_they_begin(optimization)
        if long.sum() < enough or not accumulation.cleared_after_steps_only(optimization):
            return Skipped(f"{longer}, but whether gradients were cleared within them was not watched")
    return [_finding(optimization, long, usual, watched.sum() >= limits["watched"], limits)]


def _finding(optimization: Optimization, windows: Mask, usual: float, sure: bool, limits: Limits) -> Finding:
    steps = optimization.steps
    begin = timing.step_at(optimization, int(np.argmax(windows)))
    backwards = steps["backwards"][windows]
    count, least, most = float(np.median(backwards)), int(np.min(backwards)), int(np.max(backwards))
    fewer = count < usual
    sums = f"{most}" if least == most else f"{least} to {most}"
    times = number(count / usual) if least == most else f"{number(least / usual)} to {number(most / usual)}"
    boundary = float((steps["loader_first"][windows] == 1).mean())
    matters = (name := str(optimization.facts.get("name") or "the optimizer")) in accumulation.SCALE_MATTERS
    cut = windows_of.short(optimization, usual) if fewer else None
    why, fix, code = cut or windows_of.long(optimization, usual, boundary > limits["boundary"])
    off, why_off = (1 / limits["off"] if fewer else limits["off"]), limits.source("off")
    return Finding(
        rule=RULE.id,
        severity="warning" if matters or windows.mean() >= limits["most"] else "info",
        confidence="certain" if sure else "likely",
        title=(
            f"{share_of(float(windows.mean()), 'steps').capitalize()} sum {sums} micro-batches "
            f"but divide by {usual:.0f}"
        ),
        summary=(
            f"Losses are divided by {usual:.0f}, but {int(windows.sum()):,} of {len(windows):,} steps, from step "
            f"{begin:,} on, sum {sums} backwards. {why} Their gradient is {times} times that of a full step"
            + (f", and with {name} so is the update." if matters else "")
            + (f"; {name} evens out a part of that." if accumulation.evens_out(name) else "." * (not matters))
        ),
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence(f"steps with {'fewer' if fewer else 'more'} backwards", float(windows.mean()), "share",
                     *limits.against("share")),
            Evidence("backwards per such step over the divisor", count / usual, "times", off, why_off, role="basis"),
            Evidence("of these steps, the first of an epoch", boundary, "share", role="basis"),
        ],
        location=windows_of.counted(optimization) or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.over_steps(
            optimization, "Backwards per step", "backwards", {"backwards": "backwards"},
            [Mark(float(begin), "fewer" if fewer else "more")],
        ),
        false_alarm="Windows of different length on purpose, with a loss that is not meant to be a mean.",
    )  # fmt: skip


RULE = Rule(
    id="irregular-accumulation",
    family="gradients",
    severity="warning",
    title="Accumulation windows differ in length",
    about="Dividing the loss by four gives the mean of four backwards. Seven give a gradient nearly twice as long.",
    check=check,
    verify="Record the run again: every step has as many backwards as its losses are divided by.",
    excluded=(
        "No clearing of leftovers before these steps was seen, or the only zero_grad stands right behind the step.",
        "Every backward belongs to a batch of its own: these are not several losses of one batch.",
    ),
    absent="The run does not accumulate gradients.",
    needs=(
        ("steps.backwards", "steps.loss_divisor", "steps.loader_batches", "steps.grads_discarded"),
        ("steps.backwards", "steps.loss_divisor", "steps.microbatches", "steps.grads_discarded"),
    ),
    thresholds=(
        Threshold("off", 1.25, "times", "derived: a learning rate is not tuned to within a quarter"),
        Threshold("share", 0.05, "share", "derived: with less, epochs are long and one step of each changes little"),
        Threshold("most", 0.5, "share", "of the steps: where most differ, no optimizer knows one usual gradient"),
        Threshold("steps", 5, "steps", "a few may be a warm-up or a restart"),
        Threshold("watched", 2, "steps", "to be certain: one may have begun before gradients were watched"),
        Threshold("boundary", 0.8, "share", "derived: by chance it would be the share of such steps itself"),
    ),
    not_when="Short windows at the end of an epoch, divisors that match the window, leftovers that are cleared, "
    "several losses per batch, several optimizers, frameworks.",
)
