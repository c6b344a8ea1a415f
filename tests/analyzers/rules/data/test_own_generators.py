"""augmentation-repeats: a generator that the dataset seeds for each sample, and datasets where that is right."""

from __future__ import annotations

import random
from typing import Any

import pytest

RULE = "augmentation-repeats"
LOADER = {"loader": 0, "dataset": "Images", "length": 10, "batch_size": 20, "num_workers": 0, "own_generator": 9}
COUNT = 400


def epochs(shape: str = "20x1x12x12", dtype: str = "float32", drawn: bool = False) -> list[dict[str, Any]]:
    """Four passes over 200 samples in new orders; `drawn`: each pass holds other numbers."""
    rows = []
    for epoch in range(4):
        order = random.Random(epoch).sample(range(200), 200)
        for at in range(10):
            samples = " ".join(f"s{one}e{epoch if drawn else 0}" for one in order[20 * at : 20 * at + 20])
            row = {"loader": 0, "epoch": epoch, "batch": at, "step": 10 * epoch + at, "trained": True, "field": "0"}
            rows.append(row | {"dtype": dtype, "shape": shape, "prints": samples})
    return rows


def judge(make: Any, batches: list[dict[str, Any]], sites: Any = (), **loader: Any) -> tuple[str, Any]:
    steps = make.steps() | {"loader": [0] * COUNT}
    loaders = [LOADER | {"stored": "1x12x12"} | loader]
    fetches = [
        {"loader": 0, "epoch": epoch, "step": 10 * epoch, "moved": ""} for epoch in range(4)
    ]  # no other generator moves
    more = {"batches": batches, "fetches": fetches}
    status, _, finding = make.check(RULE, make.process(steps, loaders=loaders, more=more, sites=list(sites)))
    return status, finding


def test_samples_that_come_again_as_they_were(make: Any) -> None:
    status, finding = judge(make, epochs())
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert finding.title == "Images draws the same random numbers for a sample in each epoch"
    assert "rng = np.random.default_rng(torch.randint(" in finding.fix_code
    assert "randn_like" not in finding.fix_code, "samples may be arrays, and other numbers be drawn beside noise"


@pytest.mark.parametrize(("stay", "line"), [(True, 42), (False, 7)])
def test_workers_that_stay_never_hear_of_another_epoch(make: Any, stay: bool, line: int) -> None:
    text = "    loader = DataLoader(\n        images, num_workers=2,\n        persistent_workers=True,  # fast\n    )"
    seeds = "g = torch.Generator().manual_seed(1000 * self.epoch + i)"
    sites = [
        {"site": 8, "role": "dataloader", "line": 40, "function": "main", "source": "loader = DataLoader("}
        | {"excerpt_line": 40, "excerpt": text},
        {"site": 9, "role": "own-generator", "line": 7, "function": "__getitem__", "source": seeds},
        {"site": 10, "role": "set-epoch", "line": 50, "function": "main", "source": "images.set_epoch(epoch)"},
        {"site": 11, "role": "set-epoch", "line": 51, "function": "main", "source": "loader.sampler.set_epoch(epoch)"},
    ]
    sites = [one | {"file": "a.py"} for one in sites]
    status, finding = judge(make, epochs(), sites, num_workers=2, persistent_workers=stay, made_at=8)
    assert (status, finding.location.line) == ("fired", line)
    assert ("line 50 tells the copy of the training process alone" in finding.summary) == stay
    assert ("    persistent_workers=False,\n" in finding.fix_code) == stay


@pytest.mark.parametrize(
    "loader",
    [
        {"stored": "12x12"},
        {"stored": "3 1x16x16"},  # cut out
        {"stored": "files"},
        {"stored_prints": "s1e0 s2e0 s3e9 s4e9"},  # half of them are flipped
    ],
)
def test_samples_that_are_changed_on_the_way(make: Any, loader: dict[str, Any]) -> None:
    status, finding = judge(make, epochs(), **loader)
    assert status == "fired"
    second = min(row["step"] for row in epochs() if row["epoch"] == 1)
    assert finding.first_step == second + 1, "the first pass repeats nothing"


@pytest.mark.parametrize(
    ("batches", "loader"),
    [
        (epochs(drawn=True), {}),  # the seed holds the epoch after all
        (epochs(), {"stored": "12 5"}),  # made up: nothing of that shape is stored
        (epochs(), {"own_generator": None}),  # no augmentation, or one that was kept
        (epochs(dtype="int64"), {}),
        (epochs(), {"stored": "9x9"}),  # larger than what is stored
        (epochs(), {"stored_prints": "s1e0 s2e0 s3e0 s4e0"}),  # as they are stored: labels are drawn, or partners
        (epochs() + [row | {"field": "1"} for row in epochs()], {}),  # noise that is to be removed
    ],
)
def test_samples_that_are_the_same_rightly(make: Any, batches: list[dict[str, Any]], loader: dict[str, Any]) -> None:
    assert judge(make, batches, **loader)[0] != "fired"
