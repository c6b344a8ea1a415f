"""unequal-microbatch-weights: means over very different numbers of targets are averaged as if they were alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.finetuning.unequal_microbatch_weights import divided, of_microbatches, per_step
from tracelyze.analyzers.rules.finetuning.unequal_microbatch_weights.of_microbatches import OF_TORCH, Means
from tracelyze.analyzers.script.loss import assignment, of_trainer
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Targets that count, micro-batch by micro-batch, in the steps of which all losses were looked at."""
    if len(process.optimizations) > 1:
        return Skipped(accumulation.SEVERAL_OPTIMIZERS, "not-applicable")
    optimization = process.optimizations[0]
    backwards = optimization.steps["backwards"]
    if not (backwards > 1).any():
        return Skipped("every step has one backward: nothing is accumulated", "not-applicable")
    if accumulation.one_each(optimization)[backwards > 1].mean() < limits["share"]:
        return Skipped(accumulation.NOT_PER_BATCH, "not-applicable")
    means = of_microbatches.of_means(optimization)
    steps, looked = means.steps, means.looked
    if looked < limits["steps"]:
        return Skipped(f"all losses of {plural(looked, 'step')} were looked at: too few to compare micro-batches")
    if len(steps) < max(limits["share"] * looked, limits["steps"]):
        return Passed("the losses of a step are weighed against each other: they are no means that count alike")
    weights = np.array([max(counts) / max(min(counts), 1.0) for counts in steps])
    middle = int(np.argsort(weights)[(len(weights) - 1) // 2])
    apart = float(weights[middle])
    if apart < limits["apart"]:
        return Passed(f"the micro-batches of a step hold alike numbers of targets, within a factor of {number(apart)}")
    return [_finding(optimization, means, steps[middle], apart, limits)]


def _finding(optimization: Optimization, means: Means, middle: list[float], apart: float, limits: Limits) -> Finding:
    """`middle`: the targets of the micro-batches of the median step, which are `apart` by this factor."""
    steps = means.steps
    off = [abs(count / sum(counts) - 1 / len(counts)) * len(counts) for counts in steps for count in counts]
    most = max(max(counts) / max(min(counts), 1.0) for counts in steps)
    called = loss_calls.only_place(optimization.process, OF_TORCH)
    written = assignment.of(optimization.process, optimization.loss_location)
    begins = called or written or of_trainer.mean(optimization) or optimization.loss_location
    own = divided.by_own_count(optimization.process, begins, "tokens", means.divided)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"A target in a small micro-batch weighs {number(apart)} times as much as one in a large one",
        summary=(
            f"In the median step the smallest micro-batch holds {min(middle):.0f} targets that count, and the largest "
            f"{max(middle):.0f}. Each loss is a mean over its own targets, and their gradients are added with equal "
            f"weight: a target in the smallest weighs {number(apart)} times as much as one in the largest (in one step "
            f"{number(most)} times). The update is not that of one large batch."
        ),
        fix="Sum the losses of the targets in each micro-batch, and divide by the number of targets of the whole step."
        + (per_step.divided_by(optimization, len(middle)) if means.divided else ""),
        fix_code=per_step.example(optimization, begins, own, len(middle) if means.divided else 0),
        first_step=timing.step_at(optimization, 0),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence(
                "most targets of a micro-batch over fewest, in the median step",
                apart,
                "times",
                *limits.against("apart"),
            ),
            Evidence(
                "distance of a micro-batch's weight from its share of the targets, in the mean",
                float(np.mean(off)),
                "share",
            ),
            Evidence(
                "steps whose losses were all looked at", len(steps), "steps", *limits.against("steps"), role="basis"
            ),
        ],
        location=own.place if own else begins,
        seen_at=optimization.loss_location,
        charts=pictures.loss(optimization),
        false_alarm="Sequences that are meant to count alike, whatever their length.",
    )


RULE = Rule(
    id="unequal-microbatch-weights",
    family="fine-tuning",
    severity="warning",
    title="Micro-batches of different sizes count equally",
    about="The mean of means over unequal numbers of targets is not the mean over all: short answers weigh more.",
    check=check,
    verify="Record the run again: losses are sums over the targets, divided by the number of the step's.",
    excluded=(
        "Several losses of one batch: every backward belongs to a batch of its own.",
        "Losses that are sums: each is a mean over its own targets.",
    ),
    needs=(("loss_calls.ignored", "steps.backwards"), ("counted_targets.targets", "steps.backwards")),
    thresholds=(
        Threshold("apart", 2.0, "times", "derived: within a factor of two the weights are off by a third at most"),
        Threshold("steps", 3, "steps", "of one or two the lengths may be odd"),
        Threshold("share", 0.9, "share", "the last window of an epoch may be shorter"),
    ),
    not_when="Equal lengths, sums divided by the tokens of the step, several losses per batch, several optimizers.",
    references=("https://huggingface.co/blog/gradient_accumulation",),
)
