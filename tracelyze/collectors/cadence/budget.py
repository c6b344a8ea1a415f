"""What collecting costs, signal by signal, and how often sampled signals may sample so that all of it stays affordable.

Every signal has a meter. Samples are all timed, everything else at every TIMED_EVERY-th event, so that measuring costs
next to nothing. Every WINDOW steps the budget, a share of the step time, is distributed: what the always-on signals
take comes off first; of the rest, cheap sampled signals get all they ask for, and the most expensive are turned down
to equal shares of what remains.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

WINDOW = 32  # steps between two distributions of the budget
TIMED_EVERY = 31  # events; a prime, so that it does not keep step with the events of a training step
TIMED_FIRST = 200  # The first events are all timed: they hold what is done only once.
OUTLIERS = 2  # The longest steps of a window do not count: an evaluation or a checkpoint must not raise the budget.
EVICTION = 2.0  # what recording costs in all, per second spent in it: it evicts the training from the caches (measured)
LEFT_OVER = 0.2  # share of the budget that sampled signals have even if the always-on ones overspend
AT_LEAST = 5e-6  # seconds a step that sampled signals always have: little beside what a step takes by itself
USUAL_SHARE = 0.01  # AT_LEAST is meant for a budget of 1%, and is less for smaller ones.
TRUSTED_SAMPLES = 3  # samples before the measured cost of one is used: the first one pays for imports and caches
CAUTIOUS = 50  # the most steps between two samples of a signal with fewer than TRUSTED_SAMPLES
EASING = 0.7  # A cadence goes up only if it then is this much quicker: no back and forth.
SMOOTHING = 0.2  # how much the latest window counts in what the always-on signals take
EXTRA_SAMPLES = 50  # out of turn, on alert, that a run may take at once; each one in turn earns another


class Sampled(Protocol):
    """What a meter has to know of a kind of signals: class variables of `signals.signal.Signal`."""

    name: str
    sampled: bool
    every: int
    first_steps: int
    max_stride: int | None


class SampleCosts:
    """What a sample of one signal takes: the median of the last few windows."""

    def __init__(self) -> None:
        self._of_windows: deque[float] = deque(maxlen=5)
        self._counted = (0, 0.0)

    def seconds(self, samples: int, seconds: float) -> float | None:
        """Seconds of one sample; None before the first one. So far `samples` were made, in `seconds` altogether."""
        known, before = self._counted
        if samples > known:
            self._of_windows.append((seconds - before) / (samples - known))
            self._counted = (samples, seconds)
        return statistics.median(self._of_windows) if self._of_windows else None


class Decision(NamedTuple):
    """What the budget has decided on a signal's cadence last."""

    changes: int = 0  # so far
    turned_down_at: int | None = None  # the step at which it was turned down, if it is
    why: str = ""


class Meter:
    """What one signal has cost, and its cadence."""

    def __init__(self, kind: Sampled, fixed: int | None) -> None:
        self.name = kind.name
        self.sampled = kind.sampled
        self.base = fixed or kind.every
        self.fixed = fixed is not None
        self.first_steps = 0 if self.fixed else kind.first_steps
        self.max_stride = kind.max_stride
        self.stride = self.base
        self.sampling = False
        self.samples = 0
        self.sample_seconds = 0.0
        self.seconds = 0.0
        self.decision = Decision()
        self._began = 0.0  # when the latest sample was decided on
        self._extra = 0
        self._costs = SampleCosts()

    def due(self, count: int, alert: bool = False) -> bool:
        """Whether to sample the `count`-th step (or batch, or call): all of the first ones, then every n-th."""
        if count % self.stride and count >= self.first_steps:
            if not alert or 2 * self._extra >= EXTRA_SAMPLES + self.samples:
                self.sampling = False
                return False
            self._extra += 1
        return self.decide(True)

    def steps_until_due(self, count: int) -> int:
        """Steps from the `count`-th to the next one that is to be sampled; 0 if it is that one itself."""
        return 0 if count < self.first_steps else -count % self.stride

    def decide(self, sampling: bool) -> bool:
        """Note whether the signal samples: for signals that decide it themselves, within `stride`."""
        self.sampling = sampling
        if sampling:
            self.samples += 1
            self._began = perf_counter()
        return sampling

    def sample_cost(self) -> float | None:
        """Seconds that a sample takes; None before the first one."""
        return self._costs.seconds(self.samples, self.sample_seconds)

    def set_stride(self, wanted: float) -> bool:
        """Sample every `wanted` steps, within the signal's limits; whether that changed anything worth mentioning."""
        limit = self.max_stride if self.samples >= TRUSTED_SAMPLES else CAUTIOUS
        stride = max(self.base, math.ceil(min(wanted, limit or math.inf, 1e9)))
        if self.stride * EASING <= stride <= self.stride:
            return False
        self.stride = stride
        return True

    def spent(self, seconds: float) -> None:
        """Add time that the signal spent elsewhere than in its event methods."""
        self.seconds += seconds
        if self.sampling:
            self.sample_seconds += seconds

    def sampling_began(self) -> None:
        """Add the time since the signal decided to sample, in a call of which that was not known before."""
        self.spent(perf_counter() - self._began)

    def timed(self, method: Callable[..., None], args: tuple[Any, ...], weight: int = 1) -> None:
        """Call a method of the signal, and add its time; it stands for `weight` calls unless it samples."""
        sampling, begin = self.sampling, perf_counter()
        try:
            method(*args)
        finally:
            spent = perf_counter() - begin
            self.spent(spent if sampling or self.sampling else weight * spent)

    def timed_if_sampling(self, method: Callable[..., None], *args: Any) -> None:
        """Call a method of a signal that may decide to sample, or samples: then the time is added."""
        if self.sampling:
            self.timed(method, args)
            return
        method(*args)
        if self.sampling:
            self.sampling_began()

    def always_timed(self, method: Callable[..., None]) -> Callable[..., None]:
        """The method, with the time of every call added."""
        return lambda *args: self.timed(method, args)


