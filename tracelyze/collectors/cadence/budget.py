"""What collecting costs, signal by signal, and how often sampled signals may look so that all of it stays affordable.

Every signal has a meter. Looks of sampled signals are all timed, everything else at every TIMED_EVERY-th call, so that
measuring costs next to nothing. Every WINDOW steps the budget, a share of the step time, is dealt out: what the
always-on signals take comes off first; of the rest, cheap sampled signals get all they ask for, and the dearest are
turned down to equal shares of what remains.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelyze.collectors.signals.signal import Signal

WINDOW = 32  # steps between two looks at the costs
TIMED_EVERY = 31  # moments; a prime, so that it does not keep step with the moments of a training step
TIMED_FIRST = 200  # moments that are all timed: they hold what is done only once
OUTLIERS = 2  # longest steps of a window that do not count: an evaluation or a checkpoint must not buy budget
EVICTION = 2.0  # what recording costs in all, per second spent in it: it evicts the training from the caches (measured)
LEFT_OVER = 0.2  # share of the budget that sampled signals have even if the always-on ones overspend
AT_LEAST, USUAL_SHARE = 5e-6, 0.01  # seconds a step that they always have: little beside what a step takes by itself
TRUSTED_LOOKS = 3  # a first look pays for imports and caches: until then no signal is slowed beyond
CAUTIOUS = 50  # every so many steps
EASING = 0.7  # a cadence goes up only if it then is this much quicker: no back and forth
EXTRA_LOOKS = 50  # looks out of turn on alert that a run may have at once; each look in turn earns another


class Meter:
    """What one signal has cost, and its cadence."""

    def __init__(self, kind: type[Signal], fixed: int | None) -> None:
        self.name = kind.name
        self.sampled = kind.sampled
        self.base = fixed or kind.every
        self.fixed = fixed is not None
        self.young = 0 if self.fixed else kind.young
        self.slowest = kind.slowest
        self.stride = self.base
        self.looking = False
        self.resting = False  # hears of nothing in its signal's `resting`, until
        self.wakes: float = 0  # so many steps have ended
        self.looks = 0
        self.look_seconds = 0.0
        self.seconds = 0.0
        self.changes = 0
        self.turned_down_at: int | None = None
        self.why = ""
        self._began = 0.0  # the look that was decided on last
        self._extra = 0
        self._costs: deque[float] = deque(maxlen=5)
        self._counted = (0, 0.0)

    def due(self, count: int, alert: bool = False) -> bool:
        """Whether to look at the `count`-th step (or batch, or call): all of the first `young`, then every n-th."""
        if count % self.stride and count >= self.young:
            if not alert or 2 * self._extra >= EXTRA_LOOKS + self.looks:
                self.looking = False
                return False
            self._extra += 1
        return self.look(True)

    def pause(self, count: int) -> int:
        """Steps from the `count`-th to the next one that is to be looked at; 0 if it is that one itself."""
        return 0 if count < self.young else -count % self.stride

    def look(self, looking: bool) -> bool:
        """Put down that the signal looks, or does not: for those that decide it themselves, within `stride`."""
        self.looking = looking
        if looking:
            self.looks += 1
            self._began = time.perf_counter()
        return looking

    def look_cost(self) -> float | None:
        """Seconds that a look takes: median of the last few windows; None before the first look."""
        looks, seconds = self._counted
        if self.looks > looks:
            self._costs.append((self.look_seconds - seconds) / (self.looks - looks))
            self._counted = (self.looks, self.look_seconds)
        return statistics.median(self._costs) if self._costs else None

    def set_stride(self, wanted: float) -> bool:
        """Look every `wanted` steps, within the signal's limits; whether that changed anything worth mentioning."""
        limit = self.slowest if self.looks >= TRUSTED_LOOKS else CAUTIOUS
        stride = max(self.base, math.ceil(min(wanted, limit or math.inf, 1e9)))
        if self.stride * EASING <= stride <= self.stride:
            return False
        self.stride = stride
        return True

    def spent(self, seconds: float) -> None:
        """Put down time that the signal spent elsewhere than in its moments."""
        self.seconds += seconds
        if self.looking:
            self.look_seconds += seconds

    def has_begun(self) -> None:
        """Put down the time since the signal decided to look, in a call of which that was not known before."""
        self.spent(time.perf_counter() - self._began)

    def timed(self, method: Callable[..., None], args: tuple[Any, ...], weight: int = 1) -> None:
        """Call a method of the signal, with its time put down; it stands for `weight` calls unless it looks."""
        looking, begin = self.looking, time.perf_counter()
        try:
            method(*args)
        finally:
            spent = time.perf_counter() - begin
            self.spent(spent if looking or self.looking else weight * spent)

    def told(self, method: Callable[..., None], *args: Any) -> None:
        """Call a method of a signal that may decide to look, or is looking: then the time is put down."""
        if self.looking:
            self.timed(method, args)
            return
        method(*args)
        if self.looking:
            self.has_begun()

    def watched(self, method: Callable[..., None]) -> Callable[..., None]:
        """The method, with the time of every call put down."""
        return lambda *args: self.timed(method, args)


