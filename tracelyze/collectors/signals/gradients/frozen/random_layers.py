"""Layers that are frozen at the random numbers that filled them, in a model whose other weights were loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from tracelyze.collectors.tensors import graphs
from tracelyze.collectors.tensors.safe_computing import may_compute, unseen
from tracelyze.collectors.tensors.saved_values import kind, saved

FIRST = 4  # values of a weight that are kept
MOST_NODES = 2**14  # of a graph
CLOSE = 1e-2  # of two values, one of which may have been rounded to 16 bits since
READABLE = ("cpu", "cuda")  # devices whose values can be read without waiting


class Filled(Protocol):
    """What is known of a weight that was filled: how often, whether it was loaded since, and its first values."""

    fills: int
    loaded: bool
    values: Any


class Layer(NamedTuple):
    name: str
    weight: Any
    values: Any  # the first ones that it was filled with


def first_values(torch: Any, tensor: Any) -> Any:
    """A copy of a few values, where the tensor is; None where the program would notice."""
    if not tensor.is_contiguous() or not may_compute(torch, tensor.is_cuda):
        return None
    with unseen(torch), torch.no_grad():
        return tensor.detach().reshape(-1)[:FIRST].clone()


def frozen(models: Iterable[Any], stepped: Collection[Any], filled: Mapping[int, Filled]) -> list[Layer]:
    """Matrices that no optimizer may change, of which none was loaded since it was filled, of a model that an optimizer
    trains in other parts and in which other frozen weights were loaded."""
    held = {id(one) for one in stepped}
    for model in models:
        named = list(model.named_parameters())
        if not any(id(one) in held for _, one in named):
            continue
        rest = [(name, one, filled.get(id(one))) for name, one in named if not one.requires_grad and one.dim() == 2]
        left = [
            Layer(name, one, known.values)
            for name, one, known in rest
            if known is not None and known.fills and not known.loaded and known.values is not None and _is_readable(one)
        ]
        if left and any(known is not None and known.loaded for _, _, known in rest):
            return left
    return []


def _is_readable(weight: Any) -> bool:
    return bool(weight.is_contiguous()) and weight.device.type in READABLE


def changed(torch: Any, layers: list[Layer]) -> list[Any]:
    """A number for each layer, on its device: 0 where it holds what it was filled with. A script may have put values
    into it by hand."""
    with unseen(torch), torch.no_grad():
        return [_has_changed(torch, layer) for layer in layers]


def _has_changed(torch: Any, layer: Layer) -> Any:
    now = layer.weight.detach().reshape(-1)[:FIRST].float()
    filled = layer.values.to(now.device, torch.float32)
    same = torch.isclose(now, filled, rtol=CLOSE, atol=0.0).all() & (filled != 0).any()
    return (~same).float()


def within(root: Any, layers: list[Layer]) -> list[Layer]:
    """Those on one device that stand between the trained weights and the loss: the graph multiplies by them."""
    addresses = {layer.weight.data_ptr(): layer for layer in layers}
    found: list[Layer] = []
    for node in graphs.nodes_behind([root], MOST_NODES):
        if kind(node) in ("Addmm", "Mm", "Bmm"):
            factor = saved(node, "mat2")
            layer = None if factor is None else addresses.pop(factor.data_ptr(), None)
            found += [layer] if layer is not None else []
    return [layer for layer in found if layer.weight.device == found[0].weight.device]
