"""How far an optimizer that divides by averages of squared gradients (Adam) moves the weights, whatever the rate.

Its update is the rate times m / (sqrt(v) + eps). Of a few large tensors some elements of m, v and the gradient are
copied behind a step: one kernel. What they come to is computed for many steps at once, and read later.
"""

from __future__ import annotations

import weakref
from typing import Any, Final, NamedTuple

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import every_nth, is_plain, may_compute

TENSORS = 2  # the largest that an optimizer holds
ELEMENTS = 96  # of each
HELD = 32  # steps whose numbers are computed at once
BYTES = 4  # of a float32
LONGEST = 5.0  # seconds: a program that is killed loses what waits
RETRIED_AFTER = 32  # steps, where an optimizer held nothing of the kind; later as many as it has made
MAX_ROWS = 500_000
KNOWN: Final = (("exp_avg", "max_exp_avg_sq"), ("exp_avg", "exp_avg_sq"), (None, "square_avg"))
"""Names of m and v in the state of torch's optimizers; RMSprop has no m, so it takes the gradient."""
OTHERS: Final = frozenset({"acc_delta", "ax", "exp_inf", "grad_avg", "momentum_buffer", "prev", "step_size"})
"""Names in the state of those of torch's optimizers whose update is another one."""
Row = dict[str, Any]


class _Place(NamedTuple):
    """Elements of one parameter, held weakly: where they lie in it, in its averages and in its gradient."""

    parameter: weakref.ref[Any]
    first: str | None
    second: str
    size: tuple[int, ...]
    stride: tuple[int, ...]


class _Waiting:
    """Steps whose numbers are not computed yet. On a CPU what was copied of them lies in plain memory: it outlives the
    optimizer, and no tensor of a training that is over stays alive for it."""

    def __init__(self, number: int, elements: int, eps: float, on_cpu: bool) -> None:
        self.number, self.elements, self.eps = number, elements, eps
        self.rows: list[Row] = []
        self._memory = bytearray(BYTES * HELD * 3 * elements) if on_cpu else None

    def table(self, torch: Any) -> Any:
        """Shape [HELD, 3 * elements], over that memory; None on another device."""
        if self._memory is None:
            return None
        return torch.frombuffer(self._memory, dtype=torch.float32).view(HELD, 3 * self.elements)


class _Sample:
    """The elements of one optimizer that are copied, and where to. Holds no tensor of it, and is gone with it."""

    def __init__(self, torch: Any, number: int, places: list[_Place], device: Any, eps: float) -> None:
        self.places = places
        elements = sum(place.size[0] for place in places)
        self.waiting = _Waiting(number, elements, eps, device.type == "cpu")
        self.table = self.waiting.table(torch)
        if self.table is None:
            self.table = torch.empty((HELD, 3 * elements), dtype=torch.float32, device=device)
        self.lines = list(self.table.unbind(0))


