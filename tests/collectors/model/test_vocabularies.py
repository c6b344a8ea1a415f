"""Embeddings that were made larger are recognised, however that was done."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracelyze.collectors.program.modules import vocabularies  # noqa: E402


def made(rows: int, width: int = 12) -> nn.Embedding:
    module = nn.Embedding(rows, width)
    with torch.no_grad():
        vocabularies.made(module)
    return module


def test_a_new_embedding_with_the_rows_of_the_old_one() -> None:
    old, other = made(50), made(55)
    new = made(58)
    new.weight.data[:50] = old.weight.data
    assert vocabularies.grown_from(new, 58) == 50
    assert vocabularies.grown_from(other, 55) is None, "another embedding of that width"


def test_another_weight_for_an_embedding_that_there_was() -> None:
    for way in range(2):
        module = made(50)
        larger = torch.cat([module.weight.detach(), torch.zeros(4, 12)])
        if way:
            module.weight = nn.Parameter(larger)
        else:
            module.weight.data = larger
        assert vocabularies.grown_from(module, 54) == 50


def test_an_embedding_that_was_made_without_values() -> None:
    """As transformers makes a model whose weights it reads from a file."""
    with torch.device("meta"):
        module = made(50)
        another = made(40)
    module.weight = nn.Parameter(torch.randn(50, 12))
    assert vocabularies.grown_from(module, 50) is None
    module.weight.data = torch.cat([module.weight.detach(), torch.zeros(4, 12)])
    assert vocabularies.grown_from(module, 54) == 50
    assert another.weight.is_meta


def test_copies_of_an_embedding() -> None:
    module, other = made(50), made(50)
    assert vocabularies.is_copy(module, copy.deepcopy(module).weight)
    assert not vocabularies.is_copy(module, other.weight)
    assert not vocabularies.is_copy(module, module.weight)


def test_embeddings_that_are_as_they_were_made() -> None:
    words, places, far = made(50), made(48), made(20)
    assert [vocabularies.grown_from(one, one.weight.shape[0]) for one in (words, places, far)] == [None] * 3
