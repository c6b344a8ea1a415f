"""Little work a rank, and collectives of the script that take its time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analyzers.rules.distributed.paced_ranks import COUNT, named, rank


def test_little_work_a_rank(make) -> None:
    rule = "small-batch-per-rank"
    _, _, finding = make.check(rule, *named(rank(make, 0, 0.001, 0.02), rank(make, 1, 0.001, 0.021)))
    assert (finding.severity, finding.confidence) == ("info", "likely")
    assert "32 samples a rank are" in finding.title
    uneven = [rank(make, at, 0.001, 0.02, batch_size=[size] * COUNT) for at, size in enumerate((96, 28))]
    assert "28 to 96 samples a rank are" in make.check(rule, *named(*uneven))[2].title
    assert make.check(rule, *named(rank(make, 0, 0.01, 0.03), rank(make, 1, 0.01, 0.03)))[0] == "passed", "recomputed"
    late = named(rank(make, 0, 0.001, 0.03), rank(make, 1, 0.029, 0.002))
    assert make.check(rule, *late)[0] == "passed", "one waits for the other"
    by_hand = named(*(make.process(make.steps(), facts={"rank": number}, evals={}) for number in (0, 1)))
    assert make.check(rule, *by_hand)[0] == "skipped"
    assert make.check(rule, *named(rank(make, 0)))[0] == "skipped"


def exchanging(make, *shares: float, text: str = "dist.all_reduce(tensor)", calls: int = 40, name: str = "all_reduce"):
    """Ranks that stand in a collective of the script for these shares of their samples."""
    ranks = []
    for number, share in enumerate(shares):
        sites = [
            {"site": 1, "role": "sampled", "file": "train.py", "line": 30, "function": "guard", "source": text},
            {
                "site": 2,
                "role": "backward",
                "file": "train.py",
                "line": 9,
                "function": "fit",
                "source": "loss.backward()",
            },
        ]
        process = rank(make, number)
        ends = process.longest.steps["time"]
        there = [index < share * 40 for index in range(40)]
        samples = {
            "time": [float(one) for one in np.linspace(ends[0] + 1e-3, ends[-1], 40)],
            "site": [1 if one else 2 for one in there],
            "innermost": [f"torch/distributed/distributed_c10d.py:3252 {name}" if one else "f.py:1 f" for one in there],
        }
        group = {"group": "0", "members": "0 1", "enqueued": calls * COUNT, "operation": None}
        ranks.append(rank(make, number, samples=samples, tables={"collectives": [group], "sites": sites}))
    return make.check("exposed-communication", *named(*ranks))


def test_a_line_of_the_script_that_exchanges_at_every_step(make) -> None:
    status, reason, finding = exchanging(make, 0.6, 0.5)
    assert status == "fired", reason
    assert (finding.location.line, finding.ranks, finding.confidence) == (30, [0, 1], "likely")
    assert "50%" in finding.title
    assert "40 collective calls" in finding.summary


@pytest.mark.parametrize(
    ("shares", "changed"),
    [
        ((0.6, 0.1), {}),  # one rank is slow, and the other waits for it
        ((0.6, 0.5), {"calls": 3}),  # a metric and the buckets of gradients
        ((0.6, 0.5), {"text": "loss = model(x)"}),  # a wrapper's own, within the call of its model
        ((0.6, 0.5), {"name": "barrier", "text": "dist.barrier()"}),
        ((0.6,), {}),
    ],
)
def test_exchanges_that_are_as_they_should_be(make, shares: tuple[float, ...], changed: dict[str, Any]) -> None:
    assert exchanging(make, *shares, **changed)[0] != "fired"
