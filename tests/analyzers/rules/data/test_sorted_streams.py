"""Iterable datasets whose samples come by their labels, and shares of classes in such an order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

LENGTH = 100  # batches of a pass
SORTED = [at // 20 for at in range(LENGTH)]
BUFFERED = [max(0, label - (at % 20 < 4)) for at, label in enumerate(SORTED)]  # the last of a class come late
TURNS = [at % 5 for at in range(LENGTH)]
FIRST = [0] * LENGTH


def streamed(make: Any, lowest: list[int], highest: list[int], passes: int = 4, **loader: Any) -> Process:
    """A training on a stream, of which the losses of some batches of each pass are known."""
    steps = make.steps() | {"loader_first": [at % LENGTH == 0 and at < passes * LENGTH for at in range(400)]}
    made = {"loader": 0, "iterable": True, "dataset": "Shards", "site": 2, "sampler": "_InfiniteConstantSampler"}
    call = {"function": "cross_entropy", "site": 1, "training": True, "loader": 0, "input_shape": "32x5"}
    call |= {"target_shape": "32", "target_integer": True, "target_varies": 0.1}
    seen = [LENGTH * epoch + at for epoch in range(passes) for at in (*range(3), *range(5, LENGTH, 9))]
    losses = [
        call | {"step": step, "target_lowest": lowest[step % LENGTH], "target_highest": highest[step % LENGTH]}
        for step in seen
    ]
    look = {"loader": 0, "trained": True, "field": "1", "dtype": "int64", "shape": "32"}
    batches = [
        look | {"step": LENGTH * epoch + at, "epoch": epoch, "batch": at, "classes": json.dumps({lowest[at]: 32})}
        for epoch in range(passes) for at in range(8)
    ]  # fmt: skip
    batches[-1]["classes"] = json.dumps({0: 30, 1: 2})
    return make.process(steps, loaders=[made | loader], more={"loss_calls": losses, "batches": batches})


@pytest.mark.parametrize(
    ("lowest", "highest", "more", "status"),
    [
        (SORTED, SORTED, {}, "fired"),
        (SORTED[::-1], SORTED[::-1], {}, "fired"),
        (BUFFERED, SORTED, {}, "fired"),
        (SORTED, SORTED, {"passes": 1}, "passed"),  # what is read once comes as it comes
        (TURNS, TURNS, {}, "passed"),  # one class after the other in turns, as of several files
        (FIRST, [4] * LENGTH, {}, "passed"),  # mixed
        (FIRST, FIRST, {}, "passed"),
    ],
)
def test_a_stream_in_the_order_of_its_labels(
    make: Any, lowest: list[int], highest: list[int], more: dict[str, Any], status: str
) -> None:
    got, _, finding = make.check("no-shuffle", streamed(make, lowest, highest, **more))
    assert got == status
    if finding is not None:
        assert (finding.severity, finding.confidence) == ("critical", "likely")
        assert "shuffle=True" not in finding.fix + finding.fix_code, "torch refuses it beside an iterable dataset"
        assert "of 4 passes" in finding.summary


def test_shares_of_classes_are_open_where_whole_batches_lack_the_most_frequent_one(make: Any) -> None:
    """The first batches of each pass are looked at most: in a sorted stream they are all of one class."""
    assert make.check("class-imbalance", streamed(make, SORTED, SORTED))[0] == "skipped"
    assert make.check("class-imbalance", streamed(make, FIRST, FIRST))[0] == "fired"
