"""loss-plateau: nothing was learned for nearly the whole run, at a loss that is not low."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.loss.loss_plateau import listed_names, not_carried_over
from tracelyze.analyzers.script.datasets import rows_apart
from tracelyze.analyzers.script.datasets.targets import drawn_anew
from tracelyze.analyzers.signatures import flat_losses
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

ANY = (
    "Print a few inputs with their targets: if they do not match, nothing can be learned. Then train on a single "
    "batch: if its loss does not fall to nearly nothing, look at the learning rate, and whether the optimizer holds "
    "the model's parameters. If it does, the model and its step work, which says nothing about the targets."
)
PAIRED = (
    "Print a few inputs with their labels, as they come out of the loader: what is read or sorted in two orders is "
    "paired wrongly. Then check that the model can overfit a single batch, and that its learning rate suits it."
)
LISTED = "Look each label up by the name of its file, or order both alike, such as by the numbers in the names."
PREFERENCE = (
    "Check that policy and reference are two models, that the optimizer holds the policy's parameters, that its "
    "learning rate is not too small, and that chosen and rejected answers differ."
)


def check(process: Process, limits: Limits) -> Outcome:
    """A loss that stays at the value of a guess, or does not improve while a metric is no better than at first."""
    optimization = process.longest
    reason = style.unjudgeable(optimization)
    if reason:
        return Skipped(reason)
    seen = (
        flat_losses.at_a_guess(optimization, limits)
        or flat_losses.settled(optimization, limits)
        or flat_losses.without_skill(process, limits)
    )
    never = not_carried_over.finding(optimization, RULE.id, limits) if seen is None else None
    if never is not None:
        return [never]
    if seen is None:
        known = np.isfinite(optimization.steps["loss"])
        if int(known.sum()) < limits["losses"]:
            return Skipped(
                f"{plural(int(known.sum()), 'loss')}: {limits['losses']:.0f} are needed to tell that nothing moves"
            )
        return Passed("the loss moved, or it stays at a level that nothing shows to be a bad one")
    affected = timing.numbers(optimization) >= seen.first
    loss = optimization.loss_location
    apart = None if seen.preference else rows_apart.of(process) or drawn_anew.of(process, loss)
    listed = listed_names.of(process) if apart is None and not seen.preference else None
    place = apart.place if apart else listed.place if listed else None
    fix = PREFERENCE if seen.preference else PAIRED if seen.settled else ANY
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence=seen.confidence,
            title=f"Nothing is learned: the loss stands at {number(seen.level)}{seen.named}",
            summary=seen.summary + (apart.said() if apart else listed.said() if listed else ""),
            fix=(apart.fix if apart else LISTED if listed else "") or fix,
            fix_code=(apart.example if apart else listed.example if listed else "") or flat_losses.ONE_BATCH,
            first_step=seen.first,
            last_step=timing.last_step(optimization),
            evidence=[
                Evidence(
                    "level of the loss", seen.level, "", seen.guess, "the loss of a guess, to 1%", role="expected"
                ),
                Evidence(
                    "tenth of the run farthest from a guess", seen.change, "share", *limits.against("near"), role="most"
                )
                if seen.guess is not None
                else Evidence("change since then", seen.change, "share", *limits.against("standing"), role="most"),
                *([Evidence(seen.metric, seen.value)] if seen.metric else []),
            ],
            cost=timing.cost_of(optimization, affected),
            location=place or loss,
            diff=apart.diff if apart else None,
            seen_at=loss if place else None,
            charts=pictures.loss(optimization, [Mark(float(seen.first), "plateau")]),
            false_alarm="A run that was stopped during warm-up, or a task with nothing to learn.",
        )
    ]


RULE = Rule(
    id="loss-plateau",
    family="loss",
    severity="warning",
    title="The loss does not improve",
    about="A model that gives every class the same probability has a characteristic loss: ln of the number of classes.",
    check=check,
    verify="Record the run again: the loss leaves its initial level within a few hundred steps.",
    absent="The run has no loss.",
    needs=(("steps.loss",), ("evals.loss",)),
    thresholds=(
        Threshold("near", 0.01, "share", "every tenth of the run within 1% of the guess: what learns leaves it sooner"),
        Threshold("losses", 30, "losses", "three in each tenth"),
        Threshold("steps", 500, "steps", "a warm-up lasts a few hundred steps"),
        Threshold("recorded", 300, "steps", "of a run whose number of classes is recorded, at a rate that has risen"),
        Threshold(
            "passes", 3, "passes", "of validation, all at the loss of a guess: one or two may come before it learns"
        ),
        Threshold(
            "learned", 0.5, "share", "of the loss of a guess, at the end of a training whose validation is above it"
        ),
        Threshold("silent", 100, "steps", "at which no input makes a difference, while each step moves the weights"),
        Threshold("same", 1e-5, "", "of the targets' deviation: a hundred times what float32 rounds away, and no more"),
        Threshold("looked", 10, "calls", "a last layer of zeros says the same at the first one or two"),
        Threshold("preference", 100, "steps", "of preference training, whose loss leaves ln 2 after a warm-up of tens"),
        Threshold("margin", 1e-3, "", "of preferences, by which it grew: it lowers the loss by half of that"),
        Threshold("standing", 0.05, "share", "less decrease from the second quarter to the last one is standing still"),
        Threshold("word_error", 0.8, "share", "four of five words wrong"),
        Threshold("better", 1.5, "", "accuracy over that at first: less than half as much again is no skill"),
        Threshold("evaluations", 5, "passes", "of the second half at least two"),
    ),
    not_when="Losses that converged, pretrained models, very short runs, warm-up.",
)
