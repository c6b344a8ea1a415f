"""Windows of torch.profiler: now and then, a few steps with every operator and kernel.

Off unless asked for (`collect --profile-every N`): a profiled step is slower than others. A window is one trace file in
the process's folder; the analyzer reads it as it reads any Kineto trace. If the script profiles itself, ours waits. The
profiler belongs to the whole process, and two threads that start it together crash it: one thread has it at a time.
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Any

from tracelyze.collectors.internals.private_names import PROFILING
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, Unavailable, columns_of

STEPS = 4  # of one window; the first holds the profiler's own start
FIRST = 10  # steps before the first window: past warm-up
MAX_WINDOWS = 10
_IN_USE = threading.Lock()


class ProfilerWindows(Signal):
    name = "profiler_windows"
    needs = (PROFILING,)
    about = "Windows of torch.profiler, four steps every so often; asked for with --profile-every N."
    needs_every_step = True  # asked for, and profiled steps are slow anyway
    cost = "slows the profiled steps"
    columns = columns_of("windows", "first_step last_step file seconds step_seconds")

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._every = context.options.profile_every
        if not self._every:
            raise Unavailable("off unless collect is started with --profile-every N")
        self._next = FIRST
        self._profiler: Any = None
        self._thread = 0
        self._first = self._last = 0
        self._done = False  # all steps of the window are recorded
        self._began = 0.0
        self._windows = 0

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if tracked.index != 0:
            return
        if self._profiler is not None:
            self._done = tracked.count - self._first >= STEPS
            self._last = tracked.count
        elif tracked.count >= self._next and self._windows < MAX_WINDOWS:
            self._begin(tracked.count)

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        """Ends a window behind its last step, not in it: exporting takes longer than the step."""
        if self._done and self._thread == threading.get_ident():
            self._end(self._last)

    def finished(self) -> None:
        # A session that another thread began cannot be ended from here: its window is lost, the program goes on.
        if self._profiler is not None and self._thread == threading.get_ident():
            self._end(max(self._last, self._first + 1))

    def _taken(self) -> bool:
        """Whether the script itself is profiling, on this thread or another."""
        elsewhere = getattr(self.torch.autograd.profiler, "_is_profiler_enabled", False)
        return bool(elsewhere or self.torch.autograd._profiler_enabled())

    def _begin(self, step: int) -> None:
        if self._taken() or not _IN_USE.acquire(blocking=False):
            self._next = step + 1
            return
        activity = self.torch.profiler.ProfilerActivity
        kinds = [activity.CPU, *([activity.CUDA] if self.torch.cuda.is_available() else [])]
        profiler = self.torch.profiler.profile(activities=kinds)
        try:
            profiler.start()
        except BaseException:
            _IN_USE.release()
            raise
        self._profiler, self._thread = profiler, threading.get_ident()
        self._first = self._last = step
        self._began = perf_counter()

    def _end(self, step: int) -> None:
        profiler, self._profiler, self._done = self._profiler, None, False
        step_seconds = (perf_counter() - self._began) / max(1, step - self._first)
        start = perf_counter()
        try:
            profiler.stop()
        finally:
            _IN_USE.release()
        name = f"window-{self._first:08d}.json.gz"
        folder = self.context.folder()
        if folder is None:
            return
        profiler.export_chrome_trace(str(folder / name))
        self._windows += 1
        self._next = step + self._every
        self.context.emit(
            "windows",
            {
                "first_step": self._first + 1,
                "last_step": step,
                "file": name,
                "seconds": perf_counter() - start,
                "step_seconds": step_seconds,
            },
        )
