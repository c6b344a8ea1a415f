"""What batches hold: fingerprints, by which a sample is recognised elsewhere, and a few statistics of every field.

Batches are taken as the DataLoader hands them out, before anything is copied to a device; in loops without one, as the
model is called. They are chosen by their place in the epoch, so that epochs, splits and ranks can be compared.
"""

from __future__ import annotations

import json
import math
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.internals.private_names import LOADER_ITERATOR, UNSEEN
from tracelyze.collectors.program.call import GRAD, Call, Input
from tracelyze.collectors.program.consumed.batches_in_hand import Batch
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.data.evaluated_calls import EARLY_PER_BATCH, LEAST, EvaluatedCalls
from tracelyze.collectors.signals.data.loader import batches_per_pass
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors import fingerprints
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute

FIRST = 8  # batches of an epoch that are all sampled
PER_EPOCH = 64  # further batches of an epoch that are sampled, evenly over its length
SPACING = 16  # batches between two samples where the length of the epoch is not known
EPOCHS = 8  # first passes over a loader that are sampled; of the later ones the powers of two are
EVERY_EPOCH = 16  # one pass in so many is sampled too
MAX_ROWS = 50_000
EARLY = 3  # first passes over a loader in which more samples are looked at: all of a small set
EARLY_SAMPLES = 4096  # the most samples that are looked at in these passes: 25 ms, once
PLACE = ("loader", "epoch", "batch", "time", "step")
MAX_UNSETTLED = 1000  # batches whose use is not known yet
MAX_ALERTS = 50  # batches sampled because the loss was out of the ordinary
Row = dict[str, Any]


class _Pass:
    """One pass over a loader."""

    def __init__(self, epoch: int, length: int | None, whole: bool = False) -> None:
        self.epoch = epoch
        self.whole = whole  # Every batch is looked at, however short the steps are.
        self.position = -1
        self.next = 0  # position at which to ask whether to sample
        self.wanted = epoch < EPOCHS or epoch & (epoch - 1) == 0 or epoch % EVERY_EPOCH == 0
        self.spacing = SPACING if length is None else power_of_two(math.ceil(length / PER_EPOCH))


class _WithoutLoader:
    """Calls of a model on what no loader has made, as one long pass. Skipped ones are counted with the next one."""

    def __init__(self) -> None:
        self.calls = _Pass(0, None)
        self._forwards = 0  # of the process when the latest one was dispatched
        self._goes_on = False  # The latest one had no loader, and neither had those that were skipped since.
        self._first: Sequence[Input] = ()  # what the first call since the latest backward was given
        self.latest: Sequence[Input] = ()  # what the latest call was given
        self._trains = False  # whether that call, or a later one with the same input, may be run through by a backward
        self._early = FIRST  # calls with autograd that are still all sampled, whatever was evaluated before them

    def called(self, forwards: int, without_loader: bool) -> None:
        """A call was dispatched, which was this one of the process."""
        skipped, self._forwards = forwards - self._forwards - 1, forwards
        self.calls.position += skipped * self._goes_on + without_loader
        self._goes_on = without_loader

    def early(self) -> bool:
        """Whether this call, with autograd, is one of the first that may be trained on."""
        self._early -= 1
        return self._early >= 0

    def left(self) -> int:
        """Calls before the next one that is to be sampled."""
        return self.calls.next - self.calls.position - 1

    def given(self, call: Call, fields: list[tuple[str, Any]]) -> None:
        """A call was given these tensors. Those of later calls may be what the model has made of the first one's."""
        inputs = self.latest = call.given or [(name, weakref.ref(tensor)) for name, tensor in fields]
        self._first = first = self._first or inputs  # an OS signal handler may train meanwhile, and clear it
        self._trains |= call.mode == GRAD and bool(inputs) and inputs[0][1]() is first[0][1]()

    def of_backward(self) -> list[tuple[str, Any]]:
        """What the first call since the backward before was given, as far as it is still in memory. Empty if no call
        with autograd was given the same."""
        held = self._first if self._trains else ()
        self._first, self._trains = (), False
        return _alive(held)


