"""One forward and backward of the model, made twice from the same state: do the bits agree?

The backward begins with gradients of our own at the outputs, the same both times: the program's loss is not called.
"""

from __future__ import annotations

import math
from typing import Any

from tracelyze.collectors.program.models import tensors_of
from tracelyze.collectors.signals.probing.copied_model import CopiedModel, RandomStates

PERIOD = 7  # of the gradients at the outputs: -3 to 3, over and over


def compare(torch: Any, copied: CopiedModel, states: RandomStates) -> dict[str, Any]:
    """A row of the table replays."""
    first, second = (_replay(torch, copied, states) for _ in range(2))
    outputs = _difference(torch, first.outputs, second.outputs)
    gradients = _difference(torch, first.gradients, second.gradients)
    different = [
        (name, kind)
        for (name, kind, seen), (_, _, again) in zip(first.digests, second.digests, strict=False)
        if not bool(torch.equal(seen, again))
    ]
    name, kind = different[0] if different else (None, None)
    return {
        "outputs": outputs,
        "gradients": gradients,
        "module": name,
        "kind": kind,
        "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        "device": first.device,
    }


class _Replay:
    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.gradients: list[Any] = []
        self.digests: list[tuple[str, str, Any]] = []  # name, class and bits of each module's output, in order
        self.device = ""


def _replay(torch: Any, copied: CopiedModel, states: RandomStates) -> _Replay:
    states.restore()
    done, model = _Replay(), copied.fresh(training=True)
    args, kwargs = copied.given()
    for name, part in model.named_modules():
        part.register_forward_hook(_Digests(torch, name, done))
    with torch.enable_grad():
        output = model(*args, **kwargs)
        tensors = [one for one in tensors_of(torch, output) if one.is_floating_point()]
        roots = [one for one in tensors if one.requires_grad]
        parameters = [one for one in model.parameters() if one.requires_grad]
        if roots and parameters:
            weights = [_cotangent(torch, one) for one in roots]
            found = torch.autograd.grad(roots, parameters, weights, allow_unused=True)
            done.gradients = [one.detach() for one in found if one is not None and not one.is_sparse]
    done.outputs = [one.detach() for one in tensors]
    done.device = tensors[0].device.type if tensors else ""
    return done


class _Digests:
    """A forward hook of a copied module: a sum over the bits of what it puts out."""

    def __init__(self, torch: Any, name: str, done: _Replay) -> None:
        self._torch, self._name, self._done = torch, name, done

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        tensor = next((one for one in tensors_of(self._torch, output) if one.is_floating_point()), None)
        if tensor is not None:
            self._done.digests.append((self._name, type(module).__name__, bits(self._torch, tensor).sum()))


def bits(torch: Any, tensor: Any) -> Any:
    """The elements of a tensor of floating point as whole numbers, in one dimension."""
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.detach().contiguous().reshape(-1).view(whole).to(torch.int64)


def _cotangent(torch: Any, output: Any) -> Any:
    count = torch.arange(output.numel(), device=output.device)
    return ((count % PERIOD - PERIOD // 2) / max(1, output.numel())).to(output.dtype).reshape(output.shape)


def _difference(torch: Any, first: list[Any], second: list[Any]) -> float:
    """The largest difference over the largest value of its tensor; 0.0 only where all bits agree."""
    if len(first) != len(second) or any(a.shape != b.shape for a, b in zip(first, second, strict=True)):
        return math.inf
    largest = 0.0
    for a, b in zip(first, second, strict=True):
        if not a.numel() or bool(torch.equal(bits(torch, a), bits(torch, b))):
            continue
        one, other = a.double(), b.double()
        both = torch.isfinite(one) & torch.isfinite(other)
        scale = float(one[both].abs().max()) if bool(both.any()) else 0.0
        change = float((one - other)[both].abs().max()) if bool(both.any()) else 0.0
        # Where a value is finite in one of them only, nothing compares; signs of zero are bits as well.
        apart = math.inf if bool((torch.isfinite(one) != torch.isfinite(other)).any()) else change / (scale or 1.0)
        largest = max(largest, apart, SMALLEST)
    return largest


SMALLEST = 1e-300  # bits differ, values do not
