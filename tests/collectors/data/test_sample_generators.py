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
    return sample_generators._seeds(code, frozenset())


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
        ("torch.manual_seed(i)", True),
        ("r = self.rng.normal(0, 1)", False),
        ("np.random.seed(self.seed + i)", True),
        ("self.rng.seed(i)", True),
        ("r = self.seed + i", False),
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


class Epochs(Images):
    def __init__(self, epoch: Any) -> None:
        super().__init__()
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        generator = torch.Generator().manual_seed(1000 * self.epoch + index)
        return self.x[index] + torch.randn(3, 4, generator=generator)


class Seeded(Images):
    """Reads its seed before it seeds."""

    def __init__(self) -> None:
        super().__init__()
        self.seed, self.epoch = 7, 0

    def __getitem__(self, index: int) -> Any:
        if self.seed is None:
            return self.x[index]
        generator = torch.Generator().manual_seed(self.seed * 1000 + self.epoch * 100 + index)
        return self.x[index] + torch.randn(3, 4, generator=generator)


def test_a_seed_that_is_read_before_it_is_used() -> None:
    sites = SimpleNamespace(at=lambda role, code, line: line - code.co_firstlineno)
    assert sample_generators.of(Seeded(), sites, copied_once=True) == (3, "3x4 2x2")
    assert sample_generators.of(Seeded(), sites) is None, "workers that start anew are told the epoch"


class CountedEpochs(Epochs):
    def __getitem__(self, index: int) -> Any:
        self.epoch += 1
        generator = torch.Generator().manual_seed(1000 * self.epoch + index)
        return self.x[index] + torch.randn(3, 4, generator=generator)


class Noise:
    def __init__(self) -> None:
        self.epoch = 0

    def __call__(self, x: Any, index: int) -> Any:
        generator = torch.Generator().manual_seed(1000 * self.epoch + index)
        return x + torch.randn(3, 4, generator=generator)


def test_the_epoch_of_a_transform_in_workers_that_stay() -> None:
    sites = SimpleNamespace(at=lambda role, code, line: line - code.co_firstlineno)
    noisy = Wrapped(torch.utils.data.TensorDataset(torch.zeros(20, 3, 4)), Noise())
    assert sample_generators.of(noisy, sites, copied_once=True) == (1, "3x4")
    assert sample_generators.of(noisy, sites) is None


def test_a_seed_by_the_epoch_in_workers_that_stay() -> None:
    sites = SimpleNamespace(at=lambda role, code, line: line - code.co_firstlineno)
    found = sample_generators.of(Epochs(0), sites, copied_once=True)
    assert found == (1, "3x4 2x2")
    assert sample_generators.of(Epochs(0), sites) is None, "workers that start anew are told"
    assert sample_generators.of(Epochs(torch.zeros(1)), sites, copied_once=True) is None, "all see shared memory"
    assert sample_generators.of(CountedEpochs(0), sites, copied_once=True) is None, "each copy counts by itself"


class Wrapped(torch.utils.data.Dataset[Any]):
    """A helper method draws, and the samples are those of another dataset."""

    def __init__(self, base: Any, transform: Any) -> None:
        self.base, self.transform = base, transform

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Any:
        return self.changed(self.base[index][0], index)

    def changed(self, x: Any, index: int) -> Any:
        return self.transform(x, index)


def shifted(x: Any, index: int) -> Any:
    generator = torch.Generator()
    generator.manual_seed(index)
    return x.roll(int(torch.randint(4, (1,), generator=generator)))


class Shift:
    def __init__(self) -> None:
        self.epoch = 0

    def __call__(self, x: Any, index: int) -> Any:
        generator = torch.Generator().manual_seed(self.epoch * 1000 + index)
        return x.roll(int(torch.randint(4, (1,), generator=generator)))


def test_what_the_dataset_calls_and_what_it_wraps() -> None:
    sites = SimpleNamespace(at=lambda role, code, line: (code.co_name, line - code.co_firstlineno))
    base = torch.utils.data.TensorDataset(torch.rand(20, 5, 6), torch.zeros(20))
    assert sample_generators.of(Wrapped(base, shifted), sites) == (("shifted", 2), "5x6")
    assert sample_generators.of(Wrapped(base, Shift()), sites) is None
    assert sample_generators.of(Wrapped(base, [print]), sites) is None
    prints = sample_generators.prints_of_stored(torch, Wrapped(base, shifted)).split()
    assert len(set(prints)) == 20
