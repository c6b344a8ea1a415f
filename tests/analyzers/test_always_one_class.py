"""class-imbalance, where the model answers the frequent class to everything."""

from __future__ import annotations

import pytest


def skewed(make, **change):
    fields = {"loader": 0, "epoch": 0, "trained": True, "field": "1", "dtype": "int64", "shape": "64"}
    batches = [fields | {"step": at, "batch": at, "classes": '{"0": 61, "1": 3}'} for at in range(8)]
    call = {"function": "cross_entropy", "site": 1, "training": True, "input_shape": "64x2", "target_shape": "64",
            "target_integer": True, "target_varies": 0.2, "answer": 0, "answer_same": 1.0} | change  # fmt: skip
    calls = [call | {"step": step} for step in (0, 5, 250, 390)]
    return make.process(more={"batches": batches, "loss_calls": calls})


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({}, "warning"),
        ({"answer_same": 0.995}, "warning"),
        ({"answer_same": 0.95}, "info"),  # as often as the rare class is met
        ({"answer": 1}, "info"),
        ({"answer": None, "answer_same": None}, "info"),
        ({"target_varies": 0.0}, "info"),
        ({"input_shape": "8x2"}, "info"),  # too few samples to hold a rare one
    ],
)
def test_one_answer_to_everything(make, change, severity) -> None:
    _, _, finding = make.check("class-imbalance", skewed(make, **change))
    assert finding.severity == severity
    assert ("nearly always answers" in finding.title) == (severity == "warning")