class Budget:
    """Distributes `share` of the step time. `changed` is called with the meter of every cadence that changes."""

    def __init__(self, share: float, cadences: Mapping[str, int], changed: Callable[[Meter], None]) -> None:
        self.share = share
        self.meters: dict[str, Meter] = {}
        self.step_time: float | None = None
        self._cadences = cadences
        self._changed = changed
        self._gaps: list[float] = []
        self._first: float | None = None
        self._last: float | None = None
        self._always = 0.0  # seconds a step that the always-on signals take
        self._counted = 0.0  # seconds of overhead so far, samples aside, that are in it

    @property
    def elapsed(self) -> float:
        """Seconds from the first to the last step."""
        return 0.0 if self._first is None or self._last is None else self._last - self._first

    def meter(self, kind: Sampled) -> Meter:
        """The meter of a new signal."""
        meter = self.meters[kind.name] = Meter(kind, self._cadences.get(kind.name))
        return meter

    def step_ended(self, now: float, overhead: float, step: int) -> None:
        """A step ended at `now` seconds; the collector has spent `overhead` seconds so far."""
        if self._last is None:
            self._first = now
        else:
            self._gaps.append(now - self._last)
        self._last = now
        if len(self._gaps) >= WINDOW:
            # Taken before anything is called: an OS signal handler of the program may train, and come back to here.
            gaps, self._gaps = self._gaps, []
            self._distribute(gaps, overhead, step)

    def step_skipped(self, now: float) -> None:
        """A step that was skipped (recording/fast_path) ended at `now` seconds: the budget is not distributed anew."""
        if self._last is not None:
            self._gaps.append(now - self._last)
        self._last = now

    def _distribute(self, gaps: list[float], overhead: float, step: int) -> None:
        """Set every cadence by the steps of a window, which are `gaps` seconds apart."""
        usual = sorted(gaps)[:-OUTLIERS]
        self.step_time = sum(usual) / len(usual)
        sampled = [meter for meter in self.meters.values() if meter.sampled]
        counted = overhead - sum(meter.sample_seconds for meter in sampled)
        always = (counted - self._counted) / len(gaps)
        self._always = (1.0 - SMOOTHING) * self._always + SMOOTHING * always if self._always else always
        self._counted = counted
        costs = {meter: cost for meter in sampled if (cost := meter.sample_cost()) is not None}
        fixed = sum(cost / meter.stride for meter, cost in costs.items() if meter.fixed)
        asking = {meter: cost for meter, cost in costs.items() if not meter.fixed}
        free = self._free_for_samples(self.step_time) - fixed
        level = equal_shares([cost / meter.base for meter, cost in asking.items()], free)
        for meter, cost in asking.items():
            if meter.set_stride(cost / level if level > 0 else math.inf):
                self._explain(meter, cost, step)

    def _free_for_samples(self, step_time: float) -> float:
        """Seconds a step that sampled signals may take together: what the always-on ones leave, and a little anyway."""
        whole = self.share * step_time / EVICTION
        little = max(LEFT_OVER * whole, AT_LEAST * min(1.0, self.share / USUAL_SHARE))
        return max(whole - self._always, little)

    def _explain(self, meter: Meter, cost: float, step: int) -> None:
        assert self.step_time is not None
        turned_down = meter.stride > meter.base
        why = (
            f"a sample costs {cost * 1e6:,.0f} us, a step takes {self.step_time * 1e3:,.2f} ms, "
            f"recording may take {self.share * 100:g}% of that"
            if turned_down
            else ""
        )
        meter.decision = Decision(meter.decision.changes + 1, step if turned_down else None, why)
        self._changed(meter)


def equal_shares(demands: Sequence[float], available: float) -> float:
    """The most that any one may get so that all together get no more than `available`; infinite if all get all."""
    left = available
    ordered = sorted(demands)
    for index, demand in enumerate(ordered):
        share = left / (len(ordered) - index)
        if demand > share:
            return max(share, 0.0)
        left -= demand
    return math.inf
