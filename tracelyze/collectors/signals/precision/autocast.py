"""The autocast dtype in force when the model was called."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals import private_names
from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.internals.private_names import ANY_AUTOCAST
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.signals.context import ModuleWatch, SignalContext
from tracelyze.collectors.signals.signal import Signal


class Autocast(Signal):
    """Read after the forward returned, when a context opened by the caller is still open. One that is opened within
    the model's forward (Accelerate wraps it so) is seen from inside, in the first training forward of each model."""

    name = "autocast"
    needs = (ANY_AUTOCAST,)
    about = "The autocast dtype in force when the model was called."
    cost = "2 us a call"
    copied_columns = ("autocast",)
    columns = ("steps.autocast",)

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._inside = context.next_call.of_new_model = _Inside(self.torch)
        self._any_autocast = private_names.find(self.torch, ANY_AUTOCAST)

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if call.replayed:
            return  # The call is over, and its mode was that of the call before.
        code = dtype_code(self.torch) if self._any_autocast() else 0
        if code or self._inside.anywhere:
            call.autocast = code or self._inside.of(call.model.module())

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        call = tracked.training.latest or self.program.calls.latest
        if call is not None and call.mode == GRAD:
            row["autocast"] = call.autocast


class _Inside(ModuleWatch):
    """Watches the first training forward of each model for autocast within it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._known: ByIdentity[int] = ByIdentity()  # the dtype that was found there, 0 for none
        self._code = 0  # in the forward that is watched
        self.anywhere = False

    def begins(self, root: Any) -> _Inside | None:
        """Watch this call if it is a forward that trains, of a model with modules in it that is not compiled.

        Once is enough: a model is not wrapped anew every step.
        """
        if not root.training or not root._modules or hasattr(root, "_orig_mod"):
            return None
        if not self._torch.is_grad_enabled() or self._known.get(root) is not None:
            return None
        self._code = 0
        return self

    def returned(self, module: Any, output: Any, args: Any = (), kwargs: Any = None) -> None:
        """A module within returned: what it ran under is still in force."""
        self._code = self._code or dtype_code(self._torch)

    def ends(self, root: Any, output: Any) -> None:
        """The model itself returned."""
        self._known[root] = self._code
        self.anywhere = self.anywhere or self._code != 0

    def of(self, module: Any) -> int:
        """The dtype within this model's forward, 0 if there was none or it was not watched."""
        return self._known.get(module) or 0


def dtype_code(torch: Any) -> int:
    """The autocast dtype in force, as in the column autocast; 0 for none."""
    if not torch._C._is_any_autocast_enabled():
        return 0
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            return 1 if dtype is torch.float16 else 2 if dtype is torch.bfloat16 else 3
    return 0
