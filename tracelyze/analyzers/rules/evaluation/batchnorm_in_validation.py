"""batchnorm-in-validation: validation batches change the running statistics of batch normalisation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script import line_edits, script_lines
from tracelyze.analyzers.script.editing.remade import validating
from tracelyze.analyzers.script.modes import back_in_training
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location
SAMPLED = (
    "Dropout is sampled in them, with several forwards of each input: that takes dropouts in train mode, and here all "
    "of the model is{by}. "
)
ONLY_DROPOUTS = "Put only the dropouts into train mode to sample them, and leave all else in eval mode."
ALONE = """{model}.eval()
for module in {model}.modules():
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        module.train()"""


def check(process: Process, limits: Limits) -> Outcome:
    """Batch normalisations that updated what they store while a validation ran."""
    evals = process.evals
    judged = validation.passes(process)
    if not judged.any():
        return Skipped(validation.NONE, "not-applicable")
    changed = judged & (np.nan_to_num(evals["statistics"]) > 0)
    count, bad = int(judged.sum()), int(changed.sum())
    if bad < limits["share"] * count:
        return Passed(f"{plural(count, 'validation pass')}, {bad} of them changed running statistics")
    rows = np.flatnonzero(changed)
    begin = int(np.nan_to_num(evals["after_step"][rows[0]]))
    updates = int(np.nan_to_num(evals["statistics"][rows]).sum())
    in_eval = bool((evals["model_in_train"][rows] == 0).all())
    seen_at = validation.place(process, int(rows[0]))
    back = back_in_training.line(process, seen_at) if in_eval else None
    sampled = bool(validation.sampled(process, limits["sampled"])[rows].all()) and not in_eval
    whole = back_in_training.above(process, seen_at) if sampled else None
    always = script_lines.always_normalising(process) if in_eval and back is None else None
    edit = line_edits.normalising_by_mode(process, always) or back_in_training.left_evaluating(process, back)
    mode = validating.mode(process, int(rows[0]), seen_at) if not in_eval and not sampled else None
    if mode is not None:
        fix, code, edit = mode.fix, mode.code, mode.diff
    else:
        fix, code = _remedy(back, always, edit) if not sampled else (ONLY_DROPOUTS, _dropouts_alone(whole))
    optimization = process.longest if process.optimizations else None
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="certain",
            title=f"BatchNorm learns from validation data, in {bad} of {plural(count, 'pass', 'passes')}",
            summary=(
                f"{bad} of {plural(count, 'validation pass')} changed running means and variances ({updates:,} "
                f"updates), first after step {begin:,}. "
                + (SAMPLED.format(by=f", by line {whole.line}" if whole else "") if sampled else "")
                + (_although_in_eval_mode(back, always) if in_eval else "")
                + "Validation data are normalised by the statistics of their own batches, so that scores depend on how "
                "they are batched, and leak into the statistics that the model stores."
            ),
            fix=fix,
            fix_code=code,
            diff=edit,
            first_step=begin,
            last_step=int(np.nan_to_num(evals["after_step"][rows[-1]])),
            evidence=[
                Evidence("passes that changed running statistics", bad, "passes"),
                Evidence("updates of running statistics in them", updates, "changes", 0, "in eval mode there is none"),
            ],
            location=back or always or whole or (mode.place if mode else None) or seen_at,
            seen_at=seen_at,
            charts=pictures.loss(optimization, [Mark(float(begin), "statistics changed")]) if optimization else [],
            false_alarm="Statistics that are re-estimated on purpose, for another domain.",
        )
    ]


def _although_in_eval_mode(back: Location | None, always: Location | None) -> str:
    """What normalises by batches in a model that was in eval mode, by the line that is to be changed."""
    if back:
        return f"The model itself was in eval mode, but line {back.line} puts part of it back into train mode. "
    if always:
        return f"The model itself was in eval mode, but the call in line {always.line} does not ask for its mode. "
    return (
        "The model itself was in eval mode, but a part of it was in train mode, or calls batch_norm with "
        "training=True. "
    )


def _dropouts_alone(whole: Location | None) -> str:
    """What stands in place of the line that puts the whole model into train mode."""
    named = re.match(r"([A-Za-z_][\w.]*)\.train\(", whole.source) if whole is not None else None
    instead = f"  # in place of line {whole.line}" if whole is not None else ""
    return ALONE.format(model=named[1] if named else "model").replace("\n", f"{instead}\n", 1)


def _remedy(back: Location | None, always: Location | None, edit: Diff | None) -> tuple[str, str]:
    """What to do, and an example, by the line that is to be changed."""
    if back:
        fix = f"Leave these layers in eval mode during validation: remove line {back.line}."
        return fix, "\n".join(edit.added).strip() if edit else "layer.eval()"
    if always:
        fix = "Let the normalisation follow the mode of its module: the model is in eval mode, but this call is not."
        return fix, edit.added[0].strip() if edit else "training=self.training  # what batch_norm is given"
    fix = (
        "Find the normalisation layers that are in train mode behind model.eval(), and leave them in eval mode. A "
        "forward that calls F.batch_norm is to give it training=self.training."
    )
    return fix, "model.eval()\nprint([name for name, one in model.named_modules() if one.training])  # should be empty"


RULE = Rule(
    id="batchnorm-in-validation",
    family="evaluation",
    severity="warning",
    title="Validation changes the running statistics of BatchNorm",
    about="BatchNorm in train mode updates its running statistics from whatever passes through it, including "
    "validation data.",
    check=check,
    verify="Record the run again: no validation pass changes running statistics.",
    excluded=("BatchNorm in eval mode: calls that updated statistics were counted, not the modes of modules.",),
    absent="The run has no validation pass.",
    needs=(("evals.statistics", "evals.trained"),),
    thresholds=(
        Threshold("share", 0.5, "share", "a habit, not one odd pass: most validation passes"),
        Threshold("sampled", 2 / 3, "share", "derived: three forwards an input; two give a loss and an accuracy apart"),
    ),
    not_when="BatchNorm in eval mode, statistics gathered for an average of weights, passes that measure nothing.",
)
