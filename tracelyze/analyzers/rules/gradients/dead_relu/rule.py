"""dead-relu: a ReLU puts out nothing but zeros for good, and the layer before it gets no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.gradients.dead_relu import dead_units, filled_biases
from tracelyze.analyzers.rules.gradients.dead_relu.relus import (
    FUNCTION,
    Dead,
    gradients_of,
    weights_are_zero,
    zeros_of,
)
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location


_ZERO_WEIGHTS = (
    "Initialise the weights at random: units whose weights are all zero stay identical for good, here all dead."
)


def check(process: Process, limits: Limits) -> Outcome:
    """Outputs of the ReLUs over the measurements to the end of the run, and the gradients of what feeds them."""
    if len(process.optimizations) != 1:
        return Skipped(
            style.several(process, "several optimizers train together, and whose modules were sampled is not known"),
            "not-applicable",
        )
    optimization = process.optimizations[0]
    gradients = gradients_of(process.tables["parameters"])
    seen = zeros_of(process.tables["activations"], set(gradients))
    units = dead_units.layers(process.tables["activations"], limits, len(optimization.steps))
    if not seen and not units:
        return Skipped("no ReLU was sampled together with the gradient of the layer before it", "not-applicable")
    judged = [
        _judge(key, measurements, gradients[key[1]], limits, len(optimization.steps))
        for key, measurements in seen.items()
    ]
    dead = [one for one in judged if one is not None]
    if not dead and not units:
        return Passed(f"{plural(len(seen), 'ReLU')} put out values, or the layers before them have gradients")
    loss = optimization.steps["loss"]
    start = min(float(loss[0]), float(np.median(loss[:20])))  # the first loss is from before any blow-up
    if not float(np.median(loss[-max(1, len(loss) // 5) :])) > limits["low"] * start:
        return Passed("ReLUs put out nothing but zeros, and the loss is low: that may be what they are for")
    if not dead:
        return [dead_units.finding(optimization, units, RULE.id, limits)]
    return [_finding(optimization, dead, len(seen), limits)]


def _judge(
    key: tuple[str, str],
    measurements: list[tuple[int, float]],
    gradients: list[tuple[int, float]],
    limits: Limits,
    run: int,
) -> Dead | None:
    """What is silent from some measurement to the last, the gradient of the layer before it included."""
    alive = [index for index, (_, zeros) in enumerate(measurements) if zeros < limits["zeros"]]
    stretch = measurements[alive[-1] + 1 :] if alive else measurements
    if len(stretch) < limits["looks"]:
        return None
    begin = stretch[0][0] if alive else 1  # never seen alive: so from the start
    length = stretch[-1][0] - begin
    norms = [norm for step, norm in gradients if step >= begin]
    silent = len(norms) >= limits["gradients"] and not any(norms)  # NaN is not silent
    dead = Dead(*key, begin, len(stretch), not alive and gradients[0][0] <= 1)
    return dead if silent and length >= max(limits["steps"], limits["part"] * run) else None


def _made_at(process: Process, dead: Dead) -> Location | None:
    """The line of the ReLU; where that is a function, of the layer that feeds it."""
    return process.module_location(dead.fed_by if dead.module.startswith(FUNCTION) else dead.module)


def _finding(optimization: Optimization, dead: list[Dead], count: int, limits: Limits) -> Finding:
    first, looks = min(dead, key=lambda one: one.step), limits["looks"]
    filled = filled_biases.of(optimization.process, first.fed_by) if first.step == 1 else None  # it never was alive
    place = filled.place if filled is not None else None
    late = max(one.step for one in dead)
    since = f"{'' if late == first.step else ', the first'} since step {first.step:,}"
    last = "" if late == first.step else f" (the last of them from step {late:,} on)"
    names = listed(
        dict.fromkeys(
            one.module if one.module.startswith(FUNCTION) else f"{one.module} (after {one.fed_by})" for one in dead
        ),
        most=4,
    )
    zero = weights_are_zero(optimization.process.tables["parameters"], first.fed_by)
    cause = f"zero for every sample, as the weights of {first.fed_by} are" if zero else "negative for every sample"
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"{len(dead)} of {plural(count, 'ReLU')} died: nothing but zeros{since}",
        summary=(
            f"From step {first.step:,} to the end{last}, {names} put out only zeros in every forward checked. The "
            f"input of {first.module} is {cause}, so the gradient of {first.fed_by} is exactly zero, and its own "
            "updates cannot revive it." + (filled.said if filled else "")
        ),
        fix=_ZERO_WEIGHTS if zero else (filled and filled.fix) or dead_units.remedy(first.untrained, place),
        fix_code=(filled and filled.code)
        or dead_units.initialised(optimization.process, list(dict.fromkeys(one.fed_by for one in dead))),
        first_step=first.step,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("ReLUs that output only zeros, and the layers before them", names),
            Evidence("measurements, to the end", first.measurements, "", looks, limits.source("looks"), role="basis"),
            Evidence("gradient of the layer before, in all measurements since", 0),
        ],
        cost=timing.cost_of(optimization, timing.numbers(optimization) >= first.step),
        location=place or _made_at(optimization.process, first) or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization, [Mark(float(first.step), "dead ReLU")]),
        false_alarm="A part of the model that is meant to stay off while others train.",
    )


RULE = Rule(
    id="dead-relu",
    family="gradients",
    severity="warning",
    title="A ReLU outputs only zeros",
    about="If a ReLU's input is negative for every sample, no gradient gets through, so it stays that way.",
    check=check,
    verify="Record the run again: every ReLU outputs values above zero for some samples.",
    excluded=(
        "A satisfied loss: the loss is not near zero.",
        "A frozen layer: the layer before has gradients, and they are exactly zero.",
    ),
    absent="No ReLU was seen in the model.",
    needs=(("activations.zeros", "parameters.grad_norm", "steps.loss"),),
    thresholds=(
        Threshold("zeros", 0.999, "share", "four of the 4,096 elements that a measurement counts"),
        Threshold("units", 0.9, "share", "CS231n: up to 40% may be dead where something is learned; a tenth is left"),
        Threshold("looks", 4, "measurements", "one measurement may meet an unusual batch"),
        Threshold("gradients", 3, "measurements", "of the gradient of the layer before: exactly zero in each"),
        Threshold("steps", 50, "steps", "in fewer steps other layers may shift the input back"),
        Threshold("part", 0.25, "share", "of the run: what dies at its very end has cost little"),
        Threshold("low", 0.1, "share", "of the first losses: a hinge that is satisfied puts out zeros, rightly"),
    ),
    not_when="Sparse outputs that some samples activate, losses that are already low, modules whose layer is frozen.",
)
