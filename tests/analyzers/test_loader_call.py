"""Examples of a loader: pasted, they run, and keep what the run's loader was given."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.evidence import loader_call


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
    code = loader_call.example(loader, num_workers=2)
    assert code == f"loader = DataLoader({said})"
    compile(code, "train.py", "exec")


def test_a_loader_of_which_nothing_is_known() -> None:
    assert loader_call.example({}) == "loader = DataLoader(dataset)"
