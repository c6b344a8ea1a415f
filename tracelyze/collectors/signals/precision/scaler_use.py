"""Whether a GradScaler is used at both ends of a step: scaling the loss before, unscaling the gradients after."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.by_identity import SetByIdentity
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors import graphs

UNUSED, UNSCALED, STEPPED = 0, 1, 2
MARK = "tracelyze-scaled"  # on the autograd node that scaled a loss
WALK = 16  # nodes between what backward is called on and the scaled loss


class ScalerUse(Signal):
    """Null for programs without an enabled scaler."""

    name = "scaler_use"
    columns = ("steps.losses_scaled", "steps.scaler_use", "steps.scaler_new", "steps.backwards_unscaled")
    inactive = ("before_backward", "after_step")
    needs_every_step = True
    about = "Losses that GradScaler scaled for a step, and whether GradScaler or the script made the step."
    cost = "1 us a step"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._scaled = 0
        self._use = UNUSED
        self._stepped = False
        self._unscaled = 0
        self._known: SetByIdentity = SetByIdentity()  # scalers that have made a step
        self._new = False

    def scale(self, original: Any, scaled: Any) -> None:
        self.activate()
        if self._stepped:
            self._begin()
        self._scaled += 1
        for one in scaled if isinstance(scaled, list | tuple) else (scaled,):
            if isinstance(one, self.torch.Tensor) and one.grad_fn is not None:
                one.grad_fn.metadata[MARK] = True

    def unscale(self, scaler: Any, optimizer: Any) -> None:
        self.activate()
        self._use = max(self._use, UNSCALED)

    def scaler_step(self, scaler: Any) -> None:
        self.activate()
        self._use = STEPPED
        self._new = scaler not in self._known
        self._known.add(scaler)

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        if self._stepped:  # nothing was scaled since; several optimizers may step after one backward
            self._begin()
        if roots and not self._is_scaled(roots[0]):
            self._unscaled += 1

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        row["losses_scaled"], row["scaler_use"] = self._scaled, self._use
        row["backwards_unscaled"] = self._unscaled
        if self._use == STEPPED:
            row["scaler_new"] = self._new
        self._use = UNUSED
        self._stepped = True

    def _begin(self) -> None:
        self._scaled, self._unscaled, self._stepped = 0, 0, False

    @staticmethod
    def _is_scaled(root: Any) -> bool:
        """Whether a backward begins at a scaled loss, or at something made of one."""
        nodes, seen = [root.grad_fn], 0
        while nodes and seen < WALK:
            node = nodes.pop(0)
            seen += 1
            if node is not None:
                if MARK in node.metadata:
                    return True
                nodes += graphs.parts(node)
        return False
