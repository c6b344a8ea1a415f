"""Ways past what `model(x)` and `model.train()` do: `model.forward(x)`, a call of the module inside of a
DistributedDataParallel in its place, and a `train` of its own that nobody calls."""

from __future__ import annotations

import sys
import weakref
from types import FrameType, FunctionType, MethodType
from typing import Any

from tracelyze.collectors.internals.local_variables import first_argument
from tracelyze.collectors.internals.own_frames import PACKAGE
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.call_sites import is_library, shown_path, source_line
from tracelyze.collectors.program.lines import construction
from tracelyze.collectors.program.modules import mode_overrides
from tracelyze.collectors.program.modules.direct_calls import DirectCall
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

DEPTH = 12  # frames between a module and the function that called it
MAX_EVENTS = 20
MAX_HOOKS = 3  # whose names are recorded
MAX_PARTS = 5000  # modules of a model that are gone through


class CallsPastModules(Signal):
    name = "calls_past_modules"
    columns = ("events.kind", "events.name", "events.value", "events.file", "events.line", "events.source")
    about = "Calls of a model's forward past its hooks; `train` methods that freeze and have not been called."
    cost = "50 us for each model, once"
    copied_columns = ()

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._seen: set[int] = set()
        self._reported: set[str] = set()
        self._waiting: list[tuple[weakref.ref[Any], str]] = []  # modules whose `train` has not been called
        self._examined: set[int] = set()

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        number = call.model.number
        if self._waiting:
            self._ask_again(call.mode == GRAD and call.in_train and not call.replayed)
        if number not in self._seen:
            self._seen.add(number)
            self._find_direct_call(call.model.module())
        for one in self.program.direct_calls.take():
            self._find_past_hooks(one)
        if number not in self._examined and call.mode == GRAD and call.in_train and not call.replayed:
            self._examined.add(number)
            model = call.model.module()
            holder = self._holder(model)
            self._find_overrides(model if holder is None else holder)

    def first_step(self, tracked: Tracked) -> None:
        """Note where a wrapper was made that no call went through until now."""
        distributed = sys.modules.get("torch.nn.parallel.distributed")
        if distributed is None or not self.torch.distributed.is_initialized():
            return
        kind = distributed.DistributedDataParallel
        called = {id(module): module for _, module in self.program.calls.modules()}
        others = any(isinstance(one, kind) for one in called.values())  # of these, one may wait for its turn
        for wrapper in construction.modules.of_kind(kind):
            if id(wrapper) not in called and not (others and called.keys().isdisjoint(map(id, wrapper.modules()))):
                construction.modules.site_of(wrapper, "wrapper", self.program.sites)

    def _find_overrides(self, model: Any) -> None:
        base = self.torch.nn.Module
        for index, (path, module) in enumerate(model.named_modules() if model is not None else ()):
            if index >= MAX_PARTS:
                return
            freezes = mode_overrides.freezes(type(module), base) and module not in mode_overrides.called
            freezes = freezes and all(ref() is not module for ref, _ in self._waiting)
            freezes = freezes and mode_overrides.untouched(module) and not mode_overrides.is_switched_off(module)
            if freezes and len(self._reported) < MAX_EVENTS:
                name = type(module).__name__
                self._reported.add(name)
                self._waiting.append((weakref.ref(module), name))
                code = type(module).train.__code__
                evaluated = (module in mode_overrides.evaluated) + 2.0 * mode_overrides.only_statistics(module)
                evaluated += 4.0 * (not mode_overrides.by_parameters(module))
                mode_overrides.evaluated.discard(module)
                self._report("train-not-called", name, path, code.co_filename, code.co_firstlineno, evaluated)

    def _holder(self, model: Any) -> Any:
        """The outermost module of those whose own method, or a function that is given it, calls parts of it and never
        the module itself, as the `training_step` of a LightningModule does; None where the model is called whole."""
        frame: FrameType | None = sys._getframe(2)
        holder = None
        for _ in range(DEPTH if model is not None else 0):
            if frame is None:
                break
            if not is_library(frame.f_code.co_filename):
                owner = first_argument(frame)
                inner = model if holder is None else holder
                if isinstance(owner, self.torch.nn.Module) and any(part is inner for part in owner.modules()):
                    holder = owner
            frame = frame.f_back
        return holder

    def _ask_again(self, trains: bool) -> None:
        """Note which modules have been frozen after all: by `train()`, or for good as they were put to evaluate."""
        for ref, name in list(self._waiting):
            module = ref()
            called = module in mode_overrides.called if module is not None else True
            frozen = called
            if not frozen and trains and module in mode_overrides.evaluated:
                mode_overrides.evaluated.discard(module)
                frozen = not mode_overrides.untouched(module)
            if frozen:
                self._waiting.remove((ref, name))
                if module is not None:
                    self.context.record_event("train-called", name, value=0.0 if called else 1.0)

    def _find_direct_call(self, module: Any) -> None:
        """The function that called an outermost module is the `forward` of another one, which holds it: that one was
        not called itself, or it would be the outermost."""
        frame: FrameType | None = sys._getframe(1)
        for _ in range(DEPTH):
            if frame is None:
                return
            code = frame.f_code
            own = code.co_filename.startswith(PACKAGE)
            if code.co_name == "forward" and not own:
                break
            if not own and not is_library(code.co_filename):
                return
            frame = frame.f_back
        if frame is None or frame.f_code.co_name != "forward":
            return
        owner = first_argument(frame)
        if not isinstance(owner, self.torch.nn.Module) or owner is module:
            return
        if len(self._reported) >= MAX_EVENTS or not any(part is module for part in owner.modules()):
            return
        caller = frame.f_back
        while caller is not None and (is_library(caller.f_code.co_filename) or caller.f_code.co_name == "forward"):
            outer = first_argument(caller) if caller.f_code.co_name == "forward" else None
            owner = outer if isinstance(outer, self.torch.nn.Module) else owner
            caller = caller.f_back
        if caller is not None:
            self._direct_call(owner, caller.f_code.co_filename, caller.f_lineno)

    def _find_past_hooks(self, one: DirectCall) -> None:
        """A part whose forward another module calls: without hooks it makes no difference."""
        module = one.module()
        if module is not None and (module._forward_pre_hooks or module._forward_hooks):
            self._direct_call(module, one.file, one.line)

    def _direct_call(self, owner: Any, file: str, line: int) -> None:
        name = type(owner).__name__
        if name in self._reported or len(self._reported) >= MAX_EVENTS:
            return
        self._reported.add(name)
        hooks = [*owner._forward_pre_hooks.values(), *owner._forward_hooks.values()]
        names = [_own_hook(hook) for hook in hooks[: MAX_HOOKS + 1]]
        text = ", ".join(names) if len(names) <= MAX_HOOKS and all(names) else ""
        self._report("direct-forward", name, text, file, line, float(len(hooks)))

    def _report(self, kind: str, name: str, text: str, filename: str, line: int, value: float | None = None) -> None:
        self.context.record_event(
            kind, name, text, value=value, file=shown_path(filename), line=line, source=source_line(filename, line)
        )


def _own_hook(hook: Any) -> str:
    """Name and line of a hook that the script defines; empty for what a library or a callable object does."""
    function = hook.__func__ if type(hook) is MethodType else hook
    if type(function) is not FunctionType or is_library(function.__code__.co_filename):
        return ""
    name = function.__qualname__.rpartition("<locals>.")[2].replace("<lambda>", "a lambda")
    return f"{name} (line {function.__code__.co_firstlineno})"
