"""The name that a loader's dataset goes by."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")


class Digits:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


class Subset(Digits):
    """Of the script's own."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


def test_a_subset_is_named_after_what_it_selects_from() -> None:
    from tracelyze.collectors.signals.data.loader import describe

    select, data = torch.utils.data.Subset, torch.utils.data
    halves = data.random_split(select(Digits(), range(6)), [3, 3])
    named = {describe(data.DataLoader(one), 0, None)["dataset"] for one in (Digits(), select(Digits(), [1]), halves[0])}
    assert named == {"Digits"}
    assert describe(data.DataLoader(Subset(Digits())), 0, None)["dataset"] == "Subset"
