"""Dropout within fused attention: `scaled_dot_product_attention(..., dropout_p=0.1)` while a model evaluates.

That function is part of torch's binary, and other parts of torch ask whether a function is this very object, so nothing
may stand in its place. A mode for torch functions sees its arguments instead, in a few forwards that evaluate, of
models whose own code names the function: training steps never run under it, and most programs never do. Between two
looks a model drops as it did at the last one in the same mode, for what it is given is written in its code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from tracelyze.collectors.internals import function_modes
from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.internals.own_frames import COLLECTORS, leave_no_frame, unseen_by_warnings
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.safe_computing import may_compute

NAME = "scaled_dot_product_attention"
POSITION = 4  # of dropout_p among its arguments
LOOKS = 4  # passes that are all looked at; from then on, when the number of steps has doubled
MAX_CODE = 2000  # functions that are searched for the name
Call = Callable[..., Any]


class Looked:
    """What is known of one model in one of its modes."""

    __slots__ = ("dropouts", "looks", "next")

    def __init__(self) -> None:
        self.looks = self.next = 0
        self.dropouts = 0  # of the forward that was looked at last


class FusedDropouts:
    """Counts such dropouts among those of the recording."""

    def __init__(self, torch: Any, progress: Progress) -> None:
        self._torch, self._progress, self._modes = torch, progress, function_modes.watching(torch)
        self._models: ByIdentity[dict[bool, Looked] | None] = ByIdentity()  # None: its code names no such function
        self._kinds: dict[type, bool] = {}
        self._mode: Any = None
        self._unseen: ByIdentity[None] = ByIdentity()  # evaluated on the fast path before anybody could look

    def watched(self, original: Call, module: Any) -> Call:
        """How to call an outermost module: as `original` does, or so that its dropouts are seen. It never raises."""
        try:
            if module.training and self._torch.is_grad_enabled():
                return original
            looked = self._of(module)
            if looked is None:
                return original
            steps = self._progress.steps
            if steps >= looked.next and self._may_look(module):
                self._unseen.pop(module, None)
                looked.looks += 1
                looked.next = steps + 1 if looked.looks < LOOKS else 2 * max(steps, 1)
                return self._look(original, looked)
            self._progress.dropouts += looked.dropouts
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self._models[module] = None
        return original

    def unwatched(self, module: Any) -> int:
        """A module was called that the fast path took for its own: how many dropouts are likely if it evaluated."""
        try:
            if module.training and self._torch.is_grad_enabled():
                return 0
            looked = self._of(module)
            if looked is None:
                return 0
            if self._progress.steps >= looked.next:
                self._unseen[module] = None
            return looked.dropouts
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self._models[module] = None
            return 0

    def next_model(self, model: Callable[[], Any]) -> Callable[[], Any]:
        """The module whose next call the fast path is to take, given that which the steps call.

        The same, but None for a call without autograd where a model evaluates with one forward at a time, which would
        never be looked at.
        """
        if not self._unseen or model() not in self._unseen:
            return model
        enabled = self._torch.is_grad_enabled
        return lambda: model() if enabled() else None

    def _of(self, module: Any) -> Looked | None:
        modes = self._models.get(module)
        if modes is None:
            if module in self._models:
                return None
            names = any(self._is_named_by(type(part)) for part in module.modules())
            modes = self._models[module] = {True: Looked(), False: Looked()} if names else None
        return None if modes is None else modes[bool(module.training)]

    def _is_named_by(self, kind: type) -> bool:
        """Whether the class of a module, or another function of its file, names the function."""
        if kind.__module__.startswith("torch."):
            return False
        if kind not in self._kinds:
            own = vars(sys.modules[kind.__module__]) if kind.__module__ in sys.modules else {}
            classes = [one for one in kind.__mro__ if not one.__module__.startswith(("torch.", "builtins"))]
            found = [value for holder in (own, *map(vars, classes)) for value in list(holder.values())]
            self._kinds[kind] = any(NAME in code.co_names for code in _codes(found))
        return self._kinds[kind]

    def _may_look(self, module: Any) -> bool:
        """Whether nobody would notice: no other mode is on but a default device, nothing traces, and torch.compile,
        which would compile anew under a mode, has compiled nothing in the steps so far."""
        modes = self._modes
        if modes is None or modes() or not self._progress.steps or not may_compute(self._torch):
            return False
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
        return not (counters and counters.get("frames")) and not any(
            getattr(part, "_compiled_call_impl", None) or hasattr(part, "_orig_mod") for part in module.modules()
        )

    def _look(self, original: Call, looked: Looked) -> Call:
        mode, progress = self._mode or self._make_mode(), self._progress

        def call(*args: Any, **kwargs: Any) -> Any:
            mode.dropouts = 0
            try:
                with mode:
                    return original(*args, **kwargs)
            except BaseException as error:
                leave_no_frame(error)
                raise
            finally:
                looked.dropouts = mode.dropouts
                progress.dropouts += mode.dropouts

        return call

    def _make_mode(self) -> Any:
        torch = self._torch
        attention = getattr(torch.nn.functional, NAME)
        # Ours count before torch asks the mode, and are called again by it.
        ours = {
            value: vars(value)["__wrapped__"]
            for value in vars(torch.nn.functional).values()
            if isinstance(value, FunctionType) and value.__code__.co_filename.startswith(COLLECTORS)
        }
        base: Any = torch.overrides.TorchFunctionMode

        class FusedDropoutMode(base):  # type: ignore[misc]
            dropouts = 0

            @unseen_by_warnings
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                kwargs = kwargs or {}
                if func is attention and kwargs.get("dropout_p", args[POSITION] if len(args) > POSITION else 0):
                    self.dropouts += 1
                try:
                    return ours.get(func, func)(*args, **kwargs)
                except BaseException as error:
                    leave_no_frame(error)
                    raise

        self._mode = FusedDropoutMode()
        return self._mode


def _codes(values: list[Any]) -> Iterator[CodeType]:
    """The code of functions, and of the methods of classes, with what is defined in them."""
    waiting = [
        code
        for value in values
        for one in (list(vars(value).values()) if isinstance(value, type) else [value])
        if isinstance(code := getattr(getattr(one, "__func__", one), "__code__", None), CodeType)
    ]
    for _ in range(MAX_CODE):
        if not waiting:
            return
        code = waiting.pop()
        yield code
        waiting.extend(inner for inner in code.co_consts if isinstance(inner, CodeType))
