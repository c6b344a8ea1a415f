"""constant-output: the model answers the same whatever it is given, and its loss is that of the best constant."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls, predictions
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.computed.optimization import rates, style
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped
from tracelyze.analyzers.rules.model.constant_output import (
    alike_in_validation,
    codes_without_gradient,
    drawn_codes,
    misread_memory,
    summed_divergence,
    turned_masks,
)
from tracelyze.analyzers.script.datasets import rows_apart
from tracelyze.analyzers.script.datasets.targets import drawn_anew
from tracelyze.analyzers.script.editing.remade import lines
from tracelyze.analyzers.script.loss import assignment
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.analyzers.signatures import flat_losses
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line
    from tracelyze.analyzers.computed.data.predictions import Constant
    from tracelyze.analyzers.recorded.run import Process

_TERMS = "print(error.item(), (weight * penalty).item())  # the terms of the loss, as they are added up"
BOTH_TERMS = (
    "Print both terms of the loss, and weigh them so that neither is a hundred times the other at the start: a mean "
    "over elements beside a mean, not beside a sum."
)
UNPAIRED_FIX = (
    "Print a few inputs with their targets: if they do not match, nothing can be learned. Then train on one small "
    "batch only. If its loss falls to nearly zero, the model is wired up and can learn, which says nothing about the "
    "targets: check how the training differs from this loop. If not, look for dead units, a learning rate that is too "
    "high, or a loss term that keeps the output constant."
)
GIVEN_UP_FIX = (
    "Give the other terms less weight, or reduce all alike: a sum over a batch counts for far more than a mean over "
    "elements. In a VAE, take both reconstruction and KL as sums per sample, and the mean of these over the batch."
)


def check(process: Process, limits: Limits) -> Outcome:
    """Deviation of the predictions from sample to sample, against that of the targets, late in the run."""
    if looks := turned_masks.found(process, limits):
        return [turned_masks.finding(process, looks, RULE.id, limits)]
    whole = process.whole
    if whole is not None and whole.tables["loss_calls"] is process.tables["loss_calls"]:
        return Skipped(style.several(whole, ""), "not-applicable")
    if len(process.optimizations) != 1:
        beside = "several optimizers: an output that is the same for all samples may be an equilibrium (GAN)"
        return Skipped(style.several(process, beside), "not-applicable")
    optimization = process.optimizations[0]
    if whole is not None and rates.is_one_layer(optimization):
        return Skipped("a layer trained beside a model: as a probe, it is to find out whether inputs say anything")
    if len(optimization.steps) < limits["steps"]:
        return Skipped(f"{plural(len(optimization.steps), 'step')}: the first ones begin with nearly constant outputs")
    found, judged = predictions.constant(process, optimization, limits)
    found = found or alike_in_validation.find(process, optimization, limits)
    if found is not None:
        return [_finding(process, found, limits)]
    if (drawn := drawn_codes.finding(process, optimization, RULE.id, limits)) is not None:
        return [drawn]
    if not judged:
        return Skipped("no loss whose predictions and targets could be compared sample by sample late in the run")
    return Passed(f"predictions differ from sample to sample at {plural(judged, 'line')} that computes a loss")


def _finding(process: Process, found: Constant, limits: Limits) -> Finding:
    line, stretch = found.line, found.late
    divergence = summed_divergence.of(process, line.location, line.rows) if line.location is not None else None
    codes = codes_without_gradient.of(process) if divergence is None and found.part is None else None
    instead = found.part is not None or found.first is not None or divergence is not None or codes is not None
    shares = line.function in predictions.SHARES
    classes = line.function in predictions.CLASSES
    ratio = alike_in_validation.ratio(found.validated or stretch)
    said = "" if percent(ratio) in ("0%", "under 0.1%") else f": predictions vary {percent(ratio)} as much as targets"
    apart = None if instead or process.whole else rows_apart.of(process) or drawn_anew.of(process, line.location)
    named = divergence or codes or (None if instead or apart else misread_memory.of(process))
    reason = ("other terms of the loss", "they count in its place")
    reason = reason if codes is None else ("gradient through the codes", "the choice of a code passes none on")
    fault = LossFault(
        title=f"All inputs get {'nearly ' * bool(said)}the same answer" + said,
        summary=(
            f"{alike_in_validation.where(found)} differ from sample to sample by {percent(ratio)} of what the targets "
            f"do: the model gives one answer to everything. {alike_in_validation.drawn(found)}The best such "
            f"answer is {'the frequencies of the classes' if classes else 'the mean of the targets'}"
            + (
                f". This is {percent(found.part)} of the whole loss: another term swamps it, by weight or units."
                if found.part is not None
                else f". The whole loss was {number(found.before)} halfway and is {number(found.after)} at the end."
                + alike_in_validation.given_up(found) * (named is None)
            )
            + (apart.said() if apart is not None else named.why if named is not None else "")
        ),
        remedy=named or _remedy(process, found, apart),
        evidence=[
            Evidence(
                f"deviation of the predictions over that of the targets{', in validation' * bool(found.validated)}",
                ratio,
                "share",
                found.bound,
                limits.source("shares" if shares else "varies"),
                role="most",
            ),
            *([Evidence(*reason, role="message")] if instead else []),
        ],
        false_alarm="Targets that the input says nothing about, such as random labels.",
        severity="warning",
        confidence="likely",
        counted="of them late enough to be judged, all like this",
    )
    finding = loss_calls.finding(process, line, stretch, limits, RULE.id, fault)
    first = int(line.rows[0]["step"]) + 1
    return replace(finding, first_step=first, traits=frozenset({"reason-known"})) if instead else finding


def _remedy(process: Process, found: Constant, apart: rows_apart.Unpaired | drawn_anew.DrawnAnew | None) -> Remedy:
    """What to do. `apart`: what puts inputs beside targets that are not theirs, where the script's text has it."""
    if found.part is not None or found.first is not None:
        fix = BOTH_TERMS if found.part is not None else GIVEN_UP_FIX
        return Remedy(fix=fix, code=_terms(process, found.line) or _TERMS)
    if apart is not None:
        code = apart.example or flat_losses.ONE_BATCH
        return Remedy(fix=apart.fix or UNPAIRED_FIX, code=code, diff=apart.diff, place=apart.place)
    return Remedy(fix=UNPAIRED_FIX, code=flat_losses.ONE_BATCH)


def _terms(process: Process, line: Line) -> str:
    """The terms of what the backward is called on, as the script adds them up."""
    backward = process.location("backward")
    return lines.terms(process, assignment.of(process, backward)) or lines.terms(process, line.location)


RULE = Rule(
    id="constant-output",
    family="model",
    severity="warning",
    title="The output is the same for every input",
    about="A model that ignores its input can do no better than predict the mean of the targets. Attention whose mask "
    "hides all but padding ignores it, too.",
    check=check,
    each_training=True,
    verify="Record the run again: predictions differ from sample to sample.",
    needs=(("loss_calls.varies", "loss_calls.target_varies"), ("loss_graphs.one_id_rows",)),
    thresholds=(*predictions.THRESHOLDS, *turned_masks.THRESHOLDS),
    not_when="First steps, several optimizers, constant targets, batches of fewer than eight samples.",
)
