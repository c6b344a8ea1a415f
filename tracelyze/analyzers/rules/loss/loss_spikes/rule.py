"""loss-spikes: the loss leaps far above its level and comes back slowly or in part, or does so at single batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.loss.loss_spikes import bad_batches, lasting_leaps, loss_leaps
from tracelyze.analyzers.signatures import evaluated_losses
from tracelyze.analyzers.signatures.spikes import remade_optimizers
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rules.loss.loss_spikes.bad_batches import BadBatches


def check(process: Process, limits: Limits) -> Outcome:
    """Leaps of the training loss that last for several steps, or of the evaluated losses of both splits."""
    optimization = process.longest
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    remade = remade_optimizers.of(optimization, limits["factor"])
    if remade is not None:
        return [remade_optimizers.finding(optimization, remade, RULE.id, limits)]
    rows = np.flatnonzero(np.isfinite(optimization.steps["loss"]) & ~timing.skipped(optimization))
    losses = optimization.steps["loss"][rows]
    found = lasting_leaps.of(process, rows, limits)
    if len(found) >= limits["spikes"]:
        return [lasting_leaps.finding(optimization, rows, found, RULE.id, limits)]
    batches = _single_batches(optimization, rows, limits)
    if batches is not None:
        return [bad_batches.finding(optimization, rows, batches, RULE.id, limits)]
    curves = evaluated_losses.evaluated(process)
    leaps = None if curves is None else loss_leaps.of_evaluations(curves, limits)
    if leaps is not None and curves is not None:
        return [lasting_leaps.of_evaluations(curves, leaps, RULE.id, limits)]
    if len(losses) < limits["losses"] and curves is None:
        return Skipped(f"{plural(len(losses), 'loss')}: {limits['losses']:.0f} are needed to know what is usual")
    return Passed(f"{plural(len(found), 'leap')} of the loss beyond its usual spread")


def _single_batches(optimization: Optimization, rows: NDArray[np.intp], limits: Limits) -> BadBatches | None:
    """Single batches whose loss leaps; None for batches so small that one sample makes their loss."""
    losses, sizes = optimization.steps["loss"][rows], optimization.steps["batch_size"]
    size = statistics.median(sizes[np.isfinite(sizes)]) if np.isfinite(sizes).any() else None
    if size is not None and size < limits["samples"]:
        return None
    batches = None
    if size is not None:
        batches = bad_batches.of_losses(losses, limits) or bad_batches.often(optimization, rows, losses, limits)
    if batches is None and not optimization.steps.has("grad_norm"):  # else gradient-spikes speaks of them
        batches = bad_batches.towering(losses, limits)
    return batches


RULE = Rule(
    id="loss-spikes",
    family="loss",
    severity="warning",
    title="The loss jumps up",
    about="If the loss jumps to a multiple of its level and takes long to come back, that progress is lost.",
    check=check,
    verify="Record the run again: the loss falls without jumps.",
    absent="The run has no loss.",
    needs=(("steps.loss",), ("evals.loss",)),
    thresholds=(
        Threshold("factor", 2, "", "of the training loss: batches of one size and kind do not double it for long"),
        Threshold("sigmas", 8, "", "deviations of the losses before: as for gradient norms"),
        Threshold(
            "width", 5, "steps", "derived: three of five independent losses beyond 2% of them come once in 12,500"
        ),
        Threshold("matters", 0.05, "share", "of the first tenth's losses: less than that was unlearned by a leap"),
        Threshold("start", 2, "", "times the first losses: confident answers to a new question are worse than guesses"),
        Threshold("harder", 1.25, "", "elements that modules put out, over those before: as for loss-divergence"),
        Threshold("spikes", 2, "", "one leap is often a matter of data or of a schedule that begins anew"),
        Threshold("share", 0.2, "share", "what fills more of the run is no leap but another level"),
        Threshold(
            "single", 3, "", "times the losses around, of a single batch: twice what a lasting leap needs, and more"
        ),
        Threshold(
            "apart",
            1.6,
            "",
            "logarithm of the lowest such height over that of the highest other one: heavy tails leave no gap",
        ),
        Threshold(
            "batches",
            5,
            "batches",
            "a few may meet a hard sample each; with five, a tail as heavy as t(2) seldom has the gap",
        ),
        Threshold("pair", 2, "batches", "with `height` and `gap`, which 203 healthy runs never have together"),
        Threshold("height", 50, "", "times the losses around: measured, two of a healthy training reach 16 with a gap"),
        Threshold("gap", 3, "", "between logarithms of the lowest of them and of the highest other one; healthy: 2.1"),
        Threshold("rare", 0.1, "share", "what more than one batch in ten is like is a second kind of data"),
        Threshold("often", 0.25, "share", "instead of `rare`, where their values lie far beyond those of all others"),
        Threshold("samples", 16, "samples", "in a batch: of fewer, one sample that is hard makes the loss"),
        Threshold("losses", 64, "losses", "two windows of the 32 losses that define what is usual"),
        Threshold(
            "evaluated", 3, "", "of evaluated training data: schedules that begin anew stay below (2.5, measured)"
        ),
        Threshold("together", 1.5, "", "validation rises with it; its loss is higher to begin with"),
        Threshold("long", 0.25, "share", "of the evaluations inside of a single leap: a quarter of the run was lost"),
        Threshold("regained", 1.3, "", "as for loss-divergence"),
    ),
    not_when="One bad batch, heavy-tailed noise, a single jump that is soon made up for, several optimizers, jumps at "
    "which samples get larger (a length curriculum).",
    references=("https://arxiv.org/abs/2204.02311",),
)
