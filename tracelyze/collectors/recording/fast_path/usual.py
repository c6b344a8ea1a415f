"""Whether a backward is as those before it, read off its loss."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.recording.fast_path.expected import ExpectedBackward
from tracelyze.collectors.recording.guards import Guard
from tracelyze.collectors.signals.loss.loss import own_divisor
from tracelyze.collectors.tensors.safe_computing import may_compute


def usual_loss(torch: Any, guard: Guard, roots: Any, retains_graph: bool, expected: ExpectedBackward) -> Any:
    """The loss that a backward begins with, if it is a single number of the usual size, no guard column has changed,
    and it counts as much in the loss of the step as it did; None otherwise. A loss on a device is not known yet, and a
    copy stands for it: its own memory may be used again, as by a graph that is replayed."""
    if (
        type(roots) is torch.Tensor
        and retains_graph is expected.retains_graph
        and not guard.function_modes()
        and not guard.dispatch_modes()
        and not roots.dim()
    ):
        if expected.device is not None:
            if roots.device != expected.device or not may_compute(torch, roots.is_cuda):
                return None
            loss = None
        elif roots.is_cpu:
            loss = roots.item()
            limit = expected.losses.limit
            if not -limit < loss < limit:
                return None
        else:
            return None
        for read, before in expected.guards:
            if read() != before:
                return None
        if expected.read is None or expected.read == _read(torch, roots):
            return roots.detach().clone() if loss is None else loss
    return None


def _read(torch: Any, loss: Any) -> tuple[float | None, bool, bool]:
    """What the full path reads of a loss, as in `ExpectedBackward.read`."""
    divisor, is_part, is_mean = own_divisor(torch, loss.grad_fn)
    return None if is_part else divisor, is_part, is_mean
