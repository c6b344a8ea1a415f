"""validation-nonfinite: validation losses are NaN or Inf while training looks healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped
from tracelyze.analyzers.rules.evaluation.validation_nonfinite import beside_validation, empty_losses, read_values
from tracelyze.analyzers.script.candidates import preparing
from tracelyze.analyzers.script.datasets import batch_of_one
from tracelyze.analyzers.signatures import hidden_nan
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

FIX = (
    "Check the inputs of every validation batch and the model's buffers. If both are finite, look for the first "
    "module whose output is not."
)
FIX_CODE = """for name, buffer in model.named_buffers():
    assert torch.isfinite(buffer).all(), name
assert torch.isfinite(x).all(), "input"  # x: a validation batch"""

FILTERED = (
    "The log's training losses are finite, which may say little: the Hugging Face Trainer logs the mean of other "
    "losses in place of NaN (logging_nan_inf_filter). The weights may be broken."
)


def check(process: Process, _limits: Limits) -> Outcome:
    """The first validation loss that is not finite, and whether training's own still was."""
    steps, losses, _ = validation.curve(process)
    bad = ~np.isfinite(losses)
    if not bad.any():
        if (read := read_values.finding(process, RULE.id)) is not None:
            return [read]
        if not len(losses):
            count = read_values.finite(process)
            return (
                Passed(f"the numbers that the script read back in {plural(count, 'validation pass')} were finite")
                if count
                else Skipped("the run has no validation loss", "not-applicable")
            )
        return Passed(f"{plural(len(losses), 'validation loss')}, all finite")
    begin = int(np.nan_to_num(steps[np.argmax(bad)]))
    optimization = process.longest if process.optimizations else None
    training = beside_validation.losses(optimization, begin)
    around = training.before
    hidden = optimization is not None and hidden_nan.since(optimization).any()
    if hidden or (len(around) and not np.isfinite(around[-1])):
        return Passed("validation losses are not finite because training's are not: see loss-nonfinite")
    filtered = optimization is not None and hidden_nan.may_hide(process)
    if filtered and optimization is not None and not np.isfinite(_norms_before(optimization, begin)).all():
        return Passed("the gradients were not finite before that either: see nonfinite-gradients")
    told = _told(process, FILTERED if filtered else training.told)
    divides = None if filtered or _normalises(process) else preparing.behind_validation(process, told)
    takes = None if filtered else preparing.measured(process, _evaluation(process), told)
    count, cause = int(bad.sum()), empty_losses.seen(process) or batch_of_one.ending(process) or divides or takes
    return [
        Finding(
            rule=RULE.id,
            severity="critical",
            confidence="likely" if filtered or not training.known_finite else "certain",
            title=f"{count} of {plural(len(losses), 'validation loss')} {'is' if count == 1 else 'are'} NaN or Inf"
            + ("" if filtered else training.in_title),
            summary=f"The first one came after step {begin:,}. {cause.told if cause else told}",
            fix=cause.fix if cause else FIX,
            fix_code=cause.code if cause else FIX_CODE,
            first_step=begin,
            last_step=int(np.nan_to_num(steps[np.flatnonzero(bad)[-1]])),
            evidence=[
                Evidence("validation losses that are not finite", count, "passes", 0, "a loss is a number"),
                Evidence("training loss there", _finite(around)),
            ],
            location=(cause.line if cause else None) or _evaluation(process),
            seen_at=_evaluation(process),
            charts=pictures.loss(optimization, [Mark(float(begin), "validation is not finite")])
            if optimization
            else [],
            false_alarm="A metric that is undefined for some validation sets by design.",
        )
    ]


def _told(process: Process, training: str) -> str:
    """What is known of the training at that point, and what may be behind it."""
    behind = (
        "or statistics that differ in eval mode (a BatchNorm variance that overflowed or was never estimated)."
        if _normalises(process)
        else "or a softmax over positions that are all masked."
    )
    return f"{training} Behind it may be a validation sample, a mean over no samples, {behind}".lstrip()


def _evaluation(process: Process) -> Location | None:
    """The line that called the model in the first evaluation whose loss was not finite."""
    sites = process.evals["site"][process.evals.known("loss") & ~np.isfinite(process.evals["loss"])]
    return process.site(float(sites[0])) if len(sites) and np.isfinite(sites[0]) else None


def _normalises(process: Process) -> bool:
    """Whether a model keeps running statistics, as far as its modules are known."""
    if kinds := [kind for kind in process.models.text("sensitive") if kind] if len(process.models) else []:
        return any("BatchNorm" in kind or "InstanceNorm" in kind for kind in kinds)
    counted = process.evals["modules_sensitive"]
    return not process.evals.has("modules_sensitive") or bool((np.nan_to_num(counted) > 0).any())


def _norms_before(optimization: Optimization, step: int) -> np.ndarray:
    """The gradient norms that were measured up to that step."""
    norms = optimization.steps["grad_norm"]
    known: np.ndarray = norms[optimization.steps.known("grad_norm") & (timing.numbers(optimization) <= step)]
    return known


def _finite(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if len(finite) else None


RULE = Rule(
    id="validation-nonfinite",
    family="evaluation",
    severity="critical",
    title="Validation losses are not finite",
    about="NaN in validation only points to the data, or to statistics that only eval mode uses.",
    check=check,
    verify="Record the run again: every validation loss is a number.",
    excluded=("Training that broke, too: its loss was finite at that step.",),
    absent="The run has no validation loss.",
    needs=(("evals.loss",), ("evals.read_sum",)),
    not_when="Training losses that are not finite either.",
)
