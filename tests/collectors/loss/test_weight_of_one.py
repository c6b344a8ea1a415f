"""How much class 1 counts against class 0 in a loss of two classes, as its weights are given."""

from __future__ import annotations

import torch

from tracelyze.collectors.tensors.loss_targets import weight_of_one

BINARY = "binary_cross_entropy_with_logits"


def test_weights_of_two_classes() -> None:
    scores, three = torch.zeros(4), torch.tensor([3.0])
    assert float(weight_of_one(torch, BINARY, scores, (), {"pos_weight": three})["weight_of_one"]) == 3.0
    found = weight_of_one(torch, "cross_entropy", torch.zeros(4, 2), (scores, scores, torch.tensor([2.0, 1.0])), {})
    assert float(found["weight_of_one"]) == 0.5
    assert weight_of_one(torch, BINARY, scores, (), {"pos_weight": torch.ones(5)}) == {}, "several labels"
    assert weight_of_one(torch, BINARY, scores, (), {"pos_weight": None}) == {}
    assert weight_of_one(torch, "nll_loss", scores, (), {"weight": torch.ones(3)}) == {}, "three classes"
    assert weight_of_one(torch, "mse_loss", scores, (), {"weight": torch.ones(2)}) == {}
