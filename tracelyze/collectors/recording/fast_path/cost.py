"""What the hooks cost while steps are skipped."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from tracelyze.collectors.cadence.loss_sampling import LossSampling
from tracelyze.collectors.program.progress import Progress

TIMED_EVERY = 16  # runs of skipped steps, of which one is timed; it stands for the others


class SkippingCost:
    """Seconds that the hooks take for a step that is skipped, measured in some of the runs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.spent = 0.0  # in the run that is timed, so far
        self._timed = False
        self._runs = 0

    def run_begins(self) -> bool:
        """Whether to time the run of skipped steps that begins."""
        self._runs += 1
        self._timed = self._runs % TIMED_EVERY == 1
        return self._timed

    def run_ends(self, skipped: int) -> float:
        """Seconds that the hooks took in the run that ends, of `skipped` steps."""
        if self._timed:
            cost, self.spent = self.spent / skipped, 0.0
            self.seconds = 0.8 * self.seconds + 0.2 * cost if self.seconds else cost
        return self.seconds * skipped


class SkipsSteps(Protocol):
    """A fast path, as the hooks see it (`path.FastPath`)."""

    on: bool
    progress: Progress
    losses: LossSampling

    def model(self) -> Any: ...

    def may_be_aside(self, module: Any) -> bool: ...

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> bool: ...

    def backward_begins(self, roots: Any, retains_graph: bool) -> bool: ...

    def backward_ends(self) -> bool: ...

    def step_begins(self, optimizer: Any) -> bool: ...

    def step_ends(self, optimizer: Any) -> bool: ...


class TimedFastPath:
    """Stands in for a fast path in the runs that are timed, so that the others pay nothing for it."""

    def __init__(self, path: SkipsSteps, cost: SkippingCost) -> None:
        self.progress, self.losses = path.progress, path.losses
        self._path, self._cost = path, cost

    @property
    def on(self) -> bool:
        """Whether the fast path is on."""
        return self._path.on

    def may_be_aside(self, module: Any) -> bool:
        """Whether calls of this module, which need not be the expected one, may be skipped."""
        return self._path.may_be_aside(module)

    def model(self) -> Any:
        """The module that the fast path expects to be called next."""
        return self._path.model()

    def forward(self, *given: Any) -> bool:
        return self._timed(self._path.forward, *given)

    def backward_begins(self, *given: Any) -> bool:
        return self._timed(self._path.backward_begins, *given)

    def backward_ends(self) -> bool:
        return self._timed(self._path.backward_ends)

    def step_begins(self, optimizer: Any) -> bool:
        return self._timed(self._path.step_begins, optimizer)

    def step_ends(self, optimizer: Any) -> bool:
        return self._timed(self._path.step_ends, optimizer)

    def _timed(self, method: Callable[..., bool], *given: Any) -> bool:
        begin = perf_counter()
        try:
            return method(*given)
        finally:
            self._cost.spent += perf_counter() - begin
