"""Whether a backward is as those before it, read off its loss."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.recording.fast_path.expected import ExpectedBackward
from tracelyze.collectors.recording.guards import Guard
from tracelyze.collectors.signals.loss.loss import own_divisor


def usual_loss(torch: Any, guard: Guard, roots: Any, retains_graph: bool, expected: ExpectedBackward) -> float | None:
    """The loss that a backward begins with, if it is a single number on the CPU of the usual size, no guard column has
    changed, and it counts as much in the loss of the step as it did; None otherwise."""
    if (
        type(roots) is torch.Tensor
        and retains_graph is expected.retains_graph
        and not guard.function_modes()
        and not guard.dispatch_modes()
        and roots.is_cpu
        and not roots.dim()
    ):
        loss: float = roots.item()
        limit = expected.losses.limit
        if -limit < loss < limit:
            for read, before in expected.guards:
                if read() != before:
                    return None
            if expected.read is None or expected.read == _read(torch, roots):
                return loss
    return None


def _read(torch: Any, loss: Any) -> tuple[float | None, bool, bool]:
    """What the full path reads of a loss, as in `ExpectedBackward.read`."""
    divisor, is_part, is_mean = own_divisor(torch, loss.grad_fn)
    return None if is_part else divisor, is_part, is_mean
