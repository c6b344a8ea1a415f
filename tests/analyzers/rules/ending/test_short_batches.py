"""Exceptions at the last batch of an epoch, which is smaller than the others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import sites_of
from tracelyze.diagnosis import Exit

SOURCE = "def make(data):\n    loader = DataLoader(data, batch_size=16)\n    return loader\n"
TARGETS = "Expected input batch_size (11) to match target batch_size (16)."


def crashed(make: Any, message: str = TARGETS, batches: list[dict[str, Any]] | None = None, **loader: Any) -> Any:
    """A run that ends in its step 157, at what by default is the last of 157 batches."""
    event = {"kind": "exception", "name": "RuntimeError", "text": message, "step": 156, "time": 9.0}
    event |= {"file": "train.py", "line": 56, "source": "loss = criterion(model(x), self.targets)"}
    steps = make.steps(156) | {"loader": [0] * 156, "loader_batches": [1] * 156}
    steps["loader_first"] = [index == 0 for index in range(156)]
    row = {"loader": 0, "length": 157, "batch_size": 16, "drop_last": False, "made_at": 1, "sampler": "RandomSampler"}
    process = make.process(
        steps,
        sites=sites_of(SOURCE, dataloader="loader ="),
        loaders=[row | loader, row | {"loader": 1, "length": 9, "made_at": None}],
        events=[event],
        end=Exit("exception", 1),
        more={"batches": batches if batches is not None else [batch()]},
    )
    return make.check("crash", process)[2]


def batch(**changed: Any) -> dict[str, Any]:
    """What was recorded of the last batch: nothing was trained on it."""
    row = {"step": 156, "time": 8.9, "loader": 0, "epoch": 0, "batch": 156, "trained": False, "field": "0"}
    return row | {"dtype": "float32", "shape": "11x1x96"} | changed


@pytest.mark.parametrize(
    "message",
    [
        TARGETS,
        "The size of tensor a (11) must match the size of tensor b (16) at non-singleton dimension 0",
        "Expected hidden[0] size (1, 11, 64), got [1, 16, 64]",
        "Expected input batch_size (352) to match target batch_size (512).",  # a row for each of 32 tokens
        "shape '[16, -1]' is invalid for input of size 1056",
        "shape '[16, 96]' is invalid for input of size 1056",
    ],
)
def test_what_counts_on_full_batches_is_told_so_at_the_loader(make: Any, message: str) -> None:
    finding = crashed(make, message)
    assert "the last of 157: it has 11 samples in place of 16" in finding.summary
    assert (finding.location.line, finding.seen_at.line) == (2, 56)
    assert finding.diff.added == ["    loader = DataLoader(data, batch_size=16, drop_last=True)"]
    assert finding.fix.startswith("Have the loader leave that batch out, or take sizes from the batch itself")


@pytest.mark.parametrize(
    ("message", "loader", "row"),
    [
        ("mat1 and mat2 shapes cannot be multiplied (11x96 and 48x10)", {}, {}),  # no batch would fit that layer
        ("shape '[16, 3, 5]' is invalid for input of size 1056", {}, {}),
        (TARGETS, {"length": 400}, {}),  # in the middle of an epoch
        (TARGETS, {"drop_last": True}, {}),
        (TARGETS, {"length": None}, {}),  # a stream
        ("mat1 and mat2 shapes cannot be multiplied (11x22 and 32x10)", {"length": 1}, {"batch": 0}),  # the only batch
        (TARGETS, {}, {"trained": True, "step": 155}),  # that one went well
        (TARGETS, {}, {"shape": "16x1x96"}),
    ],
)
def test_other_sizes_are_not_put_down_to_the_last_batch(
    make: Any, message: str, loader: dict[str, Any], row: dict[str, Any]
) -> None:
    rows = [batch(**row), batch(batch=155, shape="16x1x96")]
    finding = crashed(make, message, rows if row else rows[:1], **loader)
    assert "in place of 16" not in finding.summary
    assert finding.location.line == 56


def test_the_last_batch_of_a_long_epoch_is_known_by_its_number_and_the_message(make: Any) -> None:
    """Of long epochs only some batches are looked at."""
    assert "it has 11 samples in place of 16" in crashed(make, batches=[]).summary
    hidden = "Expected hidden{} size (1, 11, 64), got [1, 16, 64]"
    for given in ("", "[0]"):
        assert "it has 11 samples in place of 16" in crashed(make, hidden.format(given), batches=[]).summary
    product = crashed(make, "mat1 and mat2 shapes cannot be multiplied (16x176 and 256x5)", batches=[])
    assert "in place of" not in product.summary, "which of these numbers is the batch's is not known"
    assert "in place of" not in crashed(make, batches=[], batch_size=32).summary


def test_no_sample_of_a_validation_is_left_out(make: Any) -> None:
    finding = crashed(make, batches=[batch(loader=1, batch=8)])
    assert "the last of 9: it has 11 samples in place of 16" in finding.summary
    assert (finding.location.line, finding.diff) == (56, None)
    assert finding.fix.startswith("Take sizes from the batch itself")
