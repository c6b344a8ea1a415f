"""Validation without a loader and without a loss function: the script compares the model's answers by itself."""

from __future__ import annotations

import pytest

from tests.analyzers.rules.evaluation.test_eval_in_train_mode_rules import COUNT, train_mode


def whole(make, **change):
    """A pass after each step over one tensor of 16 rows, twice the batch of `make`; its answers are compared."""
    evals = train_mode(make.evals(COUNT, 1))
    plain = {"loader": [None], "losses": [0], "loss": [None], "forwards": [1], "samples": [99], "site": [3],
             "compared": [4], "same_input": [1]} | change  # fmt: skip
    return evals | {name: values * COUNT for name, values in plain.items()} | {"same_input": [0] + [1] * (COUNT - 1)}


def test_a_tensor_that_is_held_out_is_validation(make) -> None:
    _, _, finding = make.check("eval-in-train-mode", make.process(evals=whole(make)))
    assert finding.confidence == "likely"
    assert finding.title.startswith(f"{COUNT} of {COUNT} validation passes")


@pytest.mark.parametrize("change", [{"compared": [None]}, {"site": [None], "compared": [None]}])
def test_the_same_tensor_alone_is_none(make, change) -> None:
    """A generator's fixed noise."""
    assert make.check("eval-in-train-mode", make.process(evals=whole(make, **change)))[0] == "skipped"


def test_new_tensors_at_every_step_are_none(make) -> None:
    evals = whole(make) | {"same_input": [0] * COUNT}
    assert make.check("eval-in-train-mode", make.process(evals=evals))[0] == "skipped"


@pytest.mark.parametrize(("rows", "status"), [("32x4", "skipped"), ("20x4", "fired")])
def test_as_many_rows_as_in_training(make, rows, status) -> None:
    """Training accuracy of a full batch; a graph of which the loss takes some nodes."""
    calls = {"step": 5, "function": "cross_entropy", "site": 1, "training": True, "input_shape": rows}
    evals = whole(make, samples=[32])
    steps = make.steps() | {"batch_size": [32] * COUNT, "backwards": [1] * COUNT}
    process = make.process(steps, evals=evals, more={"loss_calls": [calls]})
    assert make.check("eval-in-train-mode", process)[0] == status