class _Spacing:
    """The spacing that the budget asks for, as a power of two."""

    def __init__(self) -> None:
        self._stride = self._spacing = 1

    def of(self, stride: int) -> int:
        if stride != self._stride:
            self._stride, self._spacing = stride, power_of_two(stride)
        return self._spacing


class _Sampled(NamedTuple):
    """What was seen of a batch; None for one that no loader made."""

    batch: Batch | None
    rows: list[Row]
    later: Readback | None


class Batches(Signal):
    name = "batches"
    needs = (*UNSEEN, LOADER_ITERATOR)
    columns = columns_of(
        "batches",
        "time step loader epoch batch trained field dtype shape mean std min max zeros nonfinite classes prints print "
        "alert",
    )
    about = "Fingerprints of samples, by which they are recognised elsewhere, and statistics of every field of a batch."
    cost = "100 us per field and sample"
    sampled = True
    pausable = ("settled", "after_step")
    copied_columns = ()

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._fingerprints = fingerprints.Fingerprints(self.torch)
        self._pending = PendingRows(context.emit, "batches")
        self._epochs: ByIdentity[int] = ByIdentity()
        self._passes: ByIdentity[_Pass] = ByIdentity()
        self._without_loader = _WithoutLoader()
        self._rows = 0
        self._alerts = 0
        self._places: deque[Any] = deque(maxlen=MAX_UNSETTLED)  # of batches that were sampled as they came
        self._early = EARLY_SAMPLES  # samples that may still be looked at in early passes
        self._evaluated = EvaluatedCalls()
        self._spacing = _Spacing()
        self._place: tuple[Any, ...] = None, 0, 0, 0.0, 0  # PLACE of the batch that is sampled
        self._in_use: Batch | None = None
        self._sampled: list[_Sampled] = []  # what was seen of batches that are still to be used
        self._used: deque[tuple[Call, list[Row], Readback | None]] = deque()

    def iterate(self, loader: Any, iterator: Any) -> None:
        epoch = self._epochs.get(loader, -1) + 1
        self._epochs[loader] = epoch
        length = batches_per_pass(loader)
        samples = (length or 0) * max(fingerprints.SAMPLES, loader.batch_size or 1)
        self._passes[iterator] = _Pass(epoch, length, epoch < EARLY and 0 < samples <= self._early)

    def batch(self, iterator: Any, seconds: float, batch: Any) -> None:
        number = self.progress.loader
        current = self._passes.get(iterator)
        given = self.program.batches.newest
        if current is not None and given is not None and given.loader == number:
            if self._sampled:
                self._put_away()
            current.position = position = current.position + 1
            wanted = position >= current.next and self._wanted(current)
            given.place = number, current.epoch, position, self.context.now(), self.progress.steps
            if wanted:
                self._places.append(given.place)
                self._sample_new(fingerprints.fields(self.torch, batch), given, early=current.epoch < EARLY)

    def next_full_step(self) -> float:
        if self._sampled or self._used:
            return self.progress.steps  # It has yet to see which call uses it, and what for.
        return math.inf

    def next_full_call(self) -> float:
        if self.progress.loader is not None:
            return math.inf  # The batches themselves are dispatched.
        return self.progress.forwards + self._without_loader.left() + 1

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        self._without_loader.called(self.progress.forwards, call.batch is None)
        current, self._in_use = self._without_loader.calls, call.batch
        if call.batch is None and call.mode == GRAD and not call.replayed:  # A skipped call was seen as it was made.
            self.program.inputs.called(args[0] if args else next(iter(kwargs.values()), None))
        given = [*fingerprints.fields(self.torch, args), *fingerprints.fields(self.torch, kwargs)]
        self._without_loader.given(call, given)
        # What another module has put out, as a backbone for a head that is called by itself, is no batch.
        alone = bool(given) and call.batch is None and all(tensor.grad_fn is None for _, tensor in given)
        chosen = alone and not call.replayed and self._chosen(call)
        if chosen:
            current.next = current.position + 1
        due = alone and current.position >= current.next
        if self.meter.decide(True) if chosen else due and self._wanted(current):
            self._put_away()
            self._place = None, 0, current.position, self.context.now(), self.progress.steps
            self._sample_new(given[: fingerprints.FIELDS], None, early=True)
        for index, sampled in enumerate(self._sampled):
            if sampled.batch is call.batch:
                self._used.append((call, sampled.rows, sampled.later))
                del self._sampled[index]
                break
        if len(self._used) > MAX_UNSETTLED:  # calls that were never settled
            self._pending.put(*self._used.popleft()[1:])

    def _chosen(self, call: Call) -> bool:
        """Whether to look at a call on what no loader has made, wherever it stands among all of them."""
        return self._without_loader.early() if call.mode == GRAD else self._evaluated.wanted(call)

    def settled(self, call: Call, trained: bool) -> None:
        while self._used and self._used[0][0] is call:
            _, rows, later = self._used.popleft()
            for row in rows:
                row["trained"] = trained
            self._pending.put(rows, later)

    def loss(self, value: Any) -> None:
        """A loss that is no number as it is made: the loop may give its batch up, of which no backward then tells."""
        call = self.program.calls.latest
        if call is None or call.mode != GRAD or self._alerts >= MAX_ALERTS or not value.is_cpu:
            return
        if not may_compute(self.torch) or math.isfinite(value.item()):
            return
        batch = call.batch
        unseen = batch is None or (batch.place and batch.place not in self._places)
        fields = _alive(self._without_loader.latest if batch is None else batch.fields)
        if not unseen or not fields or any(call is used for used, _, _ in self._used):
            return
        if any(tensor.grad_fn is not None for _, tensor in fields):
            return  # another model's answer
        self._alerts += 1
        if batch is None:
            self._place = None, 0, self._without_loader.calls.position, self.context.now(), self.progress.steps
        else:
            self._place = batch.place
            self._places.append(batch.place)
        rows, later = self._sample(fields, alert=True)
        if rows:
            self.resume()
            self._used.append((call, rows, later))

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        """A loss that is not finite: what was its model given? Autograd still holds it, until the backward is over."""
        backward, fields = self.program.backwards.running, self._without_loader.of_backward()
        value = None if backward is None else backward.value
        if type(value) is not float or math.isfinite(value):
            return
        batch = () if self._in_use is None else [held() for _, held in self._in_use.fields]
        if any(tensor is one for _, tensor in fields for one in batch):
            return  # The model was given the batch as the loader made it: `after_step` samples it.
        if self._used and self._used[-1][0] is self.program.calls.latest and self._in_use is None:
            fields = []  # `loss` has sampled it.
        if fields and self._alerts < MAX_ALERTS and all(tensor.grad_fn is None for _, tensor in fields):
            self._alerts += 1
            self.program.sites.wanted.add("singular")  # A division may have made them so.
            position = self._without_loader.calls.position
            self._place = None, 0, position, self.context.now(), self.progress.steps
            self._put_alert(fields)

    def after_step(self, tracked: Any, row: Row) -> None:
        batch = self._in_use
        unseen = batch is not None and batch.place and batch.place not in self._places
        if self.progress.alert and batch is not None and unseen and self._alerts < MAX_ALERTS:
            self._alerts += 1
            self._place = batch.place
            self._put_alert(_alive(batch.fields))
        if self._pending.waiting:
            self._pending.release()
        if not (self._used or self._sampled or self._pending.waiting):
            self.pause()

    def finished(self) -> None:
        self._put_away(everything=True)
        for _, rows, later in self._used:
            self._pending.put(rows, later)
        self._pending.release(wait=True)
        order = self.program.inputs.found()
        if order.steps:
            self.context.record_event("input-order", "", json.dumps(order._asdict()))

    def _put_alert(self, fields: list[tuple[str, Any]]) -> None:
        """Sample a batch that was trained on, because the loss is out of the ordinary."""
        rows, later = self._sample(fields, alert=True)
        for one in rows:
            one["trained"] = True
        if rows:
            self._pending.put(rows, later)

    def _wanted(self, current: _Pass) -> bool:
        """Whether to sample the batch that has come next in this pass, which it is time to ask."""
        position = current.position
        # What is evaluated without a loader is held against all that is trained on.
        whole = current.whole or (current is self._without_loader.calls and self._evaluated.all_trained())
        spacing = 1 if whole else max(current.spacing, self._spacing.of(self.meter.stride))
        chosen = position < FIRST or position % spacing == 0
        sampling = self.meter.decide(chosen and current.wanted and self._rows < MAX_ROWS)
        current.next = position + 1 if sampling else position - position % spacing + spacing
        return sampling

    def _sample_new(self, fields: list[tuple[str, Any]], batch: Batch | None, early: bool) -> None:
        self.context.fast_path.leave()  # The skipped call used the batch before.
        if batch is not None:
            self._place = batch.place
        count = fingerprints.SAMPLES
        if early and self._early > 0:
            size = max([tensor.shape[0] for _, tensor in fields if tensor.dim()], default=1)
            count = max(count, min(size, self._early, EARLY_PER_BATCH))
            self._early -= max(count, LEAST)
        rows, later = self._sample(fields, count)
        self.resume()
        if rows:
            self._sampled.append(_Sampled(batch, rows, later))

    def _put_away(self, everything: bool = False) -> None:
        """Batches that gave way to others without a module having been called with them."""
        waiting = self.program.batches.waiting
        left = [one for one in self._sampled if not everything and one.batch is not None and waiting(one.batch)]
        for one in self._sampled:
            if one not in left:
                self._pending.put(one.rows, one.later)
        self._sampled = left

    def _sample(
        self, fields: list[tuple[str, Any]], count: int = fingerprints.SAMPLES, alert: bool = False
    ) -> tuple[list[Row], Readback | None]:
        torch = self.torch
        on_cuda = any(tensor.is_cuda for _, tensor in fields)
        if not fields or not may_compute(torch, on_cuda):
            return [], None
        rows: list[Row] = []
        values: list[Any] = []
        measured: list[Row] = []
        with torch.no_grad():
            for name, tensor in fields:
                row: Row = dict(zip(PLACE, self._place, strict=True)) | {"field": name, "alert": alert}
                row["dtype"] = str(tensor.dtype).removeprefix("torch.")
                row["shape"] = "x".join(str(size) for size in tensor.shape)
                row["prints"], row["print"] = self._fingerprints.of(tensor, count)
                if is_plain(torch, tensor) and tensor.numel() and not tensor.dtype.is_complex:
                    counted = fingerprints.classes(tensor)
                    row["classes"] = json.dumps(counted) if counted else None
                    values += fingerprints.statistics(torch, tensor)
                    measured.append(row)
                rows.append(row)
            self._rows += len(rows)
            same_device = len({value.device for value in values}) == 1
            later = Readback(torch, values, lambda _row, read: _fill(measured, read)) if same_device else None
        return rows, later


def _alive(held: Sequence[Input]) -> list[tuple[str, Any]]:
    return [(name, tensor) for name, reference in held if (tensor := reference()) is not None]


def power_of_two(at_least: int) -> int:
    """The smallest power of two that is no less: places that it divides are a part of those of every smaller one."""
    return 1 << max(0, at_least - 1).bit_length()


def _fill(rows: list[Row], read: list[float]) -> None:
    names = ("mean", "std", "min", "max")
    for index, row in enumerate(rows):
        *values, there, total = read[6 * index : 6 * index + 6]
        row.update(zip(names, values, strict=True), zeros=1.0 - there)
        row["nonfinite"] = not math.isfinite(total)
