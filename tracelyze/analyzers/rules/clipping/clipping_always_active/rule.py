"""clipping-always-active: gradients are far above the limit at nearly every step, so that all become equally long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import accumulation, clip_values
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, OneOutcome, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.analyzers.rules.clipping.clipping_always_active import summed_losses
from tracelyze.analyzers.script import line_edits
from tracelyze.diagnosis import Evidence, Finding, Mark, Setting
from tracelyze.formatting import number, percent, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats


@each_optimization
def check(optimization: Optimization, limits: Limits) -> OneOutcome:
    """The norms that the clip returned, over its limit."""
    steps = optimization.steps
    bound, norm = steps["clip_max_norm"], steps["grad_norm"]
    known = np.isfinite(bound) & (bound > 0) & np.isfinite(norm) & (steps["grad_norm_source"] == clip_values.RETURNED)
    if any(
        (one.steps["clipped_scaled"] == 1).any()
        for one in optimization.process.optimizations
        if one is not optimization
    ):
        return Skipped("gradients of another optimizer were clipped while scaled", "not-applicable")
    rows = np.flatnonzero(known & ~timing.skipped(optimization) & ~(steps["clipped_scaled"] == 1))
    if len(rows) < limits["steps"]:
        return Skipped(
            f"the norm before clipping is known for {plural(len(rows), 'step')}; {limits['steps']:.0f} are needed"
        )
    if float(np.median(np.nan_to_num(steps["clips"][rows], nan=1.0))) > 1:
        return Skipped("a step clips several times, and which gradients each clip has is not known", "not-applicable")
    times = norm[rows] / bound[rows]
    late = times[len(times) // 2 :]
    share = min(float((times > limits["times"]).mean()), float((late > limits["times"]).mean()))
    if share < limits["share"]:
        return Passed(
            f"the norm exceeds the limit in {percent(float((times > 1).mean()))} of the steps, "
            f"{number(float(np.median(times)))} times it in the median"
        )
    found = _finding(optimization, times, share, norm[rows], float(np.median(bound[rows])), limits)
    return summed_losses.at_its_sum(optimization, found)


def _finding(
    optimization: Optimization, over: Floats, share: float, norms: Floats, bound: float, limits: Limits
) -> Finding:
    """`over`: the norms over the limit; `share`: of the steps, those in which that is more than the limit."""
    name = str(optimization.facts.get("name") or "The optimizer")
    times, acts = float(np.median(over)), float((over > 1).mean())
    if name in accumulation.SCALE_MATTERS:
        effect = (
            f"{name} gets these gradients with norm {number(bound)}, whatever it was before: it does not shrink as the "
            "loss flattens out."
        )
    else:
        little = f"{name} divides the common factor out again, so little is lost. But"
        effect = (
            f"{little if accumulation.evens_out(name) else 'So'} these batches all count the same, however large their "
            "gradient, and the clip does not single out outliers."
        )
    begin = timing.step_at(optimization, 0)
    usual = float(np.quantile(norms, 0.9))
    limit, place = clip_values.written(usual), clip_values.place_of(optimization)
    also, rate = clip_values.beside_the_limit(optimization, usual / bound, limits["falls"])
    return Finding(
        rule=RULE.id,
        severity="info",
        confidence="certain",
        title=f"Clipping acts on {share_of(acts, 'steps')}: the norm is {number(times)} times the limit",
        summary=(
            f"The norm before clipping{timing.name_of(optimization)} was over {number(limits['times'])} times the "
            f"limit ({number(bound)}) in {share_of(share, 'steps')}, and {number(times)} times in the median. {effect}"
        ),
        fix="If the clip is meant for outliers, set its limit above the usual gradient norm, for example so that nine "
        f"of ten steps stay below it.{_about_sums(optimization, limits)}{also}",
        fix_code=clip_values.own_line(optimization, limit) + rate,
        diff=None if rate else line_edits.clipped_at(optimization.process, place, limit),
        setting=Setting(("max_norm",), (bound,), "" if rate else limit),
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence(f"steps over {number(limits['times'])} times the limit", share, "share", *limits.against("share")),
            Evidence("norm over the limit, in the median", times, "times", *limits.against("times")),
            Evidence("limit of the clip", bound, role="setting"),
        ],
        location=place or optimization.process.location("clip") or optimization.step_location,
        charts=pictures.over_steps(
            optimization,
            "Gradient norm",
            "L2 norm",
            {"before clipping": "grad_norm", "limit of the clip": "clip_max_norm"},
            [Mark(float(begin), "clipped")],
            log_y=True,
        ),
        false_alarm="Updates meant to be equally long (normalised gradient descent); recipes with a small limit.",
    )


def _about_sums(optimization: Optimization, limits: Limits) -> str:
    """What to do where the loss is a sum over the batch; nothing where it is known to be a mean."""
    steps = optimization.steps
    losses = dict(zip(timing.numbers(optimization).tolist(), steps["loss"].tolist(), strict=True))
    rows = [row for row in optimization.process.tables["loss_calls"].records() if row["training"]]
    rows = [row for row in rows if row["value"] is not None and row["step"] + 1 in losses]
    whole = [row for row in rows if np.isclose(row["value"], losses[row["step"] + 1], rtol=1e-3)]  # as trained on
    if len(whole) >= limits["losses"] and {row["reduction"] for row in whole} == {"sum"}:
        return " The loss is a sum over the batch: a mean makes the norm smaller by the number of its terms."
    known = steps.known("loss_is_mean")
    return "" if known.any() and (steps["loss_is_mean"][known] == 1).all() else " If the loss is a sum, make it a mean."


RULE = Rule(
    id="clipping-always-active",
    family="gradients",
    severity="info",
    title="Clipping is active at every step",
    about="A clip is meant for outliers. If the gradient norm is far above its limit at every step, the clip sets the "
    "step size.",
    check=check,
    settings=("max_grad_norm", "gradient_clip_val"),
    verify="Record the run again: most norms stay below the limit.",
    excluded=(
        "A warm-up: the later half of the steps was clipped as well.",
        "Norms that are a few times the limit: these are at least as far above it as the limit says.",
    ),
    absent="The run clips no gradients.",
    needs=(("steps.clip_max_norm", "steps.grad_norm"),),
    thresholds=(
        Threshold("times", 5, "times the limit", "Pascanu et al. set it to half of the mean norm, or more: 2 times"),
        Threshold("share", 0.95, "share", "of all steps and of the later half: a warm-up is over by then"),
        Threshold("steps", 100, "steps", "the first steps of a training are steep"),
        Threshold(
            "falls", 0.1, "share", "of the loss, from one quarter of the run to the next: longer steps may serve it"
        ),
        Threshold("losses", 3, "losses", "as the loss function gave them: it decides what the fix says of a sum"),
    ),
    not_when="Outliers, warm-up, norms that are a few times the limit, several clips in each step, gradients "
    "that are still multiplied by a loss scale.",
    references=("https://arxiv.org/abs/1211.5063",),
)
