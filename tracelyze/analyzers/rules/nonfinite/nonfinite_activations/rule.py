"""nonfinite-activations: which module puts out NaN or Inf first, while its weights and what goes in are finite."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.optimization import prelude
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, combine
from tracelyze.analyzers.rules.nonfinite.nonfinite_activations import taken_in
from tracelyze.analyzers.script.editing.remade.precision import overgrown
from tracelyze.analyzers.script.loss import broken_modules
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, _limits: Limits) -> Outcome:
    """The first watched forward of each training in which a module with finite weights broke, and the loss with it."""
    given = [one for part in process.optimizations if (one := taken_in.finding(part, RULE.id)) is not None]
    if given:
        return given
    activations = process.tables["activations"]
    bad = np.isin(activations["nonfinite"], list(broken_modules.WHAT))
    if not bad.any():
        watched = len(np.unique(activations["step"]))
        return Passed(f"the outputs of all modules were finite in {plural(watched, 'watched forward')}")
    forwards = groupby(activations.records(), key=lambda row: row["step"])
    looks = [list(rows) for _, rows in forwards]
    broken = [
        (root, rows)
        for rows in looks
        if (root := broken_modules.first(rows)) is not None and not broken_modules.is_loss(root, rows)
    ]
    grown = [broken_modules.largest_before(*one) for one in broken]
    if grown and grown[0] >= prelude.HUGE:
        return Passed(
            f"outputs had grown to {number(grown[0])} in the modules before the first one that was not finite: numbers "
            "without a bound overflow in any of them (see loss-nonfinite)"
        )
    roots = [root for root, _ in broken]
    times = activations["time"]
    return combine(_check(optimization, roots, times) for optimization in process.optimizations)


def _check(optimization: Optimization, roots: list[dict[str, Any]], watched: np.ndarray) -> Finding | Passed | Skipped:
    steps = optimization.steps
    lost = steps.known("loss") & ~np.isfinite(steps["loss"])
    written = _nonfinite_gradients(optimization)
    for root in roots:
        index = int(np.searchsorted(steps["time"], root["time"]))
        before = (lost & ~timing.skipped(optimization)) | written
        if index < len(lost) and lost[index] and (root["weights_finite"] or not before[:index].any()):
            looked = index == 0 or bool(prelude.looked_at(optimization)[index - 1])
            return _finding(optimization, index, root, int(lost.sum()), sure=bool(root["weights_finite"]) or looked)
    alone = lost & ~timing.skipped(optimization)
    if alone.any() and int(np.argmax(alone)) not in np.searchsorted(steps["time"], watched):
        return Skipped(
            "the forward of the first loss that is not finite was not looked at, and later ones tell nothing"
        )
    return Passed("modules were not finite where the loss was, or only after weights had become NaN")


def _nonfinite_gradients(optimization: Optimization) -> np.ndarray:
    """Steps that wrote gradients which are not finite into the weights, shape [steps]."""
    steps = optimization.steps
    broken = steps.known("grad_norm") & ~np.isfinite(steps["grad_norm"])
    broken |= np.nan_to_num(steps["grads_nonfinite"]) > 0
    return np.asarray(broken & ~timing.skipped(optimization))


def _finding(optimization: Optimization, index: int, root: dict[str, Any], lost: int, *, sure: bool) -> Finding:
    begin = timing.step_at(optimization, index)
    what = broken_modules.WHAT[root["nonfinite"]]
    name = f"{root['module']} ({root['kind']})" if root["module"] else f"the model itself ({root['kind']})"
    first = broken_modules.named(root)
    half = root["dtype"] == "float16"
    fix, code = broken_modules.remedy(root)
    grown = overgrown.within(optimization.process, root)
    weights = ", and so were its own weights" if root["weights_finite"] else ""
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain" if sure else "likely",
        title=f"{first} is the first module to output {what}, at step {begin:,}",
        summary=(
            f"In the forward of step {begin:,} {name} was the first module whose output held {what}; modules that were "
            f"called before it were finite{weights}. The loss of the step was lost with it"
            + (f", one of {plural(lost, 'loss')} of the run that are not finite. " if lost > 1 else ". ")
            + ("It computes in float16, which ends at 65,504." if half else f"It computes in {root['dtype']}.")
            + (grown.said() if grown else "")
        ),
        fix=fix,
        fix_code=(grown and grown.remedy) or code,
        first_step=begin,
        first_second=timing.second_at(optimization, index),
        evidence=[
            Evidence("first module that is not finite", name),
            Evidence("its place among the module calls of the forward", root["order"]),
            Evidence("dtype of its output", root["dtype"]),
        ],
        location=grown.line
        if grown
        else optimization.process.module_location(root["module"]) or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization, [Mark(float(begin), f"{name}: {what}", "not-finite")]),
        false_alarm="A module whose NaN are masked later, if the loss broke at the same step for another reason.",
    )


RULE = Rule(
    id="nonfinite-activations",
    family="loss",
    severity="critical",
    title="A module outputs NaN or Inf",
    about="The problem starts at the first module whose output is not finite although its input and weights are.",
    check=check,
    verify="Record the run again: no module outputs NaN or Inf.",
    excluded=(
        "Masked logits: the loss broke at the same step.",
        "Weights that had become NaN before: they were finite, or no gradient and no loss before was NaN.",
    ),
    needs=(("activations.nonfinite", "steps.loss"),),
    not_when="Masked logits of minus infinity, and losses that stay finite.",
)
