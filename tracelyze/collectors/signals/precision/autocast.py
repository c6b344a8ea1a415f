"""The autocast dtype in force when the model was called."""

from __future__ import annotations

import weakref
from typing import Any

from tracelyze.collectors.internals import private_names
from tracelyze.collectors.internals.private_names import ANY_AUTOCAST
from tracelyze.collectors.program.calls import GRAD, Call
from tracelyze.collectors.signals.context import NextCall, SignalContext
from tracelyze.collectors.signals.signal import Signal


class Autocast(Signal):
    """Read after the forward returned, when a context opened by the caller is still open. One that is opened within
    the model's forward (Accelerate wraps it so) is seen from inside, in the first training forward that there is."""

    name = "autocast"
    needs = (ANY_AUTOCAST,)
    about = "The autocast dtype in force when the model was called."
    cost = "2 us a call"
    copied_columns = ("autocast",)
    columns = ("steps.autocast",)

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._inside = self.context.next_call.watch = _Inside(self.torch, context.next_call)
        self._any_autocast = private_names.find(self.torch, ANY_AUTOCAST)

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if call.replayed:
            return  # The call is over, and its mode was that of the call before.
        code = dtype_code(self.torch) if self._any_autocast() else 0
        if code or self._inside.code:
            call.autocast = code or self._inside.of(call.model.module())

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        call = tracked.training.latest or self.program.calls.latest
        if call is not None and call.mode == GRAD:
            row["autocast"] = call.autocast


class _Inside:
    """Watches one training forward for autocast within it; `code` is the dtype that was found there, 0 for none."""

    def __init__(self, torch: Any, next_call: NextCall) -> None:
        self._torch, self._next_call = torch, next_call
        self._seen: weakref.ref[Any] | None = None
        self.code = 0

    def begins(self, root: Any) -> _Inside | None:
        """Watch this call if it is a forward that trains, of a model with modules in it that is not compiled."""
        if not root.training or not root._modules or hasattr(root, "_orig_mod"):
            return None
        return self if self._torch.is_grad_enabled() else None

    def returned(self, module: Any, output: Any) -> None:
        """A module within returned: what it ran under is still in force."""
        self.code = self.code or dtype_code(self._torch)

    def ends(self, root: Any, output: Any) -> None:
        """Once is enough: a model is not wrapped anew every step."""
        self._seen = weakref.ref(root)
        if self._next_call.watch is self:
            self._next_call.watch = None

    def of(self, module: Any) -> int:
        """The dtype within this model's forward, 0 if there was none or it was not watched."""
        return self.code if self._seen is not None and self._seen() is module else 0


def dtype_code(torch: Any) -> int:
    """The autocast dtype in force, as in the column autocast; 0 for none."""
    if not torch._C._is_any_autocast_enabled():
        return 0
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            return 1 if dtype is torch.float16 else 2 if dtype is torch.bfloat16 else 3
    return 0
