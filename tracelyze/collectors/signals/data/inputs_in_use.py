"""What a model is given, read as it is called and once more when its backward is over: does it hold what it held?

Operations of torch that write into a tensor count its version up. A thread, another process or NumPy that fills the
same memory anew does not, and autograd then computes gradients from other inputs than the forward saw.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from threading import get_ident
from time import perf_counter
from typing import Any, Final

from tracelyze.collectors.cadence.decimation import Decimation
from tracelyze.collectors.internals.private_names import SAVED, UNSEEN
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.data import saved_inputs
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors import fingerprints, saved_values
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import as_reals, every_nth, is_plain, may_compute, unseen

ELEMENTS: Final = 512  # of each tensor
MAX_TENSORS: Final = 8  # of a step
FEWEST: Final = 4  # elements: what has fewer is a counter or a weight, which may be meant to move
MAX_KINDS: Final = 32  # arguments of modules that are told apart
CLOSER: Final = 16  # steps in a row that are looked at where a change was seen
MAX_CLOSER: Final = 4  # times that this is done
MAX_WALKS: Final = 32  # graphs that are searched for what they have saved
Row = dict[str, Any]


class _Given:
    """One tensor that a module was given. Holds it weakly."""

    def __init__(self, key: tuple[str, str], tensor: Any, sample: Any) -> None:
        self.key = key
        self.tensor = weakref.ref(tensor)
        self.version, self.extent = tensor._version, saved_inputs.extent(tensor)
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.sample = sample
        self.changed: Any = None  # share of the elements that had changed when it was last looked at: a scalar tensor
        self.saved: bool | None = None  # whether the graph of the backward has saved it; None: not looked for


class _Kind:
    """An argument of a module's: how often it was looked at, and how often it changed."""

    def __init__(self) -> None:
        self.looks = self.changed = self.saved = 0


