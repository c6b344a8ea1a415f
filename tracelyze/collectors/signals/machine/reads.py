"""Lines of the training loop that read values back from tensors: `.item()`, `.tolist()`, `float(loss)`, `if tensor:`.

For the first steps, and for a few every tenfold time after them, the methods are found through a descriptor that notes
who looks them up and hands out torch's own method. So no frame of ours is on the stack when it runs, what it returns,
raises or warns of is its own, and outside of these windows nothing is there at all.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from threading import get_ident
from types import FrameType
from typing import Any, Protocol

from tracelyze.collectors.internals import compiler, function_modes
from tracelyze.collectors.internals.own_frames import PACKAGE
from tracelyze.collectors.internals.private_names import FUNCTION_MODES
from tracelyze.collectors.program.call_sites import is_library
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, Unavailable
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

READS = ("item", "tolist", "__float__", "__int__", "__bool__", "__index__", "__complex__")
COPIES = ("cpu", "numpy")  # These read a tensor on a device only: one in the host's memory is there already.
STEPS = 20  # steps of a window
SECONDS = 10.0  # A window of slow steps ends after so many seconds, and two steps at least.
MAX_READS = 2000  # reads that one window notes; each takes a microsecond
FIRST_AGAIN = 10.0  # seconds after the start at which the second window opens, the third at ten times that, ...
SKIPPED, SCRIPT, TRANSPARENT = 0, 1, 2  # code that reads: torch's or ours; the script's; a library's on its behalf


@dataclass
class _Read:
    """One place in the code that reads."""

    file: str
    line: int
    function: str
    device: str | None
    last: int = -1  # number of steps done at its latest read
    calls: int = 0
    steps: int = 0  # different steps in which it read
    graphs: int = 0  # reads of tensors that had a graph


@dataclass
class _Window:
    """What is noted while the methods are watched. `begun` and `ended` count optimizer steps."""

    begun: int
    since: float
    ended: int | None = None
    calls: int = 0
    reads: dict[tuple[int, int], _Read] = field(default_factory=dict)


class Readers:
    """Which code reads: the script's, or what reads on its behalf."""

    def __init__(self, torch: Any) -> None:
        self._kinds: dict[int, int] = {}  # kind of code by its id; the code objects are kept
        self._kept: list[Any] = []
        self._torch_folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

    def script(self, frame: FrameType | None) -> FrameType | None:
        """The frame of the script that reads, by itself or through a library; None where torch or we do."""
        kind = TRANSPARENT
        while frame is not None and (kind := self._kind(frame)) == TRANSPARENT:
            frame = frame.f_back
        return None if kind == SKIPPED else frame

    def _kind(self, frame: FrameType) -> int:
        code = frame.f_code
        kind = self._kinds.get(id(code))
        if kind is None:
            self._kept.append(code)
            kind = self._kinds[id(code)] = self._kind_of(code.co_filename)
        return kind

    def _kind_of(self, filename: str) -> int:
        """torch reads for itself, but for `print(loss)` and `f"{loss:.3f}"`, which read for their caller."""
        if filename.startswith(PACKAGE):
            return SKIPPED
        if filename.startswith(self._torch_folder):
            return TRANSPARENT if os.path.basename(filename) in ("_tensor.py", "_tensor_str.py") else SKIPPED
        return TRANSPARENT if is_library(filename) else SCRIPT


