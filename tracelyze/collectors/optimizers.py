"""Optimizers that stepped, and what is known of each."""

from __future__ import annotations

import json
import weakref
from typing import Any

REFRESH_EVERY = 32  # steps after which a changed requires_grad is noticed


class Tracked:
    """One optimizer. It must not outlive the optimizer: it holds the optimizer's parameters."""

    def __init__(self, optimizer: Any, index: int) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.index = index
        self.count = 0
        self.on_cuda = False
        self._parameters: list[Any] = []
        self._held = -1
        self._refreshed = -REFRESH_EVERY

    @property
    def optimizer(self) -> Any:
        """The torch optimizer, None once it is gone."""
        return self._optimizer()

    def parameters(self) -> list[Any]:
        """The trainable tensors it holds. Groups may be added while it trains, layers unfrozen."""
        optimizer = self._optimizer()
        if optimizer is None:
            return []
        held = sum(len(group["params"]) for group in optimizer.param_groups)
        if held != self._held or self.count - self._refreshed >= REFRESH_EVERY:
            self._held, self._refreshed = held, self.count
            self._parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
            self.on_cuda = bool(self._parameters) and bool(self._parameters[0].is_cuda)
        return self._parameters


def describe(tracked: Tracked) -> dict[str, Any]:
    """The row of an optimizer in the table optimizers."""
    optimizer = tracked.optimizer
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    first = optimizer.param_groups[0] if optimizer.param_groups else {}
    options = {k: v for k, v in first.items() if k != "params" and isinstance(v, (bool, int, float, str, tuple, list))}
    return {
        "optimizer": tracked.index,
        "name": type(optimizer).__name__,
        "groups": len(optimizer.param_groups),
        "parameters": len(parameters),
        "elements": sum(p.numel() for p in parameters),
        "device": str(parameters[0].device) if parameters else None,
        "dtype": ", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
        "options": json.dumps(options, default=str),
    }
