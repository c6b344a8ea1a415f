"""What is left of weights that were loaded: a few elements of each as they were loaded, and as the model is used first.

Weights are filled anew by functions that nobody wraps (`weight.data.normal_()`, a new Parameter). That shows in the
values: of what was loaded, nothing is left in them. Averages, pruning, scaling and other formats leave much of it.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen

ELEMENTS = 64  # of a tensor
FEWEST = 32  # A tensor with fewer elements says nothing about a correlation.
MAX_TENSORS = 2000
LOOKS = 8  # calls of other models until one is given up that takes part in none
HELD = 0.5  # Correlation: an average of two unlike models has 0.7 with each, 64 random elements do not reach it.
FEW = 2  # weights, of which it is counted what was filled along with them
EQUAL = 4  # elements, which pruning leaves; bfloat16 makes one or two equal by chance


class _Loaded:
    """The weights of one module after a load."""

    def __init__(self, module: Any, names: list[str], values: Any, sizes: Any, row: dict[str, Any]) -> None:
        self.module = weakref.ref(module, self._forget)
        self.names = names
        self.values = values  # shape [tensors, ELEMENTS]
        self.sizes = sizes
        self.row = row
        self.looks = 0

    def _forget(self, _module: Any) -> None:
        """The program has let go of the module: nothing that was read of it stays in memory, either."""
        self.values = None


class LoadedValues:
    """Compares them at the next call of a model that holds the module, or at a first step. Nothing waits."""

    def __init__(
        self,
        context: SignalContext,
        refilled: Callable[[Any], tuple[bool, int | None]],
        beside: Callable[[list[Any]], int],
    ) -> None:
        """`refilled`: whether torch.nn.init filled a weight since it was loaded, and at which line; `beside`: how many
        weights that were not loaded were filled along with these."""
        self._context = context
        self._refilled = refilled
        self._beside = beside
        self._torch = context.torch
        self._pending = PendingRows(self._record, "events")
        self._loaded: list[_Loaded] = []

    @property
    def waits(self) -> bool:
        """Whether there is anything to compare, or to write."""
        return bool(self._loaded or self._pending.waiting)

    def keep(self, module: Any, missing: set[str], row: dict[str, Any]) -> None:
        """Keep samples of the values that a load has left in a module. `row`: what is known of this load. `missing`:
        names that were not in it."""
        self._loaded = [one for one in self._loaded if one.module() not in (None, module)]
        if len(self._loaded) >= LOOKS:
            return
        found = [(name, one) for name, one in weights_of(self._torch, module) if name not in missing]
        if found and may_compute(self._torch, found[0][1].is_cuda):
            found = [(name, one) for name, one in found if one.device == found[0][1].device]
            with unseen(self._torch), self._torch.no_grad():
                values = samples(self._torch, [one for _, one in found])
            sizes = [[name, tuple(one.shape)] for name, one in found]
            self._loaded.append(_Loaded(module, [name for name, _ in found], values, sizes, row))

    def compare(self, model: Any) -> None:
        """`model` was called; None: an optimizer made its first step."""
        parts = {id(one) for one in model.modules()} if model is not None else None
        kept = self._loaded
        self._loaded = []
        for loaded in kept:
            module = loaded.module()
            if module is None:
                continue
            loaded.looks += 1
            if parts is None or id(module) in parts:
                self._look(loaded, module)
            elif loaded.looks < LOOKS:
                self._loaded.append(loaded)

    def release(self, wait: bool = False) -> None:
        """Write what has arrived."""
        self._pending.release(wait)

    def _look(self, loaded: _Loaded, module: Any) -> None:
        now = dict(weights_of(self._torch, module))
        same = [
            index for index, (name, shape) in enumerate(loaded.sizes) if name in now and tuple(now[name].shape) == shape
        ]
        row = loaded.row | {"tensors": len(loaded.names), "step": self._context.progress.steps}
        again = [self._refilled(now[loaded.names[index]]) for index in same]
        sites = [site for filled, site in again if filled]
        row |= {"refilled": len(sites), "refilled_site": sites[-1] if sites else None}
        if sites and len(same) <= FEW:
            row["beside"] = self._beside([now[loaded.names[index]] for index in same])
        if not same or not may_compute(self._torch, now[loaded.names[same[0]]].is_cuda):
            return
        device = now[loaded.names[same[0]]].device
        same = [index for index in same if now[loaded.names[index]].device == device]
        before = loaded.values
        if before.device != device:
            if not before.is_cpu:
                return  # to fetch them would mean to wait
            before = before.pin_memory().to(device, non_blocking=True)
        with unseen(self._torch), self._torch.no_grad():
            after = samples(self._torch, [now[loaded.names[index]] for index in same])
            facts = self._facts(before[same], after)
        self._pending.put([row], Readback(self._torch, facts, _summary))

    def _facts(self, before: Any, after: Any) -> Any:
        """Shape [3, tensors]: elements compared, how many are equal and not zero, and their correlation (NaN: none)."""
        count = (self._torch.isfinite(before) & self._torch.isfinite(after)).sum(1).clamp(min=1)
        equal = ((before == after) & (after != 0)).sum(1)
        return self._torch.stack([count.float(), equal.float(), correlations(self._torch, before, after)])

    def _record(self, _table: str, row: dict[str, Any]) -> None:
        if row.get("compared"):
            self._context.record_event("loaded-weights", row["name"], json.dumps(row))


def _summary(row: dict[str, Any], read: list[float]) -> None:
    """How many tensors still vary with what was loaded, and how those do together that do not."""
    third = len(read) // 3
    facts = zip(read[:third], read[third : 2 * third], read[2 * third :], strict=True)
    known = [one for one in facts if one[2] == one[2] and one[0] >= FEWEST]
    gone = [(count, correlation) for count, equal, correlation in known if abs(correlation) < HELD and equal < EQUAL]
    elements = sum(count for count, _ in gone)
    row.update(compared=len(known), gone=len(gone), elements=int(elements))
    row["correlation"] = sum(count * one for count, one in gone) / elements if elements else 1.0


def weights_of(torch: Any, module: Any) -> Iterator[tuple[str, Any]]:
    """The weights of a module, by the names that they had before an adapter was put around their layers."""
    for name, one in list(module.named_parameters())[:MAX_TENSORS]:
        real = is_plain(torch, one) and one.is_floating_point()
        if real and one.dim() > 1 and one.numel() >= FEWEST:  # Biases and norms are often constant.
            yield name.replace(".base_layer.", "."), one


def samples(torch: Any, tensors: list[Any]) -> Any:
    """Shape [tensors, ELEMENTS], by their places in the tensor whatever the order in memory; NaN beyond its end."""
    some = []
    for tensor in tensors:
        flat = tensor.detach().reshape(-1)[:: max(1, tensor.numel() // ELEMENTS)][:ELEMENTS].float()
        missing = ELEMENTS - flat.numel()
        some.append(torch.nn.functional.pad(flat, (0, missing), value=float("nan")) if missing else flat)
    return torch.stack(some)


def correlations(torch: Any, before: Any, after: Any) -> Any:
    """Shape [tensors]; NaN where the first are all alike."""
    there = torch.isfinite(before) & torch.isfinite(after)
    count = there.sum(1).clamp(min=1)
    first, second = (_centred(one, there, count) for one in (before, after))
    spread = (first.square().sum(1) * second.square().sum(1)).sqrt()
    correlation = (first * second).sum(1) / spread.clamp(min=1e-30)
    varied = first.square().sum(1) > 0
    return correlation.masked_fill(~varied, float("nan"))


def _centred(values: Any, there: Any, count: Any) -> Any:
    values = values.masked_fill(~there, 0.0)
    return (values - (values.sum(1) / count)[:, None]).masked_fill(~there, 0.0)