class Reads(Signal):
    name = "reads"
    needs = (FUNCTION_MODES,)
    columns = ("sites.device", "sites.per_step")  # of rows with the role read
    about = "Lines of the loop that read values back (.item(), float(loss), if tensor), how often, from which device."
    cost = "1 us a read in the first 20 steps, and in 20 every tenfold time; nothing otherwise"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._window: _Window | None = None
        self._next = FIRST_AGAIN
        self._readers = Readers(self.torch)
        self._modes = function_modes.watching(self.torch) or (lambda: 0)
        self._recorded: set[tuple[str, int]] = set()
        self._error: Exception | None = None
        unseen_by_compiler(self.torch, (Reads._note, Reads._count, Reads._device, Reads._has_graph))

    def opened(self) -> None:
        self._open()

    def every_second(self, row: dict[str, Any]) -> None:
        if self._error is not None:
            unwatch(self)
            raise self._error
        now, steps, window = self.context.now(), self.progress.steps, self._window
        if window is None:
            if now >= self._next:
                self._next = 10 * now
                self._open()
        elif window.ended is not None or steps - window.begun >= (STEPS if now - window.since < SECONDS else 2):
            self._close(window)

    def finished(self) -> None:
        if self._window is not None:
            self._close(self._window)

    def _open(self) -> None:
        self._window = _Window(self.progress.steps, self.context.now())
        watch(self.torch, self)

    def _close(self, window: _Window) -> None:
        """Record the lines that read in two steps or more: what happens in one step only is no part of the loop."""
        unwatch(self)
        self._window = None
        steps = (self.progress.steps if window.ended is None else window.ended) - window.begun
        lines: dict[tuple[str, int], list[_Read]] = {}
        for read in list(window.reads.values()):
            lines.setdefault((read.file, read.line), []).append(read)
        for place, reads in lines.items():
            if place not in self._recorded and max(read.steps for read in reads) >= 2 and steps:
                self._recorded.add(place)
                calls = sum(read.calls for read in reads) / steps
                self.program.sites.add("read", *place, reads[0].function, device=reads[0].device, per_step=calls)
                if all(read.graphs == read.calls for read in reads):
                    self.program.sites.add("read-graph", *place, reads[0].function)

    def _note(self, name: str, tensor: Any, frame: FrameType | None) -> None:
        """The method `name` of `tensor` was looked up by the code of `frame`."""
        window = self._window
        if window is None or window.ended is not None:
            return
        try:
            self._count(window, name, tensor, frame)
        except Exception as error:  # The signal is switched off when it is sampled next.
            if raised_by_a_signal_handler(error):
                raise
            self._error, window.ended = error, self.progress.steps

    def _count(self, window: _Window, name: str, tensor: Any, frame: FrameType | None) -> None:
        steps = self.progress.steps
        window.calls += 1
        if window.calls >= MAX_READS:
            window.ended = steps
            unwatch(self)
        frame = self._readers.script(frame)
        if frame is None:
            return
        key = id(frame.f_code), frame.f_lasti
        read = window.reads.get(key)
        if read is None:
            device = self._device(tensor)
            if name in COPIES and device in ("cpu", None):
                return
            place = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
            read = window.reads[key] = _Read(*place, device)
        read.calls += 1
        read.graphs += self._has_graph(tensor)
        read.steps += steps != read.last
        read.last = steps

    def _device(self, tensor: Any) -> str | None:
        """None for a tensor whose class would call code of the program when its device is read."""
        plain = type(tensor) in (self.torch.Tensor, self.torch.nn.Parameter)
        return str(tensor.device.type) if plain and not self._modes() else None

    def _has_graph(self, tensor: Any) -> bool:
        """Not of a tensor whose class would call code of the program when it is asked."""
        return type(tensor) is self.torch.Tensor and not self._modes() and tensor.grad_fn is not None


class Watching(Protocol):
    """A signal to which the descriptors tell who looks a method up. `_note` never raises."""

    context: SignalContext

    def _note(self, name: str, tensor: Any, frame: FrameType | None) -> None: ...


_watching: list[Watching] = []
_in_place: dict[str, Any] = {}  # our descriptors, by the name of the method
_owner: list[Any] = []  # torch.Tensor


class _Noticed:
    """Stands for a method of torch.Tensor: notes that it is looked up, and is to all who look it up the method."""

    def __init__(self, name: str, original: Any) -> None:
        self.name = name
        self.original = original

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        if tensor is not None:
            thread = get_ident()
            for signal in tuple(_watching):
                if signal.context.thread.ident == thread:
                    signal._note(self.name, tensor, sys._getframe(1))
        return self.original.__get__(tensor, kind)


def watch(torch: Any, signal: Watching) -> None:
    if not _owner:
        _owner.append(torch.Tensor)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_watch_nothing)  # nobody would end the window in the child
    _watching.append(signal)
    for name in (*READS, *COPIES):
        original = getattr(torch.Tensor, name, None)
        if name not in vars(torch.Tensor) and original is not None:  # The program has not put something there itself.
            _in_place[name] = _Noticed(name, original)
            setattr(torch.Tensor, name, _in_place[name])


def unwatch(signal: Watching) -> None:
    _watching[:] = [other for other in _watching if other is not signal]
    if not _watching:
        _watch_nothing()


def _watch_nothing() -> None:
    _watching.clear()
    while _in_place:
        name, ours = _in_place.popitem()
        if vars(_owner[0]).get(name) is ours:  # The program has not put something in our place.
            delattr(_owner[0], name)


def unseen_by_compiler(torch: Any, functions: tuple[Any, ...]) -> None:
    """Have torch.compile pass by what notes a read."""
    noting = (_Noticed.__get__, Readers.script, Readers._kind, Readers._kind_of, *functions)
    try:
        compiler.hide(torch, (), noting)
    except AttributeError:
        raise Unavailable(f"torch {torch.__version__} would compile our functions along with the script's") from None
