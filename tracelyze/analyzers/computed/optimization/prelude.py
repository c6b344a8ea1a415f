"""What happened right before a loss stopped being a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.gradients import misplaced_clips
from tracelyze.analyzers.evidence import epochs, timing
from tracelyze.analyzers.script.loss import broken_operation
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

WINDOW = 200  # steps before, from which the usual level is taken
FEWEST = 10  # steps: a median of fewer is no usual level
HUGE = 1e15  # of a norm: a ten-thousandth of what float32 bears
LEAP = 10  # times the median: an order of magnitude is beyond the tails of losses and gradient norms


def outgrown(optimization: Optimization, row: int) -> float | None:
    """The largest gradient norm right before this step, if the next one may leave float32: its squares are added up in
    float32, which ends at 3.4e38, so a norm is infinite from 1.8e19 on although every gradient is a number."""
    past = optimization.steps["grad_norm"][max(0, row - FEWEST) : row]
    past = past[np.isfinite(past)]
    return float(past.max()) if len(past) and past.max() >= HUGE else None


def looked_at(optimization: Optimization) -> np.ndarray:
    """Steps whose gradients were looked at, shape [steps]: on a CPU not every step's are."""
    return optimization.steps.known("grad_norm") | optimization.steps.known("grads_nonfinite")


def _at_the_start(optimization: Optimization, first: int) -> str:
    """What to look at where there were next to no losses before."""
    later = optimization.steps["loss"][first:]
    if np.isfinite(later).any():
        if int((~np.isfinite(later) & optimization.steps.known("loss")[first:]).sum()) == 1:
            return "Later losses are finite: the weights are whole. Look at the batch of this one."
        return "Losses in between are finite: the weights are whole. What do the batches without one have in common?"
    if first == 0:
        return "It is the first loss, before any step: look at inputs, initial weights and the loss function."
    if epochs.are_counted(optimization.process):
        at = timing.step_at(optimization, first)
        within = f"It became so in a step of epoch {at:,}: the log has one value for each epoch."
        return f"{within} {_level(optimization, first)} Losses of single steps would tell what came before."
    since = f"It happened after {plural(first, 'step')}"
    return f"{since}: look at inputs, initial weights, learning rate and the loss function."


def what_moved_first(optimization: Optimization, first: int) -> str:
    """A sentence on what moved first: a non-finite gradient, the gradient norm, the loss itself, or nothing."""
    steps = optimization.steps
    begin = timing.step_of_process(optimization, first)
    events = timing.events_of(optimization, "nonfinite-gradient")
    early = [row for row in events if row["step"] is not None and row["step"] + 1 < begin]
    early_at = _own_number(optimization, first, early[0]["step"]) if early else 0
    grown = outgrown(optimization, next((int(i) for i in np.flatnonzero(np.isinf(steps["grad_norm"][:first]))), first))
    if grown is not None:
        return f"The gradient norm had grown to {number(grown)} before: training blew up."
    if early and any(misplaced_clips.spread(optimization, row) for row in range(first)):
        return f"Gradients were not finite first, at step {early_at:,}."
    if early:
        return f"The gradient of {early[0]['name'] or 'a parameter'} was not finite first, at step {early_at:,}."
    broken = broken_operation.seen(optimization.process, begin)
    risen = _risen(optimization, first)
    if broken.operations or broken.target:
        lines = broken_operation.logarithms(optimization.process) if broken.target == "-Inf" else ""
        return f"{broken.told}{lines} {risen or _level(optimization, first)}"
    if risen:
        return risen.removesuffix(".") + ": training blew up."
    if steps["autocast"][first] == 1 and np.isinf(steps["loss"][first]):
        return "Under float16 autocast nothing above 65,504 exists: compute this loss in float32."
    rate = steps["lr"][max(0, first - 1) : first + 1]
    if len(rate) == 2 and rate[1] > 2 * rate[0] > 0:
        return f"The learning rate rose {number(rate[1] / rate[0])}-fold at that step."
    if first < FEWEST:
        return _at_the_start(optimization, first)
    no_number = np.flatnonzero(
        (steps.known("grad_norm") & ~np.isfinite(steps["grad_norm"]) & ~timing.skipped(optimization))[:first]
    )
    if len(no_number):
        return f"The gradient norm was not finite first, at step {timing.step_at(optimization, int(no_number[0]))}."
    level = _level(optimization, first)
    if broken.weight:
        return f"{broken.told} {level} So the gradients of the step before were not finite, or far too large."
    if not looked_at(optimization)[first - 1]:
        return (
            f"{level} The gradients of the step before were not looked at: one batch or one operation made this loss "
            "NaN or Inf, or the gradients one step earlier (sqrt or norm at 0), and so the weights."
        )
    return f"Neither loss nor gradient norm leapt before: one batch or one operation made it. {level}"


def _own_number(optimization: Optimization, first: int, done: int) -> int:
    """The number of the step of this training, before row `first`, at which gradients were not finite: by the steps,
    where they say so; else from how many of its process were done, as an event has it."""
    bad = np.flatnonzero(np.nan_to_num(optimization.steps["grads_nonfinite"][:first]) > 0)
    return timing.step_at(optimization, int(bad[0])) if len(bad) else done + 1


def _risen(optimization: Optimization, first: int) -> str:
    """A sentence on what stood an order of magnitude above its median right before; empty where nothing did."""
    for column, name in (("grad_norm", "gradient norm"), ("loss", "loss")):
        past = optimization.steps[column][max(0, first - WINDOW) : first]
        past = past[np.isfinite(past)]
        if len(past) < FEWEST:
            continue
        usual, highest = float(np.median(past)), float(past[-3:].max())
        if usual > 0 and highest > LEAP * usual:
            return f"The {name} rose {number(highest / usual)}-fold over its median right before."
        if usual < 0 and highest - usual > LEAP * -usual:  # a likelihood's: no multiple of it says anything
            return f"The {name} rose from {number(usual)}, its median, to {number(highest)} right before."
    return ""


def _level(optimization: Optimization, first: int) -> str:
    """A sentence on where the loss stood before."""
    past = optimization.steps["loss"][max(0, first - WINDOW) : first]
    past = past[np.isfinite(past)]
    if not len(past):
        return "No loss before it is known."
    usual = f" (median of the {len(past)} losses up to it: {number(float(np.median(past)))})"
    usual = usual if len(past) >= FEWEST else ""
    last = int(np.flatnonzero(np.isfinite(optimization.steps["loss"][:first]))[-1])
    at = timing.step_at(optimization, last)
    when = "One step earlier" if timing.step_at(optimization, first) - at == 1 else f"At step {at:,}"
    return f"{when} the loss was {number(float(past[-1]))}{usual}."
