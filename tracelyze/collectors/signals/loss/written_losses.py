"""Losses that the script writes out by itself: the shapes of what meets in them."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.private_names import SAVED
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors import saved_values
from tracelyze.collectors.tensors.written_losses import meeting

FIRST = 8  # backwards since the newest optimizer stepped first that are all looked at; then ever more rarely
NAME = "written out"


class WrittenLosses(Signal):
    name = "written_losses"
    needs = (SAVED,)
    columns = tuple(
        f"loss_calls.{name}"
        for name in ("step", "function", "site", "loader", "training", "reduction", "input_shape", "target_shape",
                     "target_integer")
    )  # fmt: skip
    about = (
        "Losses that are written out instead of called: shapes of prediction and target, from the graph behind them."
    )
    cost = "100 us a sample, of which a run has some tens"
    copied_columns = ()

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        saved_values.watch(self.torch)
        self._begun = 0  # backwards of the process when the newest optimizer stepped first
        self._next = 0  # backwards since then at which to look again

    def first_step(self, tracked: Any) -> None:
        self._begun, self._next = self.progress.backwards, 0

    def before_backward(self, roots: Any) -> None:
        count = self.progress.backwards - self._begun
        if count < self._next or type(roots) is float:
            return
        self._next = count + 1 if count < FIRST else 2 * count
        root = roots[0] if isinstance(roots, (tuple, list)) and roots else roots
        if type(root) is not self.torch.Tensor or root.dim() or root.grad_fn is None:
            return
        found = meeting(self.torch, root.grad_fn)
        if found is None:
            return
        self.context.emit(
            "loss_calls",
            {
                "step": self.progress.steps,
                "function": NAME,
                "site": self.program.sites.here("backward"),
                "loader": self.progress.loader,
                "training": True,
                "reduction": "mean",
                "input_shape": shape_of_sizes(found.given),
                "target_shape": shape_of_sizes(found.target),
                "target_integer": False,
            },
        )


def shape_of_sizes(sizes: tuple[int, ...]) -> str:
    """As in the other rows of the table: 32x10."""
    return "x".join(str(size) for size in sizes)
