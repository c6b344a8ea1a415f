"""How many forward and backward hooks the model's modules hold: those that are never removed run at every call."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from tracelyze.collectors.program.call_sites import is_library, shown_path, source_line
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")  # as torch keeps them
MAX_MODULES = 20_000
MAX_ROWS = 24


class ModuleHooks(Signal):
    name = "module_hooks"
    columns = ()  # events of kind hooks
    about = "How many hooks the model's modules hold, where they grow in number, and which one is there most (events)."
    cost = "1 us a module, at the seconds 1, 2, 4, 8, ... on a thread of ours"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._seconds = self._rows = self._last = 0

    def every_second(self, row: dict[str, Any]) -> None:
        self._seconds += 1
        if self._seconds & (self._seconds - 1) == 0:
            self._look()

    def finished(self) -> None:
        self._look()

    def _look(self) -> None:
        hooks: Counter[CodeType | None] = Counter()
        modules = [module for _, module in self.program.calls.modules()]
        seen: set[int] = set()
        while modules and len(seen) < MAX_MODULES:
            held = getattr(modules.pop(), "__dict__", {})
            if id(held) in seen:
                continue
            seen.add(id(held))
            modules += [one for one in list((held.get("_modules") or {}).values()) if one is not None]
            hooks.update(_code(one) for kind in HOOKS for one in list((held.get(kind) or {}).values()))
        if hooks.total() <= self._last or self._rows >= MAX_ROWS:
            return
        self._last, self._rows = hooks.total(), self._rows + 1
        code = hooks.most_common(1)[0][0]
        where: dict[str, Any] = {}
        if code is not None and not is_library(code.co_filename):
            line = code.co_firstlineno
            source = source_line(code.co_filename, line)
            where = {"file": shown_path(code.co_filename), "line": line, "source": source}
        self.context.record_event("hooks", code.co_name if code is not None else "", value=self._last, **where)


def _code(hook: Any) -> CodeType | None:
    """What runs when a hook is called: a function, a method, or an object's `__call__`. By exact types: other objects
    may compute their attributes."""
    for _ in range(4):
        if type(hook) is partial:
            hook = hook.func
        elif type(hook) is MethodType:
            hook = hook.__func__
        else:
            break
    if type(hook) is not FunctionType:
        hook = next((vars(one)["__call__"] for one in type(hook).__mro__ if "__call__" in vars(one)), None)
    return hook.__code__ if type(hook) is FunctionType else None