class Updates(Signal):
    name = "updates"
    needs = UNSEEN
    columns = columns_of("updates", "time step optimizer sample size gradient second lost own_step")
    about = "Size of the updates of Adam and its like, whatever the rate, beside gradients and second moments."
    cost = "nothing without such an optimizer; else 70 us a sample, at least every eighth step"
    sampled = True
    first_steps = 100
    max_stride = 8
    copied_columns = ()
    reads_skipped_steps = True
    inactive = ("after_step",)

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._pending = PendingRows(context.emit, "updates")
        # By optimizer, until that is gone. A number instead of a sample: the step after which to look for one.
        self._samples: weakref.WeakKeyDictionary[Tracked, _Sample | float] = weakref.WeakKeyDictionary()
        self._uncomputed: dict[int, _Waiting] = {}  # by number of the sample, also of optimizers that are gone
        self._numbers = self._rows = 0

    def first_step(self, tracked: Tracked) -> None:
        if not self.active and any(_averages(p, _state(tracked, p)) for p in tracked.parameters()):
            self.activate()

    def after_step(self, tracked: Tracked, row: Row) -> None:
        if row.get("skipped") or tracked.inside_backward or tracked.by_hand:
            self.meter.sampling = False
        elif self.due(tracked):
            self._look(tracked, row["time"])

    def fast_values(self, tracked: Tracked, time: float) -> tuple[()]:
        if not tracked.count % self.meter.stride and self.meter.decide(True):
            self._look(tracked, time)
            self.meter.sampling_began()
            self.meter.sampling = False
        return ()

    def finished(self) -> None:
        self._compute_what_is_left()
        for sample in self._living():
            self._compute(sample.waiting, sample.table)
        self._pending.release(wait=True)

    def _look(self, tracked: Tracked, time: float) -> None:
        sample = self._samples.get(tracked)
        if not isinstance(sample, _Sample):
            if sample is not None and tracked.count < sample:
                return
            self._compute_what_is_left()
            sample = self._samples[tracked] = self._choose(tracked)
            if not isinstance(sample, _Sample):
                return
        if self._rows < MAX_ROWS and may_compute(self.torch, tracked.on_cuda):
            own = self._copy(tracked.optimizer.state, sample)
            if own is None:  # Tensors were exchanged, frozen or freed.
                self._compute(sample.waiting, sample.table)
                self._samples[tracked] = tracked.count + RETRIED_AFTER
                return
            waiting = sample.waiting
            row = {"time": time, "step": tracked.count, "optimizer": tracked.index, "sample": waiting.number}
            waiting.rows.append({**row, "own_step": own if own >= 0 else None})
            self._uncomputed[waiting.number] = waiting
            self._rows += 1
            if len(waiting.rows) == HELD or time - waiting.rows[0]["time"] > LONGEST:
                self._compute(waiting, sample.table)
            if self._pending.waiting:
                self._pending.release()

    def _copy(self, states: Any, sample: _Sample) -> float | None:
        """Copy the elements of m, of v and of the gradients. Returns the steps that the state counts, -1 where it does
        not say; None where the tensors are not what they were."""
        first, second, gradients = [], [], []
        try:
            for parameter, m, v, size, stride in sample.places:
                weight: Any = parameter()
                state, gradient = states.get(weight), weight.grad  # states[weight] would add an entry
                gradients.append(gradient.as_strided(size, stride))
                first.append(gradients[-1] if m is None else state[m].as_strided(size, stride))
                second.append(state[v].as_strided(size, stride))
            self.torch.cat(first + second + gradients, out=sample.lines[len(sample.waiting.rows)])
        except (AttributeError, KeyError, RuntimeError, TypeError) as error:
            if raised_by_a_signal_handler(error):
                raise
            return None
        own = state.get("step", -1)
        if isinstance(own, self.torch.Tensor):
            own = own.item() if own.is_cpu and own.numel() == 1 else -1  # on a device it would have to be waited for
        return own if isinstance(own, int | float) else -1

    def _choose(self, tracked: Tracked) -> _Sample | float:
        """A sample of what this optimizer holds now; or else the step after which to ask again."""
        torch, eps = self.torch, 0.0
        if not may_compute(torch, tracked.on_cuda):
            return tracked.count + 1
        places: list[_Place] = []
        device = None
        for parameter in sorted(tracked.parameters(), key=_elements, reverse=True):
            state = _state(tracked, parameter)
            names = _averages(parameter, state)
            if names is None or not _alike(torch, [parameter, parameter.grad, *[state[one] for one in names if one]]):
                continue
            if device is None:
                device, eps = parameter.device, _epsilon(tracked, parameter)
            if parameter.device == device:
                few = every_nth(parameter, ELEMENTS)
                places.append(_Place(weakref.ref(parameter), *names, tuple(few.shape), few.stride()))
            if len(places) == TENSORS:
                break
        if not places:  # It goes through all parameters, and some hold nothing of the kind ever (DTensors).
            return tracked.count + max(RETRIED_AFTER, tracked.count)
        self._numbers += 1
        return _Sample(torch, self._numbers, places, device, eps)

    def _living(self) -> list[_Sample]:
        """The samples of optimizers that are not gone."""
        return [one for one in list(self._samples.values()) if isinstance(one, _Sample)]

    def _compute_what_is_left(self) -> None:
        """What optimizers have left that are gone, as one has that a function made for each of several trainings."""
        living = {one.waiting.number for one in self._living()}
        for waiting in [one for number, one in self._uncomputed.items() if number not in living]:
            self._compute(waiting, waiting.table(self.torch))

    def _compute(self, waiting: _Waiting, table: Any) -> None:
        self._uncomputed.pop(waiting.number, None)
        rows, waiting.rows = waiting.rows, []
        if not rows or table is None or not may_compute(self.torch, table.is_cuda):
            return
        torch = self.torch
        with torch.no_grad():
            m, v, g = table[: len(rows)].view(len(rows), 3, waiting.elements).unbind(1)
            size = (m / (v.sqrt() + waiting.eps)).masked_fill_(m == 0, 0.0)
            lost = (v == 0) & (m != 0)
            means = [size.square().mean(1), g.square().mean(1)]
            means += [v.mean(1), lost.to(torch.float32).mean(1), (v < 0).to(torch.float32).mean(1)]
            numbers = torch.stack(means, 1)
        self._pending.put(rows, Readback(torch, numbers, lambda _row, read: _fill(rows, read)))


def _fill(rows: list[Row], read: list[float]) -> None:
    """Put the numbers that came back from the device into the rows. What can be negative is no mean of squares."""
    negative = any(read[4::5])
    for index, row in enumerate(rows):
        size, gradient, second, lost, _ = read[5 * index :][:5]
        if not negative:
            row |= {"size": size**0.5, "gradient": gradient**0.5, "second": second**0.5, "lost": lost}


def _state(tracked: Tracked, parameter: Any) -> dict[str, Any]:
    """What the optimizer keeps of a parameter; nothing is added to it."""
    states = getattr(tracked.optimizer, "state", None)
    state = states.get(parameter) if isinstance(states, dict) else None
    return state if isinstance(state, dict) else {}


def _averages(parameter: Any, state: dict[str, Any]) -> tuple[str | None, str] | None:
    """Names of the averages of its gradients and of their squares in a parameter's state. An optimizer of the script's
    own may call them anything: its two tensors of that shape, in this order."""
    if OTHERS.intersection(state):
        return None
    for first, second in KNOWN:
        if second in state and (first is None or first in state):
            return first, second
    own = [name for name, one in state.items() if getattr(one, "shape", None) == parameter.shape and parameter.dim()]
    return (own[0], own[1]) if len(own) == 2 else None


def _alike(torch: Any, tensors: list[Any]) -> bool:
    """Whether the elements of all lie in the same places, one beside the other."""
    parameter = tensors[0]
    return (
        all(
            one is not None
            and is_plain(torch, one)
            and one.is_floating_point()
            and (one.shape, one.stride(), one.device) == (parameter.shape, parameter.stride(), parameter.device)
            for one in tensors
        )
        and every_nth(parameter, ELEMENTS).data_ptr() == parameter.data_ptr()
    )


def _epsilon(tracked: Tracked, parameter: Any) -> float:
    groups = tracked.optimizer.param_groups
    held: dict[str, Any] = next((one for one in groups if any(parameter is p for p in one["params"])), {})
    eps = held.get("eps", 0.0)
    return float(eps) if isinstance(eps, int | float) else 0.0


def _elements(parameter: Any) -> int:
    return int(parameter.numel())
