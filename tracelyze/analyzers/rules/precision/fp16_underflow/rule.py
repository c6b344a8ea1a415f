"""fp16-underflow: gradients that are too small for float16 have become exactly zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.analyzers.rules.precision.fp16_underflow import small_scales
from tracelyze.diagnosis import Evidence, Finding, Setting
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.diagnosis import Location

FLOAT16 = 1
QUANTUM = 2.0**-24  # the smallest number of float16 above zero


@each_optimization
def check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    """Shares of zeros in the gradients of float16 trainings, where what is not zero lies at the end of the format."""
    steps, table = optimization.steps, optimization.process.tables["parameters"]
    half = (steps["autocast"] == FLOAT16) | (str(optimization.facts.get("dtype") or "") == "float16")
    if half.mean() < limits["steps"]:
        return Skipped("the training does not compute in float16", "not-applicable")
    own = (table["optimizer"] == optimization.optimizer) & (table["grad_finite"] == 1) & (table["elements"] > 1)
    own &= np.isfinite(table["grad_usual"]) & np.isfinite(table["grad_zeros"])
    if not own.any():
        return Skipped("no gradient was sampled")
    scale = np.nan_to_num(np.nanmedian(steps["scale"]) if steps.has("scale") else 1.0, nan=1.0) or 1.0
    smallest = QUANTUM / float(scale)  # as the step finds it, after the scaler divided
    zeros, usual = table["grad_zeros"][own], table["grad_usual"][own]
    small = (zeros >= limits["zeros"]) & (usual <= limits["quanta"] * smallest)
    share = _weighted(small, table["elements"][own])
    if share < limits["share"]:
        lost = percent(float(np.median(zeros)))
        return Passed(f"{lost} of the gradients are zero, and the others are not at the lower end of float16")
    return _finding(optimization, float(np.average(zeros[small])), usual[small], smallest, share, limits)


def _weighted(flags: Mask, elements: Floats) -> float:
    """The share of all elements that belong to measurements with a flag."""
    return float(elements[flags].sum() / elements.sum())


def _finding(
    optimization: Optimization, zeros: float, usual: Floats, smallest: float, share: float, limits: Limits
) -> Finding:
    scaled, others = optimization.steps.has("scale"), usual[usual > 0]
    begins = small_scales.begins_at(optimization) if scaled else None
    place = small_scales.place(optimization) if begins is not None else None
    left = float(np.median(others)) if len(others) else 0.0
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"Gradients underflow in float16: {percent(zeros)} of the elements of {percent(share)} of them are zero",
        summary=(
            f"Of {percent(share)} of the gradients{timing.name_of(optimization)}, {percent(zeros)} of the elements are "
            f"exactly zero{_how_close(left, smallest)}{_why(optimization, begins, place)}"
        ),
        fix="Let GradScaler find the scale (begin at 65,536 and let it grow), or use bfloat16, which needs none.",
        fix_code=f'scaler = torch.amp.GradScaler("{optimization.process.device}")\n'
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\n"
        "scaler.update()",
        first_step=timing.step_at(optimization, 0),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("elements that are zero", zeros, "share", *limits.against("zeros")),
            *(
                [
                    Evidence(
                        "usual size of the others",
                        left,
                        "",
                        limits["quanta"] * smallest,
                        limits.source("quanta"),
                        role="most",
                    )
                ]
                if left
                else []
            ),
            Evidence(
                "loss scale", float(np.nanmedian(optimization.steps["scale"])) if scaled else "none of a GradScaler"
            ),
            Evidence("such measurements", plural(len(usual), "measurement"), role="basis"),
        ],
        location=place or optimization.backward_location,
        seen_at=optimization.backward_location if place is not None else None,
        diff=small_scales.with_default(optimization, place),
        setting=Setting(("init_scale",), (begins,), "65536.0") if begins is not None else None,
        charts=pictures.grad_norm(optimization) + pictures.loss(optimization),
        false_alarm="Gradients that are this small because the model has converged.",
    )


def _how_close(left: float, smallest: float) -> str:
    """How far the gradients that are left are from the end of the format."""
    end = f"the smallest number that float16 can hold here, {number(smallest)}. Anything smaller is silently lost."
    if not left:
        return f". The smallest number that float16 can hold here is {number(smallest)}: anything smaller is lost."
    if number(left) == number(smallest):
        return f", and half of the others are {end}"
    return f", and half of the others are no larger than {number(left)}, close to {end}"


def _why(optimization: Optimization, begins: float | None, place: Location | None) -> str:
    """What the loss was scaled by: a scale that began too small (`begins`), one that is, or none."""
    if begins is not None:
        at = f": line {place.line} sets it" if place is not None else ""
        return f" The loss scale began at {number(begins)}{at}, where GradScaler's default is 65,536."
    if optimization.steps.has("scale"):
        return " The loss scale is too small for these gradients."
    by_hand = bool((optimization.steps["loss_divisor"] < 1).any())
    return "" if by_hand else " Nothing scales the loss."


RULE = Rule(
    id="fp16-underflow",
    family="precision",
    severity="warning",
    title="Gradients underflow in float16",
    about="float16 has no numbers between 0 and 6e-8. Smaller gradients vanish unless the loss is scaled up first.",
    check=check,
    verify="Record the run again: non-zero gradients lie well above float16's smallest number.",
    excluded=("Zeros of ReLUs: the elements that are not zero lie at the lower end of float16.",),
    absent="The training does not compute in float16.",
    needs=(("parameters.grad_usual", "steps.autocast"),),
    thresholds=(
        Threshold("steps", 0.5, "share", "most steps compute in float16"),
        Threshold("zeros", 0.3, "share", "a third of the gradients without effect"),
        Threshold("quanta", 16, "", "steps of the format from zero: half of what is left has four bits or fewer"),
        Threshold("share", 0.3, "share", "of the elements: a large part of the model, not one odd layer"),
    ),
    not_when="Zeros of ReLUs and masks, bfloat16, gradients of the usual size.",
    references=("https://arxiv.org/abs/1710.03740",),
)
