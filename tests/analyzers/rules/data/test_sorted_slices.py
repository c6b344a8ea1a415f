"""no-shuffle, of loops that cut their batches out of tensors."""

from __future__ import annotations

import json

import pytest

ORDER = {"steps": 400, "period": 20, "passes": 20, "distinct": 20, "adjoining": 0.95}


def sliced(make, order=None, **change):
    row = {"function": "cross_entropy", "site": 1, "training": True, "input_shape": "50x8", "target_shape": "50",
           "target_integer": True, "kept_rows": 1000, "kept_looked": 1000, "kept_blocks": 8, "kept_values": 8,
           "kept_rising": 7, "target_lowest": 0.0, "target_highest": 1.0} | change  # fmt: skip
    event = {"kind": "input-order", "text": json.dumps(ORDER | (order or {})), "step": 400}
    more = {"loss_calls": [row | {"step": step} for step in range(12)], "events": [event]}
    return make.process(loaders=[], more=more)


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({}, "critical"),
        ({"kept_values": 2, "kept_blocks": 2, "kept_rising": 1}, "critical"),
        ({"kept_values": 2, "kept_blocks": 2, "kept_rising": -1, "target_integer": False}, "critical"),
        ({"kept_values": 990, "kept_blocks": 990, "kept_rising": -989, "target_integer": False}, "warning"),
    ],
)
def test_slices_of_sorted_data(make, change, severity) -> None:
    _, _, finding = make.check("no-shuffle", sliced(make, **change))
    assert (finding.severity, finding.confidence) == (severity, "likely")
    assert "never shuffled" in finding.title


@pytest.mark.parametrize(
    ("order", "change", "status"),
    [
        ({}, {"kept_blocks": 850, "kept_rising": 3}, "passed"),  # mixed
        ({}, {"kept_blocks": 40}, "passed"),  # stretches of one label, again and again: recordings
        ({}, {"kept_values": 990, "kept_blocks": 990, "kept_rising": 20, "target_integer": False}, "passed"),  # a walk
        ({"adjoining": 0.0}, {}, "skipped"),  # rows drawn at random
        ({"passes": 0}, {}, "skipped"),  # one pass: a stream, tasks that follow each other
        ({}, {"input_shape": "400x8", "target_shape": "400"}, "skipped"),  # a batch holds most labels
        ({}, {"loader": 0}, "skipped"),
    ],
)
def test_what_looks_like_it(make, order, change, status) -> None:
    assert make.check("no-shuffle", sliced(make, order, **change))[0] == status