class Budget:
    """Deals out `share` of the step time. `changed` is told of every change of a cadence."""

    def __init__(self, share: float, cadences: Mapping[str, int], changed: Callable[[Meter], None]) -> None:
        self.share = share
        self.meters: dict[str, Meter] = {}
        self.step_time: float | None = None
        self._cadences = cadences
        self._changed = changed
        self._gaps: list[float] = []
        self._first: float | None = None
        self._last: float | None = None
        self._always = 0.0  # per step
        self._counted = 0.0  # seconds of overhead, looks aside, that are in it

    @property
    def elapsed(self) -> float:
        """Seconds from the first to the last step."""
        return 0.0 if self._first is None or self._last is None else self._last - self._first

    def meter(self, kind: type[Signal]) -> Meter:
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
            self._deal(overhead, step)

    def step_passed(self, now: float) -> None:
        """The same of a step after which nothing is dealt out."""
        if self._last is not None:
            self._gaps.append(now - self._last)
        self._last = now

    def _deal(self, overhead: float, step: int) -> None:
        gaps, self._gaps = sorted(self._gaps), []
        usual = gaps[:-OUTLIERS]
        self.step_time = sum(usual) / len(usual)
        sampled = [meter for meter in self.meters.values() if meter.sampled]
        always = overhead - sum(meter.look_seconds for meter in sampled)
        per_step = (always - self._counted) / len(gaps)
        self._always = 0.8 * self._always + 0.2 * per_step if self._always else per_step
        self._counted = always
        whole = self.share * self.step_time
        free = max(whole / EVICTION - self._always, LEFT_OVER * whole / EVICTION)
        free = max(free, AT_LEAST * min(1.0, self.share / USUAL_SHARE))
        costs = {meter: cost for meter in sampled if (cost := meter.look_cost()) is not None}
        free -= sum(cost / meter.stride for meter, cost in costs.items() if meter.fixed)
        asking = {meter: cost for meter, cost in costs.items() if not meter.fixed}
        level = equal_shares([cost / meter.base for meter, cost in asking.items()], free)
        for meter, cost in asking.items():
            if meter.set_stride(cost / level if level > 0 else math.inf):
                self._explain(meter, cost, step)

    def _explain(self, meter: Meter, cost: float, step: int) -> None:
        assert self.step_time is not None
        turned_down = meter.stride > meter.base
        meter.turned_down_at = step if turned_down else None
        meter.why = (
            f"a look costs {cost * 1e6:,.0f} us, a step takes {self.step_time * 1e3:,.2f} ms, "
            f"recording may take {self.share * 100:g}% of that"
            if turned_down
            else ""
        )
        meter.changes += 1
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
