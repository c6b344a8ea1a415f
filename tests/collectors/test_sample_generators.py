"""Generators that a dataset seeds for each sample, and the samples that it stores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tracelyze.collectors.program.lines import sample_generators


def line_of(body: str) -> int | None:
    module = compile(f"def __getitem__(self, i):\n    y = self.x[i]\n    {body}\n    return y", "data.py", "exec")
    (code,) = (one for one in module.co_consts if hasattr(one, "co_code"))
    return sample_generators._seeds(code)


@pytest.mark.parametrize(
    ("body", "seeds"),
    [
        ("g = torch.Generator().manual_seed(i)", True),
        ("r = np.random.RandomState(1000 + i)", True),
        ("r = np.random.default_rng(self.seed + i)", True),
        ("r = random.Random(7)", True),
        ("r = np.random.default_rng()", False),
        ("r = np.random.default_rng(torch.randint(2**31, ()).item())", False),
        ("g = torch.Generator().manual_seed(self.epoch * 1000 + i)", False),
        ("torch.manual_seed(i)", False),
        ("r = self.rng.normal(0, 1)", False),
    ],
)
def test_a_seed_that_is_the_same_in_each_epoch(body: str, seeds: bool) -> None:
    assert line_of(body) == (3 if seeds else None)


class Images(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.x, self.names, self.centers = torch.zeros(20, 3, 4), ["a"] * 20, torch.zeros(5, 3, 4)
        self.arrays = [torch.zeros(2, 2)] * 20

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        generator = torch.Generator().manual_seed(index)
        return self.x[index] + torch.randn(3, 4, generator=generator)


def test_what_a_dataset_stores() -> None:
    sites = SimpleNamespace(at=lambda role, code, line: line - code.co_firstlineno)
    assert sample_generators.of(Images(), sites) == (1, "3x4 2x2")
    assert sample_generators.of(torch.utils.data.Subset(Images(), [1, 2]), sites) == (1, "3x4 2x2")
    assert sample_generators.of(torch.utils.data.TensorDataset(torch.zeros(20, 3)), sites) is None
