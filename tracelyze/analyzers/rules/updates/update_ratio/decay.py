"""Weight decay that takes the weights away faster than gradients can build them up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.optimization import ratios
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Threshold
from tracelyze.diagnosis import Evidence, Finding, Setting
from tracelyze.formatting import number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits

DECAY = Threshold("decay", 0.01, "share", "of the weights at each step: without gradients they halve within 69 steps")
SHRUNK = Threshold("shrunk", 0.2, "share", "of their first norm: no usual training comes near to that")
THRESHOLDS = (DECAY, SHRUNK)
SHRINKING = ("AdamW", "SGD", "NAdamW", "Lion")
"""Optimizers that take `lr * weight_decay` of the weights away, whatever their gradients are."""


def finding(optimization: Optimization, rule: str, limits: Limits) -> Finding | None:
    """A decay that the weights gave in to, of a training whose loss did not fall."""
    options = _options(optimization)
    rates = optimization.steps["lr"][np.isfinite(optimization.steps["lr"])]
    name = str(optimization.facts.get("name") or "")
    decay, rate = float(options.get("weight_decay") or 0.0), float(np.median(rates)) if len(rates) else 0.0
    shrinks = name in SHRINKING or bool(options.get("decoupled_weight_decay"))
    left, fell = _left(optimization), ratios.fall(optimization)
    if not shrinks or decay * rate < limits["decay"] or left is None or left > limits["shrunk"]:
        return None
    if fell is not None and fell >= limits["falls"]:
        return None
    begin, usual = timing.step_at(optimization, 0), "1e-4" if name == "SGD" else "0.01"
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"Weight decay takes {percent(decay * rate)} off the weights at every step",
        summary=(
            f"{name} multiplies the weights by 1 - lr * weight_decay = {number(1 - decay * rate)} at every step "
            f"(lr {number(rate)}, weight_decay {number(decay)}). They shrank to {percent(left)} of their first norm, "
            "and the loss did not fall: the gradients cannot build up what the decay takes away."
        ),
        fix="Lower weight_decay: 0.01 to 0.1 is usual for AdamW, 1e-4 to 5e-4 for SGD.",
        fix_code=f"optimizer = torch.optim.{name}(model.parameters(), lr={rate:.2g}, weight_decay={usual})",
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("lr * weight_decay", decay * rate, "share", *limits.against("decay")),
            Evidence("norm of the weights, of that at first", left, "share", *limits.against("shrunk"), role="most"),
            Evidence("weight_decay", decay, role="setting"),
        ],
        cost=timing.cost_of(optimization, np.ones(len(optimization.steps), dtype=bool)),
        setting=Setting(("weight_decay",), (decay,), usual),
        location=optimization.made_at or optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization),
        false_alarm="A decay that is to forget on purpose.",
    )


def _options(optimization: Optimization) -> dict[str, Any]:
    """What the optimizer was made with, if all of its parameters have the same."""
    text = optimization.facts.get("options")
    found = json.loads(str(text)) if text and optimization.facts.get("groups") == 1 else {}
    return found if isinstance(found, dict) else {}


def _left(optimization: Optimization) -> float | None:
    """The smallest norm that the weights came to, over the first: the median of the tensors. None: not looked at."""
    rows: dict[str, list[float]] = {}
    for row in optimization.process.tables["parameters"].records():
        large = row["optimizer"] == optimization.optimizer and (row["elements"] or 0) >= ratios.FEWEST
        if large and row["weight_norm"]:
            rows.setdefault(str(row["parameter"]), []).append(float(row["weight_norm"]))
    left = [min(norms) / norms[0] for norms in rows.values() if len(norms) > 1]
    return float(np.median(left)) if left else None
