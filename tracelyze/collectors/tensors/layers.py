"""What a layer makes of the output of another one, within one forward: dead units; layers in a row."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.tensors import saved_values
from tracelyze.collectors.tensors.graphs import SQUEEZES, TURNS, VIEWS
from tracelyze.collectors.tensors.safe_computing import is_plain

RELUS = ("ReLU", "ReLU6")
SHAPING = (*VIEWS, *TURNS, *SQUEEZES, "Alias")
PRODUCTS = {"Addmm": 1, "Mm": 0, "Convolution": 0}  # by operation: which of its inputs is the data
MAX_ELEMENTS = 2**18  # of an output in which dead units are searched for
WALK_DEPTH = 8


class Silence:
    """Units of each ReLU that put out zero for every row of a batch, and did so at the sample before."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        # At the sample before, by module: shape [units]. Gone with the module.
        self._alive: ByIdentity[Any] = ByIdentity()

    def share(self, module: Any, output: Any, units: int | None) -> Any:
        """Share of the units that are dead, without its tensor's dimensions; None if it is not known which are units.

        `units`: how many the layer before puts out. The first sample has none before it.
        """
        dim = 1 if output.dim() in (2, 4, 5) else None
        if output.dim() == 3:
            dim = next((one for one in (2, 1) if output.shape[one] == units), None)
        if dim is None:
            return None
        rows = max(1, MAX_ELEMENTS * output.shape[0] // output.numel())
        part = output.detach()[:rows]
        alive = part.ne(0).movedim(dim, -1).reshape(-1, part.shape[dim]).any(0)
        before, self._alive[module] = self._alive.get(module), alive
        if before is None or before.shape != alive.shape or before.device != alive.device:
            return None
        return 1.0 - (alive | before).float().mean()


class Products:
    """The linear layers and convolutions of one forward, each with the one that it was fed by, if by one alone."""

    def __init__(self, torch: Any) -> None:
        nn = torch.nn
        self._kinds = (
            nn.Linear,
            nn.Conv1d,
            nn.Conv2d,
            nn.Conv3d,
            nn.ConvTranspose1d,
            nn.ConvTranspose2d,
            nn.ConvTranspose3d,
        )
        self._torch = torch
        self._nodes: list[tuple[Any, str]] = []  # of layers with a bias, as a script that forgets an activation has
        self.outputs: int | None = None  # of the last layer that was seen

    def facts(self, module: Any, name: str, output: Any) -> dict[str, Any]:
        """Columns of the table activations: sizes of the layer and what it was fed by; channels of a batch
        normalisation that uses the batch. Empty for other modules."""
        if isinstance(module, self._torch.nn.modules.batchnorm._BatchNorm) and module.training:
            return {"outputs": int(module.num_features)} if module.num_features else {}
        weight = module._parameters.get("weight") if isinstance(module, self._kinds) else None
        if weight is None or not is_plain(self._torch, weight):
            return {}
        convolution = not isinstance(module, self._kinds[0])
        if convolution and module.transposed:
            return {}
        self.outputs = int(weight.shape[0])
        found: dict[str, Any] = {"inputs": int(weight.shape[1]), "outputs": self.outputs}
        if convolution and (module.groups > 1 or max(module.kernel_size) < 2):
            return found  # Kernels of size one, or one channel each, are parts of a factorisation that is meant.
        node = _through_views(output.grad_fn)
        place = PRODUCTS.get(_kind(node))
        if place is None:
            return found
        source = _through_views(node.next_functions[place][0])
        fed_by = next((other for one, other in self._nodes if one is source), None)
        if fed_by is not None:
            found["fed_by"] = fed_by
        if module._parameters.get("bias") is not None:
            self._nodes.append((node, name))
        return found


def _kind(node: Any) -> str:
    return "" if node is None else saved_values.kind(node)


def _through_views(node: Any) -> Any:
    """The operation behind views of its values."""
    for _ in range(WALK_DEPTH):
        if _kind(node) not in SHAPING:
            return node
        node = node.next_functions[0][0]
    return None
