"""Units of ReLUs that put out zero for every sample, again and again: a layer may be dead without being silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Table
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location


AFTER_ALL = (
    "# right before the optimizer is made: initialising all of the model after it, as by apply(), would undo it\n"
)
"""Where an example belongs that initialises a layer of the model."""


def remedy(untrained: bool, filled: Location | None) -> str:
    """What to look at where the input of a ReLU is negative; `filled`: the line that fills weights or biases."""
    start = "biases or weights initialised below zero"
    if untrained:
        first = f"line {filled.line}, which fills biases or weights" if filled is not None else start
        look = f"No gradient came back in the first step: check {first}, and whether inputs are normalised."
    else:
        look = (
            "Find out what makes the input negative: a step that was too large (lower or warm up the learning rate), "
            f"{start}, inputs that are not normalised."
        )
    return f"{look} LeakyReLU or GELU keep a gradient."


def initialised(process: Process, layers: list[str]) -> str:
    """An example that initialises these layers anew: scales of normalisations begin at one, and have no fan."""
    kinds = {row["module"]: str(row["kind"]) for row in process.tables["activations"].records()}
    norms = [name for name in layers if "Norm" in kinds.get(name, "")]
    weights = "nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')"
    if len(norms) == len(layers):
        weights = "nn.init.ones_(layer.weight)"
    elif norms:
        weights = f"{weights} if layer.weight.dim() > 1 else nn.init.ones_(layer.weight)"
    return (
        f"{AFTER_ALL}for name in {layers}:\n"
        "    layer = model.get_submodule(name)\n"
        f"    {weights}\n"
        "    if layer.bias is not None:  # below zero it keeps the input of the ReLU there\n"
        "        nn.init.zeros_(layer.bias)"
    )


class Layer(NamedTuple):
    """A ReLU most of whose units are dead, from some measurement to the last: the smallest share of them in any."""

    module: str
    share: float
    step: int
    measurements: int


def layers(activations: Table, limits: Limits, run: int) -> list[Layer]:
    """The ReLUs with at least the share `units` of dead ones to the end of a run of so many steps."""
    seen: dict[str, list[tuple[int, float]]] = {}
    known = np.flatnonzero(activations.known("dead"))
    names, steps, dead = activations.text("module"), activations["step"], activations["dead"]
    for row in known:
        seen.setdefault(str(names[row]), []).append((int(steps[row]) + 1, float(dead[row])))
    found = []
    for name, measurements in seen.items():
        live = [index for index, (_, share) in enumerate(measurements) if share < limits["units"]]
        stretch = measurements[live[-1] + 1 :] if live else measurements
        length = stretch[-1][0] - stretch[0][0] if stretch else 0
        if len(stretch) >= limits["looks"] and length >= max(limits["steps"], limits["part"] * run):
            found.append(Layer(name, min(share for _, share in stretch), stretch[0][0], len(stretch)))
    return found


def finding(optimization: Optimization, found: list[Layer], rule: str, limits: Limits) -> Finding:
    """What is wrong, with the layer that lost most."""
    worst = max(found, key=lambda layer: layer.share)
    filled = script_lines.filled(optimization.process) if worst.step == 1 else None
    others = f" The same is true of {plural(len(found) - 1, 'other ReLU')}." if len(found) > 1 else ""
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"{percent(worst.share)} of the units of {worst.module} are dead: zero for every sample",
        summary=(
            f"From step {worst.step:,} to the end, at least {percent(worst.share)} of the units of {worst.module} "
            "output zero for all samples of two consecutive batches, whenever they were measured. Their input is "
            f"negative for every sample, so no gradient comes back, and the layer works with the rest.{others}"
            + script_lines.said(filled, script_lines.FILLS)
        ),
        fix="Lower or warm up the learning rate, and check for biases and weights initialised below zero and for "
        "inputs that are not normalised. LeakyReLU and GELU keep a gradient.",
        fix_code=f"{AFTER_ALL}# layer: the Linear or convolution before it\n"
        "nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')",
        first_step=worst.step,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("units that are zero for every sample", worst.share, "share", *limits.against("units")),
            Evidence("consecutive, to the end", worst.measurements, "measurements", *limits.against("looks")),
            Evidence("ReLUs like this", ", ".join(layer.module for layer in found[:6])),
        ],
        location=filled
        or optimization.process.module_location(worst.module.removeprefix("ReLU after "))
        or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization, [Mark(float(worst.step), "dead units")]),
        false_alarm="A wide layer that is sparse on purpose, with units that activate for rare samples.",
    )
