"""Losses that are not finite: how many, from where on, and whose they are."""

from __future__ import annotations

import math

import pytest

from tests.analyzers.rules.nonfinite.broken_batches import COUNT, GIVEN_UP, broken_at


def test_losses_are_counted_as_far_as_they_were_measured(make) -> None:
    """Of one in ten the first bad one may have come earlier, and nothing is said of the others."""
    losses = make.steps()["loss"][:200] + [math.nan] * 200
    seldom = [value if index % 10 == 0 else None for index, value in enumerate(losses)]
    finding = make.check("loss-nonfinite", make.process(make.steps() | {"loss": seldom}))[2]
    assert finding.title == "The loss became NaN by step 201"
    assert "At step 191 the loss was" in finding.summary
    assert "All 20 losses from step 201 on are not finite" in finding.summary
    last = make.check("loss-nonfinite", make.process(broken_at(make, COUNT - 1)))[2]
    assert last.title == "The loss became NaN at step 400"
    assert "No loss was measured after step 400" in last.summary
    one = make.check("loss-nonfinite", make.process(make.steps() | {"loss": [math.nan, *make.steps()["loss"][1:]]}))[2]
    assert "in between" not in one.summary


@pytest.mark.parametrize("case", ["skipped", "evaluated", "ended"])
def test_a_loss_without_a_backward_need_not_be_one_that_the_loop_gives_up(make, case: str) -> None:
    """An evaluation in train mode with autograd on looks the same; a loop may end there without an exception."""
    step = COUNT if case == "ended" else 100
    events = [GIVEN_UP[0] | {"step": step}]
    evals = make.evals(4) | {"grad_mode": [2] * 4, "model_in_train": [True] * 4} if case == "evaluated" else None
    finding = make.check("loss-nonfinite", make.process(make.steps(COUNT), evals=evals, events=events))[2]
    ends = {"skipped": "the loop skipped the step", "evaluated": "no backward followed",
            "ended": "no step came after that"}  # fmt: skip
    assert finding.title == f"1 loss was NaN, and {ends[case]}"
    assert finding.confidence == ("likely" if case == "evaluated" else "certain")
    assert ("later steps kept training" in finding.summary) == (case == "skipped")


def test_losses_that_are_finite_in_between_were_not_lost(make) -> None:
    """The title says in how many steps, and the cost is theirs; where none is finite later, the rest is lost."""
    odd = [math.nan if index % 4 == 2 else math.inf if index % 4 == 1 else 1.0 for index in range(COUNT)]
    finding = make.check("loss-nonfinite", make.process(make.steps() | {"loss": odd}))[2]
    assert finding.title == "The loss was NaN or Inf in 200 steps, first at step 2"
    assert "finite ones come in between" in finding.summary
    assert finding.cost.share == pytest.approx(0.5, abs=0.02)
    lost = make.check("loss-nonfinite", make.process(broken_at(make, 100)))[2]
    assert lost.title == "The loss became NaN at step 101"
    assert lost.cost.share == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("evaluates", [True, False])
def test_the_loss_of_a_validation_is_not_where_a_training_broke(make, evaluates: bool) -> None:
    """A framework calls the backward, and only the validation calls a loss function of torch."""
    where = {"file": "t.py", "function": "validation_step" if evaluates else "training_step"}
    sites = [
        {"site": 1, "role": "backward", "file": "t.py", "line": 22, "function": "main", "source": "trainer.fit(net)"},
        {"site": 2, "role": "loss", "line": 17, "source": "F.mse_loss(self.net(x), y)", **where},
        {"site": 3, "role": "evaluation" if evaluates else "training-call", "line": 16, "source": "x, y = b", **where},
    ]
    finding = make.check("loss-nonfinite", make.process(broken_at(make, 100), sites=sites))[2]
    assert finding.location.line == (22 if evaluates else 17)
