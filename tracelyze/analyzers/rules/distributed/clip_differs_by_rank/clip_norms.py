"""Norms by which ranks clip, of ranks that compute one model together: they have the same loss."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.rule import Passed, Skipped
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits

Clip = tuple[float, float, float]
"""Of one step: loss, norm before clipping, max_norm."""

RETURNED = 2  # steps.grad_norm_source: what the clip returned
MOST_STEPS = 500


_EXAMPLE: Final = """squares = sum(p.grad.pow(2).sum() for p in {weights} if p.grad is not None)
dist.all_reduce(squares)  # parts that every rank holds must count once
scale = ({limit} / (squares.sqrt() + 1e-6)).clamp(max=1.0)
for p in {weights}:
    if p.grad is not None:
        p.grad.mul_(scale)"""


def example(process: Process) -> str:
    """A clip by the norm of the whole model, in the words of the script's own clip where that is known."""
    own = own_statement.at(process, process.location("clip"))
    call = own.only_call("clip_grad_norm_") if own is not None else None
    if own is None or call is None or any(isinstance(one, ast.Starred) for one in call.args):
        return _EXAMPLE.format(weights="model.parameters()", limit="max_norm")
    named = {one.arg: one.value for one in call.keywords}
    weights = call.args[0] if call.args else named.get("parameters")
    limit = call.args[1] if len(call.args) > 1 else named.get("max_norm")
    code = _EXAMPLE.format(
        weights=own.parsed.text_of(weights) if weights is not None else "model.parameters()",
        limit=own.parsed.operand(limit) if limit is not None else "max_norm",
    )
    statement = own.parsed.statement
    if isinstance(statement, ast.Assign) and statement.value is call and isinstance(statement.targets[0], ast.Name):
        code += f"\n{statement.targets[0].id} = squares.sqrt()"
    return code


def clips_of(process: Process) -> dict[int, Clip]:
    """Losses and clips of one rank, by step; none where several optimizers step."""
    if len(process.optimizations) != 1:
        return {}
    steps = process.longest.steps
    columns = [steps[name] for name in ("loss", "grad_norm", "clip_max_norm")]
    known = np.isfinite(np.stack(columns)).all(0) & (steps["grad_norm_source"] == RETURNED)
    rows = np.flatnonzero(known)[:MOST_STEPS]
    found = {int(steps["step"][row]): (columns[0][row], columns[1][row], columns[2][row]) for row in rows}
    return {step: (float(a), float(b), float(c)) for step, (a, b, c) in found.items()}


def differing(ranks: Mapping[int, Mapping[int, Clip]], limits: Limits) -> dict[int, float] | Passed | Skipped:
    """By rank: how much its clip coefficient differs from that of the lowest rank, in the median.

    Only ranks that share a loss are compared: those with data of their own have norms of their own.
    """
    if len(ranks) < 2:
        return Skipped("fewer than two ranks clip gradients by their norm", "not-applicable")
    first = min(ranks)
    differ: dict[int, float] = {}
    for rank in sorted(ranks.keys() - {first}):
        steps = sorted(ranks[first].keys() & ranks[rank].keys())
        if len(steps) < limits["steps"]:
            return Skipped(f"clips of rank {rank} were looked at in too few of the steps of rank {first}")
        a = np.array([ranks[first][step] for step in steps])
        b = np.array([ranks[rank][step] for step in steps])
        losses = a[:, 0], b[:, 0]
        begin = steps[0] == 1
        if np.ptp(a[:, 0]) == 0 or not (_same_losses(*losses, limits) or (begin and _drift_apart(*losses, limits))):
            return Passed(
                f"ranks {first} and {rank} have losses of their own: no parts of one model that see one batch"
            )
        ratio = _coefficient(a) / _coefficient(b)
        apart = np.abs(ratio - 1) > limits["apart"]
        if apart.mean() >= limits["often"]:
            differ[rank] = float(np.median(np.abs(ratio[apart] - 1)))
    return differ or Passed(f"{plural(len(ranks), 'rank')} clip by the same norm")


def differing_by(one: Mapping[int, Clip], other: Mapping[int, Clip], apart: float) -> tuple[int, tuple[float, float]]:
    """The step at which the coefficients of two ranks differ nearest to this share, and the norms before clipping."""
    steps = sorted(one.keys() & other.keys())
    a, b = (_coefficient(np.array([clips[step] for step in steps])) for clips in (one, other))
    nearest = steps[int(np.argmin(np.abs(np.abs(a / b - 1) - apart)))]
    return nearest, (one[nearest][1], other[nearest][1])


def _same_losses(a: Floats, b: Floats, limits: Limits) -> bool:
    """Whether two ranks have the same loss at nearly all steps. `a`, `b`: the losses, shape [steps]."""
    return bool((np.abs(a - b) <= limits["loss"] * np.abs(a)).mean() >= limits["share"])


def _drift_apart(a: Floats, b: Floats, limits: Limits) -> bool:
    """Whether losses that began as one rise and fall together ever since, as those of the same batches do.

    Layers that every rank holds drift apart by clips that differ, and with them the losses.
    """
    losses = np.stack([a, b])
    if abs(a[0] - b[0]) > limits["loss"] * abs(a[0]) or losses.min() <= 0:
        return False
    changes = np.diff(np.log(losses), axis=1)[:, len(a) // 2 :]  # at first all losses fall alike
    return changes.shape[1] >= limits["steps"] and bool(np.corrcoef(changes)[0, 1] >= limits["together"])


def _coefficient(clips: Floats) -> Floats:
    """What the gradients were multiplied by, shape [steps]."""
    return np.asarray(np.minimum(1.0, clips[:, 2] / np.maximum(clips[:, 1], 1e-30)), dtype=np.float64)
