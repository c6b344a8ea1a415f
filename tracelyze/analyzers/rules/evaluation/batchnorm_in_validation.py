"""batchnorm-in-validation: validation batches change the running statistics of batch normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import line_edits, pictures, script_lines
from tracelyze.analyzers.evidence.modes import back_in_training
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location


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
    always = script_lines.always_normalising(process) if in_eval and back is None else None
    edit = line_edits.normalising_by_mode(process, always) or back_in_training.left_evaluating(process, back)
    fix, code = _remedy(back, always, edit)
    optimization = process.longest if process.optimizations else None
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="certain",
            title=f"BatchNorm learns from validation data, in {bad} of {plural(count, 'pass', 'passes')}",
            summary=(
                f"{bad} of {plural(count, 'validation pass')} changed running means and variances, {updates:,} times, "
                f"the first one after step {begin:,}. "
                + (
                    f"The model itself was in eval mode, but line {back.line} puts a part of it back into train mode. "
                    if back
                    else "The model itself was in eval mode: a part of it was put back into train mode, or calls "
                    "batch_norm with training=True. "
                    if in_eval
                    else ""
                )
                + "Validation data are normalised by their own batches, enter the model that is saved, and change the "
                "next validation."
            ),
            fix=fix,
            fix_code=code,
            diff=edit,
            first_step=begin,
            last_step=int(np.nan_to_num(evals["after_step"][rows[-1]])),
            evidence=[
                Evidence("passes that changed running statistics", bad, "passes"),
                Evidence("changes in them", updates, "changes", 0, "in eval mode there is none"),
            ],
            location=back or always or seen_at,
            seen_at=seen_at,
            charts=pictures.loss(optimization, [Mark(float(begin), "statistics changed")]) if optimization else [],
            false_alarm="Statistics that are gathered anew on purpose, for another domain.",
        )
    ]


def _remedy(back: Location | None, always: Location | None, edit: Diff | None) -> tuple[str, str]:
    """What to do, and an example, by the line that is to be changed."""
    if back:
        fix = f"Leave these layers in eval mode while the model is validated: line {back.line} is not to be there."
        return fix, "\n".join(edit.added).strip() if edit else "layer.eval()"
    if always:
        fix = "Let the normalisation go by the mode of its module: the model is in eval mode, and this call is not."
        return fix, edit.added[0].strip() if edit else "training=self.training  # what batch_norm is given"
    return (
        "Have all of the model in eval mode while it is validated, normalisation included.",
        "model.eval()  # and F.batch_norm(..., training=self.training) in a forward of your own",
    )


RULE = Rule(
    id="batchnorm-in-validation",
    family="evaluation",
    severity="warning",
    title="Validation changes the running statistics of BatchNorm",
    about="A BatchNorm in train mode stores the mean of whatever passes through it, validation data too.",
    check=check,
    verify="Record the run again: no validation pass changes running statistics.",
    excluded=("BatchNorm in eval mode: its calls were counted, not the modes of modules.",),
    absent="The run has no validation pass.",
    needs=(("evals.statistics", "evals.trained"),),
    thresholds=(Threshold("share", 0.5, "share", "a habit, not one odd pass: most validation passes"),),
    not_when="BatchNorm in eval mode, statistics gathered for an average of weights, passes that measure nothing.",
)
