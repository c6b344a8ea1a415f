"""Learning-rate schedulers: how often they step, how far they are meant to go, and whose rate they set."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from typing import Any

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.lines import construction, definitions
from tracelyze.collectors.program.optimizers import Tracked, wrapping
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.tensors.safe_computing import may_compute, unseen

REPORTS = (20, 100, 1000, 10_000, 100_000, math.inf)  # steps of an optimizer after which schedulers are written down
RESOLVED_EVERY = 20  # steps of a scheduler after which its optimizer is looked up anew
HORIZONS = ("total_steps", "T_max", "total_iters")
LENGTH = "num_training_steps"
MAX_SCHEDULERS = 100
MODES = ("min", "max")
NO_RATES = (math.inf, -math.inf)


class _Watch:
    """What a ReduceLROnPlateau watches: the first value and the latest one."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.first: float | None = None
        self.last: float | None = None
        self.nonfinite = 0

    def given(self, value: float | None) -> None:
        if value is not None and not math.isfinite(value):
            self.nonfinite += 1
        elif value is not None:
            self.first = value if self.first is None else self.first
            self.last = value


class _Scheduler:
    """What is known of one scheduler. Holds neither it nor its optimizer."""

    def __init__(self, number: int, scheduler: Any) -> None:
        self.number = number
        self.name = type(scheduler).__name__
        self.horizon = next((h for name in HORIZONS if isinstance(h := getattr(scheduler, name, None), int)), None)
        self.horizon = self.horizon or _length_of_factor(scheduler)
        self.optimizer = weakref.ref(scheduler.optimizer)
        self.steps = 0
        self.inner = False
        self.lines: dict[str, int | None] = {"site": None, "made_at": None}
        self.optimizer_index: int | None = None
        self.optimizer_steps = 0
        self.shares = False
        self.base = _base_rate(scheduler)
        self.first: float | None = None  # rate that it sets when it is made
        self.early = 0  # its steps before its optimizer made one
        mode = getattr(scheduler, "mode", None) if hasattr(scheduler, "num_bad_epochs") else None
        self.watch = _Watch(mode) if mode in MODES else None
        self.rates = NO_RATES  # the lowest and the highest that its steps set


