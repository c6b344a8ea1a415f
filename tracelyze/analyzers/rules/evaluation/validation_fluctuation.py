"""validation-fluctuation: the validation loss jumps from pass to pass far more than training explains."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed import normalisation_layers as layers
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.signatures import restless_validation
from tracelyze.diagnosis import Evidence, Finding, Mark, Setting
from tracelyze.formatting import listed, number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.signatures.restless_validation import Part, Restlessness


_CAUSE = (
    "The model's BatchNorm takes {} of its running statistics from the last batch alone, so in eval mode the model "
    "depends on which batch that was."
)
_FIX_MOMENTUM = (
    "Lower the momentum of BatchNorm to 0.1, its default: in PyTorch it is the weight of the newest batch. What is "
    "0.99 in Keras is 0.01 here."
)


def check(process: Process, limits: Limits) -> Outcome:
    """Noise of the validation curve without its trend, against its level and against training's noise."""
    seen = restless_validation.measure(process)
    if isinstance(seen, (Passed, Skipped)):
        return seen
    momentum = _momentum(process, limits)
    ratio = "ratio" if momentum is None else "caused"
    swings = momentum is not None and seen.relative > limits["swings"] and seen.in_unit > limits["ratio"]
    if swings and not seen.ratio > limits[ratio]:
        seen, ratio = seen.of_units, "ratio"
    if not (seen.ratio > limits[ratio] and seen.relative > limits["relative"]):
        return Passed(f"validation losses vary by {percent(seen.relative)} from pass to pass")
    if seen.samples is not None and seen.samples < limits["samples"]:
        part = restless_validation.part(process, limits)
        if part is not None:
            return [_of_a_part(process, seen, part, limits)]
        return Passed(
            f"validation losses fluctuate, but over {number(seen.samples)} samples per pass that is sampling noise"
        )
    optimization = process.longest
    begin = int(seen.steps[0])
    made, edit, code = layers.with_default_momentum(process)
    return [Finding(
        rule=RULE.id,
        severity="warning",
        confidence="possible" if momentum is None else "likely",
        title=f"The validation loss fluctuates by {percent(seen.relative)} from pass to pass",
        summary=(
            f"From one validation to the next the loss moves by {percent(seen.relative)} of its level, while "
            f"{seen.of_training}. Picking the best checkpoint on such a curve is luck."
        )
        + (f" {_CAUSE.format(percent(momentum))}" if momentum is not None else ""),
        fix=_FIX_MOMENTUM + (f" Lines {listed([one.line for one in made], 4)} set it." if len(made) > 1 else "")
        if momentum is not None
        else (
            "Check that validation runs in eval mode, on the same samples every time, and that it averages over "
            "all of them; then enlarge the validation set, or average weights or metrics over several passes."
        ),
        first_step=begin,
        last_step=int(seen.steps[-1]),
        evidence=[
            *restless_validation.evidence(seen, limits, ratio),
            Evidence(
                "samples per validation pass", seen.samples, "samples", *limits.against("samples")
            ),
        ],
        fix_code="" if momentum is None else code,
        diff=edit if momentum is not None else None,
        location=None if momentum is None else made[0] if made else layers.normalisation(process),
        setting=None if made else _setting(process, momentum),
        charts=pictures.loss(optimization, [Mark(float(begin), "first validation")]),
        false_alarm="A small validation set, or early epochs in which the model still learns in jumps.",
    )]  # fmt: skip


def _of_a_part(process: Process, seen: Restlessness, part: Part, limits: Limits) -> Finding:
    first = int(seen.steps[0])
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Each validation uses {part.taken} of {part.batches} batches, different ones each time",
        summary=(
            f"The validation loader shuffles and has {part.batches} batches of {part.size}, of which a pass takes "
            f"{part.taken}: each pass measures different samples, and its loss moves by {percent(seen.relative)} of "
            "its level. The draw then decides which checkpoint is best and when to stop."
        ),
        fix="Average over the whole loader. If that takes too long, use the same part each time, without shuffling.",
        fix_code="for x, y in val_loader:  # in place of next(iter(val_loader))\n    ...",
        first_step=first,
        last_step=int(seen.steps[-1]),
        evidence=[
            Evidence("batches of the loader over those taken", part.batches / part.taken, "times",
                     *limits.against("part")),
            Evidence("fluctuation from pass to pass", seen.relative, "share", *limits.against("relative"), of="level"),
            Evidence("samples per validation pass", seen.samples, "samples", role="basis"),
        ],
        location=part.location,
        charts=pictures.loss(process.longest, [Mark(float(first), "first validation")]),
        false_alarm="A quick check on a few batches that decides nothing.",
    )  # fmt: skip


def _momentum(process: Process, limits: Limits) -> float | None:
    """The momentum of the validated models' BatchNorm, where their running statistics are all but the last batch's."""
    validated = process.evals["model"][validation.passes(process)] if process.evals.has("model") else ()
    known = [row["momentum"] for row in process.models.records() if row["model"] in validated]
    return max((one for one in known if one is not None and one >= limits["momentum"]), default=None)


def _setting(process: Process, momentum: float | None) -> Setting | None:
    """The momentum as a setting of the script, where no optimizer has the same, whose line that might be."""
    options = [json.loads(str(one.facts.get("options") or "{}")) for one in process.optimizations]
    if momentum is None or any(isinstance(one, dict) and one.get("momentum") == momentum for one in options):
        return None
    return Setting(("momentum",), (momentum,), "0.1", called="^momentum ")


RULE = Rule(
    id="validation-fluctuation",
    family="evaluation",
    severity="warning",
    title="Validation losses fluctuate",
    about="A validation curve that moves far more than training measures something other than the model.",
    check=check,
    verify="Record the run again: the validation loss moves about as much as the training loss.",
    absent="The run has no validation loss.",
    needs=(("evals.loss", "steps.loss"),),
    thresholds=(
        Threshold("relative", 0.05, "share", "simulation: noise of 1% never and of 3% in 2 of 100 runs exceeds it"),
        Threshold("ratio", 6, "", "simulation: training noise of 10% per step, averaged between validations"),
        Threshold("momentum", 0.9, "", "derived: running statistics of 1.2 batches, (2 - momentum) / momentum"),
        Threshold("caused", 2, "", "derived: on the same samples each time, validation is calmer than training is"),
        Threshold("part", 4, "times", "derived: a quarter of the set varies by twice what the whole would"),
        Threshold("swings", 0.25, "share", "with such a momentum: 200 samples vary by a third of that"),
        Threshold("samples", 200, "samples", "the mean over 200 samples varies by 7% of one sample's spread"),
    ),
    not_when="Tiny validation sets, fewer than ten passes, several optimizers, validation by another measure.",
)
