"""Layers that are frozen as they were filled, beside others that were loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracelyze.collectors.signals.gradients.frozen import random_layers  # noqa: E402
from tracelyze.collectors.tensors import saved_values  # noqa: E402


def known(weight: Any, loaded: bool = False) -> Any:
    return SimpleNamespace(fills=1, loaded=loaded, values=random_layers.first_values(torch, weight))


def model_of(loaded: tuple[str, ...] = ("0",)) -> tuple[Any, dict[int, Any]]:
    """Frozen but for its middle layer; which layers were loaded."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3))
    for place in (0, 2):
        model[place].requires_grad_(False)
    return model, {id(layer.weight): known(layer.weight, str(place) in loaded) for place, layer in enumerate(model)}


def candidates(model: Any, filled: dict[int, Any]) -> list[random_layers.Layer]:
    return random_layers.frozen([model], [one for one in model.parameters() if one.requires_grad], filled)


def names(model: Any, filled: dict[int, Any]) -> list[str]:
    """Those that hold what they were filled with."""
    layers = candidates(model, filled)
    return [layer.name for layer, other in zip(layers, random_layers.changed(torch, layers), strict=True) if not other]


def test_a_new_head_that_is_frozen() -> None:
    saved_values.watch(torch)
    model, filled = model_of()
    assert names(model, filled) == ["2.weight"]
    found = candidates(model, filled)
    assert random_layers.within(model(torch.randn(4, 6)).sum().grad_fn, found) == found
    assert random_layers.within(model(torch.randn(4, 5, 6)).sum().grad_fn, found) == found
    assert random_layers.within(model[:2](torch.randn(4, 6)).sum().grad_fn, found) == [], "nothing runs through it"


def test_frozen_layers_that_are_no_fault() -> None:
    for loaded in ((), ("0", "2")):  # random features alone, and a head that was loaded
        assert names(*model_of(loaded)) == []
    by_hand, filled = model_of()
    by_hand[2].weight.data = torch.randn(3, 8)
    assert names(by_hand, filled) == [], "a script may put values into it"
    trained, filled = model_of()
    trained[2].requires_grad_(True)
    assert names(trained, filled) == []
    rounded, filled = model_of()
    assert names(rounded.to(torch.bfloat16), filled) == ["2.weight"]