class Schedules(Signal):
    name = "schedules"
    columns = columns_of(
        "schedules",
        "step scheduler name optimizer shares_parameters inner steps optimizer_steps horizon base_lr first_lr "
        "lowest_lr highest_lr early mode watched_first watched_last watched_nonfinite site made_at",
    )
    needs = UNSEEN
    inactive = ("after_step",)
    copied_columns = ()
    about = "Learning-rate schedulers: their steps, their length, the range of the rates that they set."
    cost = "2 us per step of a scheduler"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._known: ByIdentity[_Scheduler] = ByIdentity()
        self._all: list[_Scheduler] = []
        self._reported: Counter[int] = Counter()  # reports that were made, by optimizer: an index of REPORTS

    def scheduled(self, scheduler: Any, inner: bool, given: Any) -> None:
        one = self._known.get(scheduler)
        if one is None or not one.steps:
            one = self._not_yet(one, scheduler, inner)
            if one is None or not self.progress.backwards or is_being_made(scheduler):
                return
        if inner:
            one.inner = True
        if one.lines["site"] is None:
            one.lines["site"] = self.program.sites.here("schedule")
            one.lines["made_at"] = construction.optimizers.site_of(scheduler, "scheduler", self.program.sites)
            definitions.factors(scheduler, self.program.sites)
        one.steps = steps = one.steps + 1
        if one.watch is not None:
            one.watch.given(self._value(given))
        if steps % RESOLVED_EVERY == 0 or one.optimizer_index is None:
            self._resolve(one)
        rate = scheduler.optimizer.param_groups[0].get("lr")
        if type(rate) is not float:
            rate = _number(rate)
        if rate is not None:
            lowest, highest = one.rates
            if not lowest <= rate <= highest:
                one.rates = min(rate, lowest), max(rate, highest)

    def _not_yet(self, one: _Scheduler | None, scheduler: Any, inner: bool) -> _Scheduler | None:
        """A scheduler that has made no step of the training yet is stepped; None once there are too many."""
        if one is None:
            if len(self._all) >= MAX_SCHEDULERS:
                return None
            one = self._known[scheduler] = _Scheduler(len(self._all), scheduler)
            self._all.append(one)
            self.activate()
        one.inner |= inner
        if one.first is None:
            one.first = _number(scheduler.optimizer.param_groups[0].get("lr"))
        elif not inner:
            one.early += self._before_its_optimizer(scheduler)
        return one

    def _before_its_optimizer(self, scheduler: Any) -> bool:
        """Whether the optimizer has not stepped yet. (The constructor's own step is the first one that is seen.)"""
        steers, tracked = scheduler.optimizer, self.program.optimizers.tracked()
        return not any(_is_or_wraps(steers, one.optimizer) for one in tracked if one.optimizer is not None)

    def _value(self, given: Any) -> float | None:
        """A value that is watched, as a number; None for one on a device, which would have to be waited for."""
        torch = self.torch
        if isinstance(given, torch.Tensor):
            if given.numel() != 1 or not given.is_cpu or not may_compute(torch):
                return None
            with unseen(torch):
                given = given.item()
        return float(given) if isinstance(given, (int, float)) else None

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if tracked.count >= REPORTS[self._reported[tracked.index]]:
            self._reported[tracked.index] += 1
            self._find_idle()
            self._report()

    def next_full_step(self) -> float:
        if not self.active:
            return math.inf
        active = self.program.optimizers.active()
        left = [REPORTS[self._reported[one.index]] - one.count for one in active]
        return self.progress.steps + min(left, default=math.inf) - 1

    def finished(self) -> None:
        self._report()

    def _report(self) -> None:
        for one in self._all:
            self._resolve(one)
            self.context.emit(
                "schedules",
                {
                    "step": self.progress.steps,
                    "scheduler": one.number,
                    "name": one.name,
                    "optimizer": one.optimizer_index,
                    "shares_parameters": one.shares,
                    "inner": one.inner,
                    "steps": one.steps,
                    "optimizer_steps": one.optimizer_steps,
                    "horizon": one.horizon,
                    "base_lr": one.base,
                    "first_lr": one.first,
                    "early": one.early,
                    "mode": one.watch and one.watch.mode,
                    "watched_first": one.watch and one.watch.first,
                    "watched_last": one.watch and one.watch.last,
                    "watched_nonfinite": one.watch and one.watch.nonfinite,
                    "lowest_lr": None if one.rates == NO_RATES else one.rates[0],
                    "highest_lr": None if one.rates == NO_RATES else one.rates[1],
                    **one.lines,
                },
            )

    def _find_idle(self) -> None:
        """Where those were made that nobody steps: asked while the training runs, and with it a call that trains."""
        for scheduler in self._known:
            one = self._known[scheduler]
            if not one.steps and one.lines["made_at"] is None:
                one.lines["made_at"] = construction.optimizers.site_of(scheduler, "scheduler", self.program.sites)

    def _resolve(self, one: _Scheduler) -> None:
        """Whose rate it sets. At the end of the program the optimizer may be gone: what was known before stays."""
        optimizer = one.optimizer()
        if optimizer is None:
            return
        tracked = [stepped for stepped in self.program.optimizers.tracked() if stepped.optimizer is not None]
        for stepped in tracked:
            if _is_or_wraps(optimizer, stepped.optimizer):
                one.optimizer_index, one.optimizer_steps = stepped.index, stepped.count
                one.shares = False
                return
        if tracked and one.optimizer_index is None:
            one.shares = optimizer not in wrapping and _shares(optimizer, tracked)


def _shares(optimizer: Any, others: list[Tracked]) -> bool:
    """Whether an optimizer holds a tensor that one of the others holds too, in a parameter group of its own."""
    held = {id(p) for other in others for p in other.parameters()}
    return any(id(p) in held for group in optimizer.param_groups for p in group["params"])


def is_being_made(scheduler: Any) -> bool:
    """Whether the step was that of a scheduler's constructor, which is none of the training's."""
    return getattr(scheduler, "_step_count", 0) == 1


def _is_or_wraps(one: Any, other: Any) -> bool:
    """Whether both are one optimizer. One that wraps another, as Accelerate's does, has the same parameter groups."""
    if one is other:
        return True
    groups = {id(group) for group in other.param_groups}
    return any(id(group) in groups for group in one.param_groups)


def _number(rate: Any) -> float | None:
    """A rate as a number; None for one on a device, which would have to be waited for."""
    return float(rate) if isinstance(rate, (int, float)) else None


def _length_of_factor(scheduler: Any) -> int | None:
    """The length that the function of a LambdaLR was given by name, as transformers and diffusers do: bound to it, or
    a variable of the function that made it."""
    factor = next(iter(getattr(scheduler, "lr_lambdas", None) or []), None)
    given = getattr(factor, "keywords", None)
    known = dict(given) if isinstance(given, dict) else {}
    code, cells = getattr(factor, "__code__", None), getattr(factor, "__closure__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), cells or (), strict=False):
        if name == LENGTH and name not in known:
            try:
                known[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
    length = known.get(LENGTH)
    return length if type(length) is int and length > 0 else None


def _base_rate(scheduler: Any) -> float | None:
    """The rate that a schedule starts from or climbs to."""
    rate = scheduler.optimizer.param_groups[0].get("max_lr", next(iter(getattr(scheduler, "base_lrs", [])), None))
    return float(rate) if isinstance(rate, (int, float)) else None
