"""How long a step took: wall time between the ends of an optimizer's steps, and device time where there is a device."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors.readback import EventPair


class StepTime(Signal):
    name = "step_time"
    about = "Wall time from step to step, inside backward too, and device time where there is a device."
    cost = "1 us a step"
    copied_columns = ()
    fast_columns = ("seconds",)
    columns = ("steps.seconds", "steps.backward_seconds", "steps.device_seconds")

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._ended: dict[int, float] = {}
        self._events: dict[int, Any] = {}
        self._backward: float | None = None  # seconds inside of it for the step that runs, and since when the last one
        self._begun: float | None = None

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        self._begun = self.context.now()

    def after_backward(self, roots: tuple[Any, ...]) -> None:
        begun, before = self._begun, self._backward  # an OS signal handler may make a step meanwhile
        if begun is not None:
            self._backward = (before or 0.0) + self.context.now() - begun

    def fast_values(self, tracked: Tracked, time: float) -> tuple[float]:
        self._events.clear()  # of an earlier step: the device's time since then is not that of one step
        seconds = time - self._ended[tracked.index]
        self._ended[tracked.index] = time
        return (seconds,)

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        now, index = row["time"], tracked.index
        if self._backward is not None:
            row["backward_seconds"] = self._backward
        self._backward = self._begun = None
        if index in self._ended:
            row["seconds"] = now - self._ended[index]
        self._ended[index] = now
        if tracked.on_cuda and not self.torch.cuda.is_current_stream_capturing():
            event = self.torch.cuda.Event(enable_timing=True)
            event.record()
            previous = self._events.get(tracked.index)
            self._events[tracked.index] = event
            if previous is not None:
                self.context.defer(EventPair(self.torch, previous, event, "device_seconds"))
