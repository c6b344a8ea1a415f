"""Gates of mixtures of experts: which expert is the first choice for how many tokens."""

from __future__ import annotations

import re
from typing import Any

from tracelyze.collectors.tensors.safe_computing import is_plain

NAMED = re.compile(r"gate|rout|switch", re.IGNORECASE)
IDLE = 0.1  # of an even share of the tokens: an expert that gets less is not used
NUMBERS = ("busiest", "busiest_share", "idle")


class Gates:
    """The gates in a model: modules of such a name beside as many experts as they have outputs."""

    def __init__(self, torch: Any, root: Any) -> None:
        self._torch = torch
        self._experts: dict[int, int] = {}  # by identity of the gate
        for parent in root.modules():
            children = dict(parent.named_children())
            gates = {name: one for name, one in children.items() if NAMED.search(name)}
            numbers = {_experts(one) for name, one in children.items() if name not in gates} if gates else set()
            for gate in gates.values():
                outputs = _outputs(gate)
                if outputs is not None and outputs > 1 and outputs in numbers:
                    self._experts[id(gate)] = outputs

    def facts(self, module: Any) -> dict[str, int]:
        """Columns of the table activations that are known of a gate; empty for other modules."""
        experts = self._experts.get(id(module))
        return {} if experts is None else {"experts": experts}

    def numbers(self, output: Any, experts: int) -> list[Any]:
        """NUMBERS of a gate's output, on its device. NaN where its last dimension is not that of the experts."""
        torch = self._torch
        if output.dim() < 2 or output.shape[-1] != experts or not is_plain(torch, output):
            return [torch.full((), float("nan"), device=output.device)] * len(NUMBERS)
        choices = output.detach().reshape(-1, experts).argmax(1)
        shares = (choices.unsqueeze(1) == torch.arange(experts, device=choices.device)).float().mean(0)
        return [shares.argmax(), shares.amax(), (shares < IDLE / experts).sum()]


def _experts(module: Any) -> int | None:
    """How many experts a module holds: the length of a list, or the first dimension of weights for all of them."""
    if type(module).__name__ == "ModuleList":
        return len(module)
    stacked = [p.shape[0] for p in module._parameters.values() if p is not None and p.dim() == 3]
    return int(stacked[0]) if stacked else None


def _outputs(gate: Any) -> int | None:
    """Outputs of a gate: of its own weight, or of the last layer within."""
    weights = [p for p in gate.parameters() if p.dim() == 2]
    return int(weights[-1].shape[0]) if weights else None