class InputsInUse(Signal):
    name = "inputs_in_use"
    needs = (*UNSEEN, SAVED)
    columns = columns_of("inputs_in_use", "step module argument shape dtype looks changed saved share")
    about = "Inputs of a model that hold something else after its backward than when it was called."
    cost = "200 us per input and sample"
    sampled = True
    every = 10
    first_steps = 32  # what happens in one step of ten is then seen in 29 of 30 runs
    pausable = ("before_backward", "after_backward", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        saved_values.watch(self.torch)
        self._pending = PendingRows(self._arrived, "inputs_in_use")
        self._decimation = Decimation(self.meter)
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._given: list[_Given] = []
        self._closer = 0  # steps that are still to be looked at in a row
        self._closer_left = MAX_CLOSER
        self._walks_left = 0  # nothing is searched for before a change was seen
        self._error: Exception | None = None

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        """An input that the loop does not hold lives as long as autograd needs it: until somewhere in the backward.

        Where inputs were seen to change before: does autograd need those of this step?
        """
        if not self._given or not may_compute(self.torch, self._given[0].sample.is_cuda):
            return
        self._compare(self._given)
        if self._walks_left <= 0:
            return
        self._walks_left -= 1
        found = saved_inputs.saved(roots, {one.extent for one in self._given} - {saved_inputs.NOWHERE})
        for one in self._given:
            one.saved = one.extent in found

    def after_backward(self, roots: tuple[Any, ...]) -> None:
        given, self._given = self._given, []
        if self.context.next_call.given is not None and given:
            self.context.next_call.given = None
        if not given or not may_compute(self.torch, given[0].sample.is_cuda):
            return
        self._compare(given)
        known = [one for one in given if one.changed is not None]
        if known:
            rows = [self._row(one) for one in known]
            values = [one.changed for one in known]
            self._pending.put(rows, Readback(self.torch, values, lambda _row, read: _fill(rows, read)))

    def after_step(self, tracked: Tracked, row: Row) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._pending.waiting:
            self._pending.release()
        if tracked is not next(iter(self.program.optimizers.active()), tracked):
            return
        self._given.clear()
        wanted = self._decimation.due(tracked.count, alert=self._closer > 0)
        self._closer -= self._closer > 0
        self.context.next_call.given = self._called if wanted else None
        if not wanted and not self._pending.waiting:
            self.pause(self.progress.steps + self._decimation.steps_until_due(tracked.count) - 1)

    def finished(self) -> None:
        self.context.next_call.given = None
        self._pending.release(wait=True)
        for key, kind in self._kinds.items():
            self._emit({"step": self.progress.steps, "module": key[0], "argument": key[1]}, kind)

    def _called(self, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """An outermost module is about to be called. Never raises."""
        if self.context.thread.ident != get_ident() or self._error is not None:
            return
        begin = perf_counter()
        try:
            torch = self.torch
            with unseen(torch):
                if torch.is_grad_enabled() and may_compute(torch, torch.cuda.is_available()):
                    self._keep(type(module).__name__, [*fingerprints.fields(torch, args)])
                    self._keep(type(module).__name__, [*fingerprints.fields(torch, kwargs)])
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self._given, self._error = [], error
        spent = perf_counter() - begin
        self.meter.spent(spent)
        self.context.add_overhead(spent)

    def _keep(self, module: str, fields: list[tuple[str, Any]]) -> None:
        for name, tensor in fields:
            known = any(one.tensor() is tensor for one in self._given)
            if known or len(self._given) >= MAX_TENSORS or not is_plain(self.torch, tensor) or tensor.numel() < FEWEST:
                continue
            if tensor.requires_grad or tensor.is_inference() or isinstance(tensor, self.torch.nn.Parameter):
                continue  # What needs a gradient is computed, or optimized: an input that may be meant to change.
            if self._given and tensor.device != self._given[0].sample.device:
                continue
            sample = every_nth(as_reals(self.torch, tensor), ELEMENTS).clone()
            self._given.append(_Given((module, name), tensor, sample))

    def _compare(self, given: list[_Given]) -> None:
        """Set what share of each input has changed by now, of those that can be compared."""
        with self.torch.no_grad():
            for one in given:
                tensor = one.tensor()
                if tensor is None or tensor._version != one.version or saved_inputs.extent(tensor) != one.extent:
                    continue  # written into by an operation that autograd knows of; or `tensor.data = other`
                now = every_nth(as_reals(self.torch, tensor), ELEMENTS)
                if now.shape == one.sample.shape:
                    differs = (now != one.sample) & ~((now != now) & (one.sample != one.sample))  # NaN
                    one.changed = differs.sum(dtype=self.torch.float32) / now.numel()

    def _row(self, one: _Given) -> Row:
        shape, dtype = "x".join(str(size) for size in one.shape), str(one.dtype).removeprefix("torch.")
        row = {"step": self.progress.steps, "module": one.key[0], "argument": one.key[1], "saved": one.saved}
        return row | {"shape": shape, "dtype": dtype}

    def _arrived(self, table: str, row: Row) -> None:
        """A comparison is known: count it, and write down what changed."""
        key, saved = (row["module"], row["argument"]), row.pop("saved")
        if key not in self._kinds and len(self._kinds) >= MAX_KINDS:
            return
        kind = self._kinds.setdefault(key, _Kind())
        kind.looks += 1
        if row["share"]:
            kind.changed += 1
            kind.saved += saved is True
            if kind.changed == 1:
                self._walks_left = MAX_WALKS
            if self._closer == 0 and self._closer_left:
                self._closer, self._closer_left = CLOSER, self._closer_left - 1
                self.resume()
            self._emit(row, kind)

    def _emit(self, row: Row, kind: _Kind) -> None:
        counts = {"looks": kind.looks, "changed": kind.changed, "saved": kind.saved}
        self.context.emit("inputs_in_use", row | counts)


def _fill(rows: list[Row], read: list[float]) -> None:
    for row, share in zip(rows, read, strict=True):
        row["share"] = share if math.isfinite(share) else 0.0
