"""Examples of a loader: pasted, they run, and keep what the run's loader was given."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers.script.editing import loader_arguments


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        ({"batch_size": 16, "sampler": "RandomSampler"}, "dataset, batch_size=16, shuffle=True, num_workers=2"),
        ({"batch_size": 16, "sampler": "SequentialSampler"}, "dataset, batch_size=16, num_workers=2"),
        ({"batch_size": 8, "sampler": "DistributedSampler"}, "dataset, batch_size=8, sampler=sampler, num_workers=2"),
        ({"batch_size": None, "sampler": "_InfiniteConstantSampler"}, "dataset, num_workers=2"),
        ({"pin_memory": True, "drop_last": True}, "dataset, pin_memory=True, drop_last=True, num_workers=2"),
        ({"num_workers": 4}, "dataset, num_workers=2"),
    ],
)
def test_an_example_keeps_what_the_loader_was_given(loader: dict[str, Any], said: str) -> None:
    code = loader_arguments.of_row(loader, num_workers=2)
    assert code == f"loader = DataLoader({said})"
    compile(code, "train.py", "exec")


def test_a_loader_of_which_nothing_is_known() -> None:
    assert loader_arguments.of_row({}) == "loader = DataLoader(dataset)"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("return DataLoader(ds, batch_size=64, sampler=sampler)", "batch_size=64, sampler=sampler"),
        (
            "loader = DataLoader(ds, 64, sampler=RandomSampler(ds, num_samples=6400))",
            "batch_size=64, sampler=RandomSampler(ds, num_samples=6400)",
        ),
        ("loader = DataLoader(ds, batch_sampler=buckets)", "batch_sampler=buckets"),
        ("loader = DataLoader(ds, sampler=draw(\n        6400), **options)", "batch_size=64, sampler=sampler"),
        ("loader = DataLoader(ds, 64, shuffle=True)", "batch_size=64, shuffle=True"),
    ],
)
def test_an_example_keeps_the_sampler_and_what_it_was_told(make: Any, made: str, said: str) -> None:
    """shuffle=True in place of one that draws a part of the data makes another training."""
    process = make.process(sites=sites_of(f"def train():\n    {made}\n", dataloader="DataLoader("))
    row = {"batch_size": 64, "sampler": "RandomSampler", "made_at": 1}
    code = loader_arguments.of_row(row, **loader_arguments.own_sampler(process, row))
    assert code == f"loader = DataLoader(dataset, {said})"
