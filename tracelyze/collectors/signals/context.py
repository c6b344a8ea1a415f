"""What a signal sees of the recording that it is part of: this, and nothing else of it.

`recording/context.py` implements it; a test of a signal may do so with a few lines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tracelyze.collectors.cadence.budget import Meter, Sampled
from tracelyze.collectors.cadence.loss_sampling import LossSampling
from tracelyze.collectors.options import CollectOptions
from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.storage.pending import PendingValues
from tracelyze.collectors.system.training_thread import TrainingThread


class ModuleWatch(Protocol):
    """Sees the modules within one outermost call. It never raises.

    What is one names this class as its base, so that torch.compile passes it by (hooks/install.py).
    """

    def begins(self, root: Any) -> ModuleWatch | None:
        """`root` is about to be called: itself, or None if this call is not to be watched."""
        ...

    def returned(self, module: Any, output: Any, args: Any = (), kwargs: Any = None) -> None:
        """A module within it returned. `args`: what it was given, itself the first; () where that is not known."""
        ...

    def ends(self, root: Any, output: Any) -> None:
        """`root` itself returned."""
        ...


class NextCall:
    """Who watches the modules within the next outermost call: nobody, or what a signal has put here.

    Where nobody does, `of_new_model` is asked, which watches models that it does not know. `given` is handed what each
    outermost module is about to be called with: the module, its arguments, and those by name. It never raises.
    """

    def __init__(self) -> None:
        self.given: Callable[[Any, Sequence[Any], dict[str, Any]], None] | None = None
        self.watch: ModuleWatch | None = None
        self.of_new_model: ModuleWatch | None = None

    def take_back(self, watch: ModuleWatch) -> None:
        """`watch` watches no further call. Raises what went wrong in it, if it has kept an `error`."""
        if self.watch is watch:
            self.watch = None
        error = getattr(watch, "error", None)
        if error is not None:
            raise error


class FastPathControl(Protocol):
    """What a signal may do about the steps that are skipped (recording/fast_path)."""

    on: bool  # Steps are being skipped.

    def interrupt(self) -> None:
        """A change that the steps so far did not see: from the next call on, everything is dispatched."""
        ...

    def catch_up(self) -> None:
        """On the training thread: dispatch at once what was skipped of the step that runs."""
        ...

    def leave(self) -> None:
        """On the training thread, before something changes that the skipped part of the step did not see."""
        ...


class PausableSignal(Protocol):
    """A signal, as far as its pauses go."""

    meter: Meter
    paused: bool
    resumes_at: float

    @property
    def pausable(self) -> tuple[str, ...]:
        """The events that are not dispatched to it while it is paused."""
        ...


class SignalContext(Protocol):
    """One per recording."""

    torch: Any  # the program's own: nobody here imports it by name
    options: CollectOptions
    progress: Progress
    program: Program
    losses: LossSampling
    next_call: NextCall
    fast_path: FastPathControl

    @property
    def thread(self) -> TrainingThread:
        """The one that trains."""
        ...

    def now(self) -> float:
        """Seconds on the process's clock."""
        ...

    def emit(self, table: str, row: dict[str, Any]) -> None:
        """Queue a row of a table for the disk."""
        ...

    def defer(self, values: PendingValues) -> None:
        """Fill these values into the row of the step that runs when the device has delivered them."""
        ...

    def record_event(self, kind: str, name: str, text: str = "", **more: Any) -> None:
        """Queue a row of the table events."""
        ...

    def raise_alert(self) -> None:
        """The step that runs is out of the ordinary: sampled signals sample it."""
        ...

    def meter(self, kind: Sampled) -> Meter:
        """The meter of a new signal."""
        ...

    def pause(self, signal: PausableSignal, until: float) -> None:
        """Dispatch no event in its `pausable` to this signal until so many steps have ended."""
        ...

    def resume(self, meter: Meter) -> None:
        """Dispatch everything to the signal of this meter again, now."""
        ...

    def listeners_changed(self) -> None:
        """A signal was activated, or reads other fast columns than before."""
        ...

    def switched_off(self, name: str, reason: str) -> None:
        """A signal records nothing from now on, and nothing is wrong."""
        ...

    def unrecorded(self) -> contextlib.AbstractContextManager[None]:
        """Modules, losses and backwards that are called within are no part of the training."""
        ...

    def add_overhead(self, seconds: float) -> None:
        """Add time that a signal took outside of its event methods, on the training thread."""
        ...

    def folder(self) -> Path | None:
        """The folder of this process in the run directory, None before it trains."""
        ...
