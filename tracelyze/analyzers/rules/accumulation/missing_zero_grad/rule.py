"""missing-zero-grad: the gradients of every step are added to those of all steps before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.gradients import clearing_remedy
from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Passed, Rule, Skipped, Threshold, each_optimization, missing
from tracelyze.analyzers.rules.accumulation.missing_zero_grad import growing_gradients
from tracelyze.analyzers.script.editing.optimizers import clearing
from tracelyze.diagnosis import Chart, Evidence, Finding, Mark
from tracelyze.formatting import share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

ALIKE = "If you sum gradients over several optimizer steps on purpose, which is rare, this is what you asked for."


@each_optimization
def check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    """Direct evidence per optimizer where it was recorded, else the growth of the gradient norm."""
    if optimization.steps.has("grads_carried"):
        return _direct(optimization, limits)
    if optimization.steps.has("grad_norm"):
        return growing_gradients.finding(optimization, RULE.id, clearing.FIX, clearing.FIX_CODE, limits)
    return missing(optimization.process, "steps.grads_carried", RULE.absent)


def _direct(optimization: Optimization, limits: Limits) -> Finding | Passed:
    """Backwards added into gradients that a step had consumed, on nearly all tensors, on and on."""
    steps = optimization.steps
    present = steps["parameters"] - np.nan_to_num(steps["grads_none"])
    usable = steps.known("grads_carried") & (present > 0) & ~timing.skipped(optimization)
    carried = usable & (steps["grads_carried"] >= limits["tensors"] * present)
    first = int(np.argmax(carried)) if carried.any() else 0
    since = usable.copy()
    since[:first] = False
    behind = since & accumulation.cleared_for_validation(optimization)
    count, share = int(carried.sum()), float(carried.sum()) / max(1, int(since.sum()))
    judged = count / max(1, int((since & ~behind).sum()))
    if count < limits["steps"] or judged < limits["share"]:
        where = "no step" if count == 0 else f"only {count} of {int(usable.sum()):,} steps"
        return Passed(f"{where} used gradients that an earlier step had already used")
    begin, name = timing.step_at(optimization, first), timing.name_of(optimization)
    if accumulation.another_is_cleared(optimization, 1 - limits["share"]):
        return Passed(f"only the gradients{name} are never cleared: that is partial-zero-grad")
    sampled = " looked at" if (timing.trained_steps(optimization) & ~steps.known("grads_carried")).any() else ""
    of = f"{int(usable.sum()):,} steps{sampled}"
    cleared = accumulation.rarely_cleared(optimization, first, since & (steps["grads_carried"] == 0))
    remedy = clearing_remedy.of(optimization, cleared)
    ones, since_when = ("gradients", "the start") if cleared.how == "never" else ("ones", "they were last cleared")
    every = share == 1 and not sampled
    added = "each backward pass added its gradients" if every else "backward passes added their gradients"
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain",
        title=f"Gradients{name} are {cleared.said}: {count:,} of {of} reused old {ones}",
        summary=(
            f"From step {begin:,} on, {added} to the old ones, and "
            f"{share_of(share, 'steps' + sampled)} used that sum. Every update follows all gradients since "
            f"{since_when}: do not trust weights trained from step {begin:,} on.{remedy.why}"
        ),
        fix=remedy.fix,
        fix_code=remedy.example,
        first_step=begin,
        last_step=timing.seen_until(optimization, carried, usable, limits["steps"]),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence(
                "steps with carried gradients" + ", but for the first behind a validation" * bool(behind.any()),
                judged,
                "share",
                *limits.against("share"),
            ),
            Evidence(f"steps{sampled} that used old gradients", count, "steps", *limits.against("steps")),
            Evidence(
                "tensors with old gradients per such step", float(np.median(steps["grads_carried"][carried])), "tensors"
            ),
        ],
        cost=timing.scaled(timing.cost_of(optimization, timing.numbers(optimization) >= begin), share)
        if sampled
        else timing.cost_of(optimization, carried),
        location=remedy.line,
        seen_at=remedy.seen_at,
        charts=_charts(optimization, begin),
        false_alarm=ALIKE,
        diff=remedy.edit,
    )


def _charts(optimization: Optimization, begin: int) -> list[Chart]:
    marks = [Mark(float(begin), "first reused gradients")]
    carried = {"carried over": "grads_carried", "trainable": "parameters"}
    return pictures.grad_norm(optimization, marks) + pictures.over_steps(
        optimization, "Gradients that an earlier step had already used", "tensors", carried, marks
    )


RULE = Rule(
    id="missing-zero-grad",
    family="gradients",
    severity="critical",
    title="Gradients are never cleared",
    about=(
        "PyTorch adds each backward pass to .grad. If nothing clears it between optimizer steps, every update follows "
        "the sum of all gradients so far. The loop runs, the loss often even falls, and the result is wrong."
    ),
    check=check,
    verify="Record the run again: no step reuses gradients.",
    excluded=(
        "Gradient accumulation: it clears once per step; here hardly any step clears.",
        "A second optimizer (a GAN): each tensor is counted for the optimizer that used it.",
    ),
    absent="The run has no gradients to clear.",
    needs=(("steps.grads_carried",), ("steps.grad_norm",)),
    thresholds=(
        Threshold(
            "tensors", 0.9, "share", "all of them when nothing is cleared; a tensor may have got no new gradient"
        ),
        Threshold("share", 0.9, "share", "every step when nothing is cleared; below it, clearing is irregular"),
        Threshold("steps", 3, "steps", "two could be one skipped clearing at the start"),
        Threshold("warm_up", 2, "", "curves alone: a rate that doubles to the end raises the norms by itself"),
        Threshold("worse", 2, "", "curves alone: a loss that doubles explains larger gradients as well"),
    ),
    not_when="Accumulation over several backwards with one clearing per step, GANs and LBFGS that carry nothing over.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",),
)
