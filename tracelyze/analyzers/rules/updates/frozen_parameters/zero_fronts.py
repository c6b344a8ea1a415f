"""First layers of a model whose gradients are exactly zero all along, while the layers behind them get some."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits

FLOAT16 = 1  # steps.autocast: small gradients become zero there without a cut


@dataclass
class Layer:
    """What an optimizer holds of one module, over all measurements."""

    tensors: dict[str, float]  # their elements
    steps: set[int]
    zero: bool = True
    moved: set[str] = field(default_factory=set)  # those that were not zero at every measurement
    wanted: set[str] = field(default_factory=set)  # those that had a gradient

    @property
    def stuck(self) -> bool:
        """Whether a tensor stays at zero although it has a gradient: through weights of zero no gradient flows back."""
        return bool(self.wanted - self.moved)


def findings(process: Process, rule: str, limits: Limits) -> list[Finding]:
    """One for each optimizer whose first layers are cut off from the loss by something whose derivative is zero."""
    return [found for one in process.optimizations if (found := _of(one, rule, limits)) is not None]


def _of(optimization: Optimization, rule: str, limits: Limits) -> Finding | None:
    if (optimization.steps["autocast"] == FLOAT16).any():
        return None
    layers = _layers(optimization)
    order = _in_order_of_call(optimization.process, layers)
    front = next((index for index, name in enumerate(order) if not layers[name].zero), 0)
    if len(order) < len(layers) or not front or any(layers[name].zero for name in order[front:]):
        return None  # a side branch without effect on the loss, as an extra head whose weight is zero, is no front
    if any(layer.stuck for layer in layers.values()):
        return None  # what holds a last layer or a gate at zero is the reason, as updates-not-applied says
    steps = set.intersection(*(layer.steps for layer in layers.values()))
    if len(steps) < limits["looks"] or max(steps) - min(steps) < limits["steps"]:
        return None
    if not _feeds(optimization.process, order[:front], order[front:]):
        return None
    return _finding(optimization, layers, order, front, len(steps), rule, limits)


def _layers(optimization: Optimization) -> dict[str, Layer]:
    """The modules of which gradients were measured, by name. Tensors at a rate of zero are frozen, and left out."""
    table = optimization.process.tables["parameters"]
    usable = (table["grad_finite"] == 1) & (table["closure"] == 0) & (table["elements"] > 0)
    chosen = (table["optimizer"] == optimization.optimizer) & (np.nan_to_num(table["lr"], nan=1.0) > 0) & usable
    names = table.text("parameter")
    layers: dict[str, Layer] = defaultdict(lambda: Layer({}, set()))
    for row in np.flatnonzero(chosen):
        name = str(names[row])
        layer = layers[name.rpartition(".")[0] or name]
        layer.tensors[name] = float(table["elements"][row])
        layer.steps.add(int(table["step"][row]))
        layer.zero &= bool(table["grad_largest"][row] == 0)
        layer.moved |= {name} - ({name} if table["weight_norm"][row] == 0 else set())
        layer.wanted |= {name} if table["grad_largest"][row] > 0 else set()
    return dict(layers)


def _in_order_of_call(process: Process, layers: dict[str, Layer]) -> list[str]:
    """The names of the layers that sampled forwards called, in the order in which they were called first."""
    first: dict[str, int] = {}
    for row in process.tables["activations"].records():
        if row["module"] in layers and row["order"] is not None:
            first[row["module"]] = min(int(row["order"]), first.get(row["module"], int(row["order"])))
    return sorted(first, key=lambda name: first[name])


def _feeds(process: Process, front: list[str], rest: list[str]) -> bool:
    """Whether the first layer of the rest takes as many features as the last one of the front puts out."""
    sizes = {row["module"]: row for row in process.tables["activations"].records()}
    given = [sizes[name]["outputs"] for name in front if sizes[name]["outputs"]]
    taken = [sizes[name]["inputs"] for name in rest if sizes[name]["inputs"]]
    return bool(given and taken) and given[-1] == taken[0]


def _finding(
    optimization: Optimization, layers: dict[str, Layer], order: list[str], front: int, looks: int, rule: str,
    limits: Limits,
) -> Finding:  # fmt: skip
    before, behind = order[front - 1], order[front]
    elements = [sum(layers[name].tensors.values()) for name in order]
    share = sum(elements[:front]) / sum(elements)
    counts = [len(layers[name].tensors) for name in order]
    return Finding(
        rule=rule,
        severity="warning" if share >= limits["share"] else "info",
        confidence="likely",
        title=f"Gradients are exactly zero in all layers before {behind}: "
        f"{sum(counts[:front])} of {plural(sum(counts), 'tensor')} never train",
        summary=(
            f"In all {looks} measurements the layers from {order[0]} to {before} had gradients of exactly zero, and "
            f"{behind} and what follows had others: {percent(share)} of what this optimizer holds is not trained. "
            f"Something between {before} and {behind} has a derivative of zero: a ReLU whose input is negative for "
            "every sample, round(), sign(), floor(), a comparison converted to a number, or a clamp that is always at "
            "its limit."
        ),
        fix="For a ReLU: bring its input above zero (zero biases, a lower learning rate), or use LeakyReLU. For "
        "rounding and comparisons: use a straight-through estimator, whose forward rounds and whose backward is the "
        "identity, or a soft version (sigmoid, tanh, Gumbel-softmax).",
        fix_code="# in place of rounding:\nsoft = torch.sigmoid(h)\ncode = soft + (soft.round() - soft).detach()",
        first_step=1,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("measurements, all of them zero", looks, "measurements", *limits.against("looks"), role="basis"),
            Evidence("share of the weights before the cut", share, "share", *limits.against("share")),
            Evidence("the layers", ", ".join(order[:front][:6])),
        ],
        location=optimization.process.module_location(before) or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization),
        false_alarm="First layers meant to stay fixed (random features, fixed codes) without being marked as frozen.",
        verify=f"Record the run again: the gradients of the layers up to {before} are not zero.",
    )
