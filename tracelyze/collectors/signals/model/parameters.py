"""Weights against their updates, and gradients, parameter by parameter: has a step changed them, and by how much?

Of every tensor a few hundred elements are copied before a sampled step and compared after it: a step that leaves all of
them as they were, bit for bit, did not happen for that tensor; one that leaves most of them was lost to rounding.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

from tracelyze.collectors.cadence.decimation import Decimation
from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.internals.private_names import NORMS, UNSEEN
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import as_reals, every_nth, is_plain, may_compute, norms_of

ELEMENTS = 256  # of each tensor
MAX_TENSORS = 256  # sampled; of larger models every so many-th
MAX_ROWS = 200_000
PER_TENSOR = 10
Row = dict[str, Any]


class _Before:
    """What a step found, of these tensors: index among those that the optimizer trains, and the tensor, held weakly."""

    def __init__(self, tensors: list[tuple[int, Any]], lengths: list[int], comparable: list[bool]) -> None:
        self.tensors = [(index, weakref.ref(tensor)) for index, tensor in tensors]
        self.identities = [id(tensor) for _, tensor in tensors]
        self.lengths = lengths  # numbers of each that are copied; a complex element is two numbers
        self.comparable = comparable  # elements of weight and gradient lie in the same order
        self.weights: Any = None  # [tensors, ELEMENTS]: the copies, zeros where a tensor has fewer
        self.reached: Any = None  # [tensors, ELEMENTS]: that element's gradient is not zero
        self.gradients: Any = None  # [tensors, 5]: norm, largest, median without zeros, how many are not zero, finite
        self.since: int | None = None  # steps since the sample before
        self.same: Any = None  # [tensors]: elements that are as they were at the sample before


class Parameters(Signal):
    name = "parameters"
    needs = (*UNSEEN, NORMS)
    columns = columns_of(
        "parameters",
        "time step optimizer parameter dtype elements dimensions lr weight_norm update_norm unchanged "
        "unchanged_reached unchanged_since since grad_norm grad_largest grad_usual grad_zeros grad_finite closure",
    )
    about = "Norms of every parameter, its gradient and its update; elements that a step left as they were."
    cost = "25 us per parameter tensor and sample"
    sampled = True
    every = 10
    first_steps = 2
    pausable = ("before_step", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._pending = PendingRows(context.emit, "parameters")
        self._names: ByIdentity[str] = ByIdentity()
        self._before: _Before | None = None
        # Step, identities and copies of the latest sample of each optimizer; gone with the optimizer.
        self._last: weakref.WeakKeyDictionary[Tracked, tuple[int, list[int], Any]] = weakref.WeakKeyDictionary()
        self._rows = 0
        self._decimation: dict[int, Decimation] = {}

    def before_step(self, tracked: Tracked) -> None:
        self._before = None
        decimation = self._decimation.get(tracked.index)
        if decimation is None:
            decimation = self._decimation[tracked.index] = Decimation(self.meter)
        if decimation.due(tracked.count) and self._rows < MAX_ROWS and may_compute(self.torch, tracked.on_cuda):
            chosen = self._choose(tracked)
            if chosen:
                with self.torch.no_grad():
                    self._before = self._gather(tracked, chosen)

    def after_step(self, tracked: Tracked, row: Row) -> None:
        before, self._before = self._before, None
        if before is not None and not row.get("skipped") and may_compute(self.torch, tracked.on_cuda):
            self._compare(tracked, before)
        if self._pending.waiting:
            self._pending.release()
        elif tracked.index in self._decimation:  # GradScaler may skip steps before any begins
            steps, active, known = self.progress.steps, self.program.optimizers.active(), self._decimation
            own = [(one, known[one.index].steps_until_due(one.count)) for one in active if one.index in known]
            self.pause(steps + min([one.steps_before(left, steps) for one, left in own], default=0))

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _choose(self, tracked: Tracked) -> list[tuple[int, Any, Any]]:
        """Index, weight and gradient of the tensors to sample, spread over the model; all on one device."""
        torch = self.torch
        held = tracked.parameters()
        stride = max(1, -(-len(held) // MAX_TENSORS))
        found = []
        for index in range(0, len(held), stride):
            weight, gradient = held[index], held[index].grad
            if gradient is None or not weight.numel() or weight.device != held[0].device:
                continue
            if is_plain(torch, weight) and is_plain(torch, gradient) and gradient.shape == weight.shape:
                found.append((index, weight, gradient))
        return found

    def _gather(self, tracked: Tracked, chosen: list[tuple[int, Any, Any]]) -> _Before:
        torch = self.torch
        gradients = [gradient for _, _, gradient in chosen]
        weights, lengths = _table(torch, [weight for _, weight, _ in chosen])
        alike = [weight.stride() == gradient.stride() for _, weight, gradient in chosen]
        before = _Before([(index, weight) for index, weight, _ in chosen], lengths, alike)
        before.weights = weights
        self._compare_with_last_sample(tracked, before)
        sample = _table(torch, gradients)[0]
        before.reached = sample != 0
        usual = sample.abs().masked_fill_(sample == 0, math.nan).nanmedian(1).values.nan_to_num_(0.0)
        norms, largest = norms_of(torch, gradients), norms_of(torch, gradients, math.inf)
        scale = getattr(tracked.optimizer, "grad_scale", None)
        if isinstance(scale, torch.Tensor):  # fused optimizers get their gradients still scaled
            norms, largest, usual = norms / scale, largest / scale, usual / scale
        finite = norms.isfinite().to(torch.float32)
        reached = before.reached.sum(1, dtype=torch.float32)
        before.gradients = torch.stack([norms, largest, usual.to(torch.float32), reached, finite], 1)
        return before

    def _compare_with_last_sample(self, tracked: Tracked, before: _Before) -> None:
        """Small updates to weights of few bits may add up in copies of more bits: one step alone does not show it."""
        weights = before.weights
        last = self._last.get(tracked)
        self._last[tracked] = (tracked.count, before.identities, weights)
        before.same = self.torch.zeros(len(weights), device=weights.device)
        if last is not None and last[1] == before.identities and last[2].device == weights.device:
            before.since = tracked.count - last[0]
            before.same = (weights == last[2]).sum(1, dtype=self.torch.float32)

    def _compare(self, tracked: Tracked, before: _Before) -> None:
        torch = self.torch
        held = [(index, tensor) for index, ref in before.tensors if (tensor := ref()) is not None]
        if len(held) < len(before.tensors):
            return
        tensors = [tensor for _, tensor in held]
        with torch.no_grad():
            after = _table(torch, tensors)[0]
            if after.shape != before.weights.shape:
                return
            same = after == before.weights
            sums = [before.weights.square(), (after - before.weights).square(), same, same & before.reached]
            weights = torch.stack([one.sum(1, dtype=torch.float32) for one in sums], 1)
            numbers = torch.cat([weights, before.gradients, before.same.unsqueeze(1)], 1)
        rows = [self._row(tracked, index, tensor) for index, tensor in held]
        self._rows += len(rows)
        self._pending.put(rows, Readback(torch, numbers, lambda _row, read: fill(rows, before, read)))

    def _row(self, tracked: Tracked, index: int, tensor: Any) -> Row:
        return {
            "time": self.context.now(),
            "step": tracked.count,
            "optimizer": tracked.index,
            "parameter": self._name(index, tensor),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "elements": tensor.numel(),
            "dimensions": tensor.dim(),
            "lr": rate_of(tracked.optimizer, tensor),
            "closure": self.progress.backwards > self.progress.backwards_at_step,
        }

    def _name(self, index: int, tensor: Any) -> str:
        """Its name in the model that was called. Looked for once: the search goes through all models. Layers that are
        unfrozen change the place of others among the tensors of an optimizer."""
        if tensor not in self._names:
            name = self.program.calls.parameter_name(tensor)
            self._names[tensor] = name or f"tensor {index} of the optimizer"
        return self._names[tensor]


def _table(torch: Any, tensors: list[Any]) -> tuple[Any, list[int]]:
    """Up to ELEMENTS numbers of each tensor as a row of a new table, filled up with zeros; and how many are of each."""
    pieces: list[Any] = []
    lengths: list[int] = []
    nothing = torch.zeros(ELEMENTS, device=tensors[0].device)
    for tensor in tensors:
        piece = every_nth(as_reals(torch, tensor), ELEMENTS)
        lengths.append(piece.numel())
        pieces += [piece, nothing[: ELEMENTS - piece.numel()]]
    return torch.cat(pieces).view(len(tensors), ELEMENTS), lengths


def rate_of(optimizer: Any, parameter: Any) -> float | None:
    """Learning rate of the group that holds a parameter; None if it has none, or one that lives on a device."""
    for group in getattr(optimizer, "param_groups", ()):
        if any(held is parameter for held in group["params"]):
            rate = group.get("lr")
            return float(rate) if isinstance(rate, (int, float)) else None
    return None


def fill(rows: list[Row], before: _Before, read: list[float]) -> None:
    """Put the numbers that came back from the device into the rows."""
    for index, row in enumerate(rows):
        numbers = read[PER_TENSOR * index :][:PER_TENSOR]
        weight, update, same, same_reached, norm, largest, usual, reached, finite, same_since = numbers
        length = before.lengths[index]
        whole = row["elements"] * (2 if row["dtype"].startswith("complex") else 1) / length
        row["weight_norm"], row["update_norm"] = math.sqrt(weight * whole), math.sqrt(update * whole)
        row["unchanged"] = (same - (ELEMENTS - length)) / length
        if before.since:
            row["since"], row["unchanged_since"] = before.since, (same_since - (ELEMENTS - length)) / length
        if before.comparable[index] and reached:
            row["unchanged_reached"] = same_reached / reached
        row["grad_norm"], row["grad_largest"], row["grad_finite"] = norm, largest, bool(finite)
        row["grad_usual"] = usual
        row["grad_zeros"] = 1.0 - reached / length
