"""batchnorm-small-batch: BatchNorm takes its statistics of a few values, or of micro-batches while many accumulate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed import normalisation_layers as layers
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, OneOutcome, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.analyzers.rules.evaluation.batchnorm_small_batch import batch_sizes, group_norms
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """BatchNorm in train mode, several backwards per step, few samples in each."""
    kinds = [kind for kind in process.models.text("sensitive") if kind]
    if not any("BatchNorm" in kind for kind in kinds):
        return Skipped("the model has no BatchNorm", "not-applicable")
    if any("SyncBatchNorm" in kind for kind in kinds) or len(kinds) > 1:
        return Skipped(
            "several models were called, or BatchNorm runs over all ranks, so its batch is not known", "not-applicable"
        )
    return combine(batch_sizes.with_size(_check(one, limits), one) for one in process.optimizations)


def _check(optimization: Optimization, limits: Limits) -> OneOutcome:
    steps = optimization.steps
    known = (steps["backwards"] > 0) & (steps["batch_size"] > 0) & (steps["modules_sensitive"] > 0)
    if known.sum() < limits["steps"]:
        return Skipped(f"fewer than {limits['steps']:.0f} steps whose batch and modes are known")
    backwards, size = (np.median(one[known]) for one in (steps["backwards"], steps["batch_size"] / steps["backwards"]))
    all_in_train = (steps["modules_in_train"] == steps["modules_sensitive"])[known].mean() >= limits["share"]
    if all_in_train and size == 1 and (gap := batch_sizes.gap(optimization, limits)) is not None:
        return _of_one_sample(optimization, *gap, limits)
    if all_in_train and (few := batch_sizes.few_values(optimization, limits)) is not None:
        return _noise(optimization, *few, float(size), limits)
    shown = plural(int(size), "sample")
    if backwards < limits["backwards"] or size > limits["samples"] or not all_in_train:
        return Passed(f"{shown} per forward, {plural(int(backwards), 'backward')} per step")
    made = group_norms.in_place(optimization.process, layers.normalisation(optimization.process))
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"BatchNorm sees {shown} at a time, although a step accumulates {backwards:.0f} batches",
        summary=(
            f"Gradients are accumulated over {backwards:.0f} micro-batches, but BatchNorm normalises {shown} at a "
            "time: its batch statistics are noisy, and so are the running statistics that validation uses. "
            "Accumulation makes the batch larger for the optimizer, not for BatchNorm."
        ),
        fix=f"{group_norms.FIX}{batch_sizes.said_of_size(optimization, size, made and made.place)}.",
        fix_code=made.code if made else group_norms.CODE,
        first_step=timing.step_at(optimization, int(np.argmax(known))),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("samples per forward", float(size), "", *limits.against("samples"), role="most"),
            Evidence("backwards per step", float(backwards), "", *limits.against("backwards")),
        ],
        location=made.place if made else batch_sizes.batch_location(optimization, float(size)),
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization),
        false_alarm="Samples that hold very many positions each, whose statistics are good enough.",
    )


def _of_one_sample(optimization: Optimization, there: float, here: float, limits: Limits) -> Finding:
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title="BatchNorm trains on one sample at a time but validates with averages over all",
        summary=(
            "Training batches hold 1 sample, so BatchNorm normalises each by its own mean and variance. In eval mode "
            "it uses averages of these, which fit no single sample: from the first validations on, the loss is "
            f"{number(there)} in validation and {number(here)} in training just before."
        ),
        fix="Use larger batches, or a norm that works on one sample: InstanceNorm, GroupNorm or LayerNorm.",
        fix_code=group_norms.CODE,
        first_step=1,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("samples per forward", 1, "samples"),
            Evidence("validation loss over training loss", there / here, "times", *limits.against("gap")),
        ],
        location=batch_sizes.batch_location(optimization, 1.0, ""),
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization),
        false_alarm="A validation set much harder than the training data.",
    )


def _noise(optimization: Optimization, layer: str, values: float, samples: float, limits: Limits) -> Finding:
    exact = " With two values, one becomes +1 and the other -1: only their order is left." if values == 2 else ""
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"BatchNorm takes mean and variance from {values:.0f} values: its statistics are noisy",
        summary=(
            f"Forwards in training hold {samples:.0f} samples, and {layer or 'a BatchNorm layer'} normalises each "
            f"channel by the mean and variance of {values:.0f} values.{exact} The output for one sample depends on "
            "which others share its batch, and the running averages used in validation fit badly."
        ),
        fix="Use larger batches, GroupNorm or LayerNorm, or keep BatchNorm in eval mode when fine-tuning.",
        fix_code=group_norms.larger_batches(optimization, samples),
        first_step=1,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("values per channel", values, "values", *limits.against("values"), role="most"),
            Evidence("samples per forward", samples, "samples"),
        ],
        location=batch_sizes.batch_location(optimization, samples, layer),
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization),
        false_alarm="A model designed this way, whose validation uses batch statistics as well.",
    )


RULE = Rule(
    id="batchnorm-small-batch",
    family="evaluation",
    severity="warning",
    title="BatchNorm on tiny batches",
    about="BatchNorm's statistics come from one micro-batch, however many are accumulated per step.",
    check=check,
    settings=("per_device_train_batch_size",),
    verify="Compare the validation loss before and after. Another norm may want another learning rate.",
    absent="The model has no module that depends on its mode, as BatchNorm does.",
    needs=(("steps.batch_size", "steps.modules_in_train", "models.sensitive"),),
    thresholds=(
        Threshold("samples", 2, "samples", "Wu and He 2018, Group Normalization: ImageNet error 10 points higher at 2"),
        Threshold("backwards", 4, "", "accumulation that is meant to make the batch several times larger"),
        Threshold("values", 4, "values", "derived: the variance of four values is off by 80%, sqrt(2 / 3), of itself"),
        Threshold("gap", 3, "times", "derived: data that were held out cost more, but not three times from the start"),
        Threshold("first", 2, "validations", "one may come before the averages have settled"),
        Threshold("before", 50, "steps", "of one sample each, whose losses vary"),
        Threshold("looks", 2, "measurements", "one of them may be the last batch of an epoch"),
        Threshold("steps", 10, "steps", "a first try is no habit"),
        Threshold("share", 0.9, "share", "of the steps with all mode-sensitive modules in train mode"),
    ),
    not_when="BatchNorm in eval mode, SyncBatchNorm, GroupNorm and LayerNorm, few samples of many positions each "
    "without accumulation.",
    references=("https://arxiv.org/abs/1803.08494",),
)
