"""input-normalization: what the model is given is far from zero mean and unit scale, and nothing brings it there, or
validation is given another range than training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.data.input_normalization import fitted, inputs, pixels, tensors, unread, validated
from tracelyze.analyzers.script import batch_lines
from tracelyze.analyzers.script.editing.remade import lines
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

INVARIANT = ("LBFGS",)  # curvature is what it measures
TOO_FAST = (
    "That layer's gradients are too large by the same factor. A learning rate that suits the other layers makes it "
    "diverge or kills its units; one that suits it is too slow for the others."
)
SATURATED = (
    "Such values saturate the tanh or sigmoid after it: it passes on little more than their sign, and hardly any "
    "gradient comes back."
)

FIX = (
    "For each feature or channel, subtract the mean and divide by the standard deviation of the training set; do the "
    "same in validation. BatchNorm as the first layer works, too."
)


def check(process: Process, limits: Limits) -> Outcome:
    """The first field of the batches, and the layer that meets it: loops and models may normalise it on the way."""
    if len(process.optimizations) != 1:
        return Skipped(
            style.several(process, "several optimizers train together, and which model gets the batch is not known"),
            "not-applicable",
        )
    apart = validated.finding(process.optimizations[0], RULE.id, limits)
    if apart is not None:
        return [apart]
    field = inputs.first_field(process)
    if field is None or field.batches < limits["looks"]:
        return Skipped("too few batches with a field of floating-point numbers were looked at")
    if field.scale < limits["scale"]:
        return Passed(f"field {field.name} of the batches: mean {number(field.mean)}, deviation {number(field.std)}")
    measured = f"field {field.name} of the batches has a scale of {number(field.scale)}"
    optimization = process.optimizations[0]
    if optimization.facts.get("name") in INVARIANT:
        return Passed(f"{measured}, which an optimizer that measures curvature takes into account")
    if any(row["step"] == 0 for row in process.tables["loads"].records()):
        return Passed(f"{measured}, but weights were loaded before the first step: they may have been made for that")
    met = inputs.first_layer(process)
    if met is None:
        return Skipped(f"{measured}, but the layer that meets it was not looked at")
    if met.normalised:
        return Passed(f"{measured}, but the model normalises by itself ({met.normalised})")
    stays = met.next_scale is None or met.squashed or met.next_scale >= limits["next"]
    if met.scale < limits["layer"] or not stays:
        return Passed(f"{measured}, but no longer on its way through the model ({met.name}: {number(met.scale)})")
    return [_finding(optimization, field, met, limits)]


def _finding(optimization: Optimization, field: inputs.Field, met: inputs.Met, limits: Limits) -> Finding:
    begin = timing.step_at(optimization, 0)
    process = optimization.process
    seen = process.location("loader") or batch_lines.entering(process) or optimization.backward_location
    bytes_ = field.holds_bytes
    columns = not bytes_ and field.shape.count("x") == 1
    given = field.called(by_loader=bool(optimization.loader)) + ", all columns together," * columns
    what = "pixels from 0 to 255 with " if bytes_ else ""
    code = (
        "x = (x.float() / 255 - 0.5) / 0.25"
        if bytes_
        else (
            "mean, std = x_train.mean(0), x_train.std(0)  # of the training set only; keep them with the model\n"
            "x = (x - mean) / (std + 1e-8)"
        )
    )
    made = batch_lines.sample(process, optimization.loader) or batch_lines.of_a_generator(process)
    made = made or batch_lines.of_tensors(process, optimization.loader or {}) or seen
    place = (pixels.line(process) if bytes_ else None) or made
    fix, code = FIX, lines.named(code, process, made)
    if made is not None and made == batch_lines.of_tensors(process, optimization.loader or {}):
        code = tensors.above(process, made, bytes_) or code
    if bytes_ and place is not None and place == pixels.line(process):
        fix, code = pixels.remedy(process, place)
    if field.shifted_bytes:
        fix, code = pixels.UNDIVIDED, pixels.UNDIVIDED_CODE
    unused = None if bytes_ or field.shifted_bytes else unread.remedy(process) or fitted.remedy(process)
    if unused is not None:
        fix, code, place = unused.fix, unused.code, unused.place
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Inputs are not normalised: {what}mean {number(field.mean)}, deviation {number(field.std)}"
        + " over all columns" * columns,
        summary=(
            f"{given} ran from {number(field.low)} to {number(field.high)} in {plural(field.batches, 'batch')}, "
            f"{pixels.said(field.shifted_bytes) if field.shifted_bytes else 'not normalised'}: the output of "
            f"{met.name} had values of {number(met.scale)} in an early step, where normalised input "
            "gives about one. " + (SATURATED if met.squashed else TOO_FAST)
        ),
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("root mean square of the field", field.scale, "", *limits.against("scale")),
            Evidence(f"root mean square of the output of {met.name}", met.scale, "", *limits.against("layer")),
            *(
                []
                if met.next_scale is None or met.squashed
                else [
                    Evidence(
                        "the same of the layer after it", met.next_scale, "", *limits.against("next"), role="basis"
                    )
                ]
            ),
        ],
        location=place,
        seen_at=seen,
        charts=pictures.loss(optimization, [Mark(float(begin), "raw inputs")]),
        false_alarm="Weights made for raw values and set by hand; forecasters meant to work at any scale (N-BEATS).",
    )


RULE = Rule(
    id="input-normalization",
    family="data",
    severity="warning",
    title="Inputs are not normalised",
    about="A layer's gradient grows with its input, and curvature with its square: raw values make the first layer "
    "too fast.",
    check=check,
    verify="Record the run again: the inputs have a mean near 0 and a deviation near 1.",
    absent="The batches hold no floating-point field.",
    needs=(("batches.std", "activations.std"),),
    thresholds=(
        Threshold("scale", 30, "", "derived: curvature along the first weights is 900 times that of unit scale"),
        Threshold("layer", 10, "", "measured: first layers of 140 trainings put out 0.2 to 4 from normalised input"),
        Threshold("next", 3, "", "measured: layers put out 0.1 to 1.5 from what was normalised in between"),
        Threshold("wider", 20, "", "of two sets, of which one is normalised: augmentation widens twofold at most"),
        Threshold("tied", 1.7, "", "of the same by their extremes: pixels become that much wider, or 7 times"),
        Threshold("apart", 1, "deviations", "of the narrower one: its middle lies elsewhere, as of what is raw"),
        Threshold("looks", 3, "batches", "one batch may be out of the ordinary"),
    ),
    not_when="Ids, one-hot vectors, masks, targets; values that the loop or the model normalises; loaded weights.",
    references=("https://doi.org/10.1007/978-3-642-35289-8_3",),
)
