"""Losses that stand still, and those that stand where they may."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.analyzers.curves import COUNT, FALLING, evaluations, log, scalars


@pytest.mark.parametrize(
    ("loss", "more", "status"),
    [
        (np.full(COUNT, math.log(2)) + 1e-3, scalars(rewards__margins=np.zeros(COUNT)), "fired"),
        (np.linspace(math.log(2), 0.2, COUNT), scalars(rewards__margins=np.linspace(0, 2, COUNT)), "passed"),
        (np.full(COUNT, math.log(2)), scalars(rewards__margins=np.linspace(0, 0.01, COUNT)), "passed"),  # on its way
        (np.full(COUNT, math.log(2)), scalars(rewards__margins=np.linspace(0, 2e-6, COUNT)), "fired"),  # it is not
        (np.full(90, math.log(2)), scalars(rewards__margins=np.zeros(90)), "passed"),  # it may be the warm-up
        (np.full(COUNT, math.log(10)), {}, "passed"),  # 400 steps: it may be the warm-up
        (np.full(2 * COUNT, math.log(10)), {}, "fired"),
        (np.full(2 * COUNT, 2.1), {}, "passed"),  # converged, or trained before: who knows
        (np.full(20, math.log(2)), scalars(rewards__margins=np.zeros(20)), "skipped"),
    ],
    ids=[
        "ln 2",
        "preference learned",
        "preference begun",
        "preference at rate zero",
        "preference, short",
        "short",
        "ln 10",
        "another level",
        "few",
    ],
)
def test_a_loss_that_stands_still(make, loss, more, status) -> None:
    assert make.check("loss-plateau", log(make, loss, more=more))[0] == status


def test_a_loss_that_fell_to_the_level_of_a_guess_did_not_stand_there_from_the_first_step(make) -> None:
    still = np.full(2 * COUNT, math.log(10))
    begun = still.copy()
    begun[:30] += np.linspace(0.5, 0, 30)
    titles = [make.check("loss-plateau", log(make, loss))[2].title for loss in (still, begun)]
    assert ["from the first step" in title for title in titles] == [True, False]
    assert "in every tenth of the run" in titles[1]


def test_what_is_said_of_a_plateau_is_within_the_limit_beside_it(make) -> None:
    """From just above the level of a guess to just below it is more than 1%, and no tenth is farther than that."""
    finding = make.check("loss-plateau", log(make, np.linspace(1.009, 0.991, 2 * COUNT) * math.log(10)))[2]
    assert len(finding.evidence) > 1
    for one in finding.evidence[1:]:
        assert one.threshold is None or one.value <= one.threshold, one.name


def test_a_preference_that_stands_still_is_told_without_a_guess_at_the_reason(make) -> None:
    more = scalars(rewards__margins=np.zeros(COUNT))
    finding = make.check("loss-plateau", log(make, np.full(COUNT, math.log(2)) + 1e-3, more=more))[2]
    assert "one model" not in finding.summary, "beside zero gradients it is not the reason"
    assert "two models" in finding.fix
    assert finding.evidence[0].fires_at == "", "the loss of a guess is no limit"


def test_a_loss_that_stands_still_without_skill(make) -> None:
    flat = np.r_[20.0, 8.0, np.full(18, 5.5)]
    for error, status in ((0.95, "fired"), (0.3, "passed")):
        more = scalars("eval", wer=np.full(20, error))
        process = log(make, FALLING[:50], evals=evaluations(flat, flat), more=more)
        assert make.check("loss-plateau", process)[0] == status


def test_a_recorded_number_of_classes_says_what_a_guess_costs(make) -> None:
    """Five classes are no usual number; that the run has them was recorded, and 300 steps are enough to know it."""

    def judge(count: int, classes: int, varies: float | None = None, **columns: Any) -> Any:
        steps = make.steps(count) | {"loss": [1.61 + 0.005 * (index % 3) for index in range(count)]} | columns
        call = {"function": "cross_entropy", "training": True, "reduction": "mean", "target_integer": True}
        calls = [call | {"step": at, "input_shape": f"32x{classes}", "value": 1.612} for at in range(0, count, 20)]
        if varies is not None:
            value = {"value": 2.3, "varies": varies, "target_varies": 0.9}
            calls = [calls[0] | value | {"step": at} for at in range(20)]
        return make.check("loss-plateau", make.process(steps, more={"loss_calls": calls}))

    status, _, finding = judge(400, 5)
    assert (status, finding.confidence) == ("fired", "likely")
    assert "ln 5" in finding.title
    assert judge(250, 5)[0] == "passed"
    assert judge(400, 6)[0] == "passed"
    other = [2.3 + 0.005 * (index % 3) for index in range(600)]  # near ln 10, of 8 classes and a second term
    assert judge(600, 8, loss=other)[0] == "passed"
    assert judge(600, 10, loss=other)[0] == "fired"
    assert judge(168, 10, loss=other[:168], varies=4e-7)[0] == "fired", "no input makes a difference"
    assert judge(168, 10, loss=other[:168], varies=0.2)[0] == "passed", "labels may be random"
    assert judge(80, 10, loss=other[:80], varies=4e-7)[0] == "passed", "a few steps"
    assert judge(400, 5, lr=[1e-6 * min(index, 100) for index in range(400)])[0] == "fired", "after the warm-up"
    assert judge(400, 5, lr=[1e-6 * index**3 for index in range(400)])[0] == "passed", "still warming up"


def test_a_loss_that_came_down_to_a_guess(make) -> None:
    """And no further, in training as in validation: labels that belong to other inputs look like this."""

    def judge(evaluated: list[float], classes: int = 8, late: float = 2.072, early: float = 2.19) -> Any:
        losses = [early + (late - early) * min(1.0, at / 200) + 0.003 * (at % 3) for at in range(600)]
        call = {"function": "cross_entropy", "training": True, "reduction": "mean", "target_integer": True}
        shape = {"input_shape": f"32x{classes}"}
        calls = [call | shape | {"step": at, "value": losses[at]} for at in range(0, 600, 20)]
        after = [(number + 1) * 600 // len(evaluated) for number in range(len(evaluated))]
        evals = {"after_step": after, "loss": evaluated, "forwards": [5] * len(after), "grad_mode": [0] * len(after)}
        evals |= {"samples": [500] * len(after), "trained": [True] * len(after), "site": [3] * len(after)}
        steps = make.steps(600) | {"loss": losses}
        return make.check("loss-plateau", make.process(steps, evals=evals, more={"loss_calls": calls}))

    status, _, finding = judge([2.097, 2.09, 2.087, 2.093, 2.09])
    assert (status, finding.confidence) == ("fired", "likely")
    assert finding.title.endswith("ln 8, in training and validation")
    assert "2.09 at best" in finding.summary
    assert judge([2.097, 2.09])[0] == "passed", "two passes"
    assert judge([2.097, 2.09, 2.02, 1.99])[0] == "passed", "it learned what carries over"
    assert judge([2.2, 2.5, 2.9, 3.4])[0] == "passed", "it is surer than it should be"
    assert judge([2.097, 2.09, 2.09], late=1.9)[0] == "passed", "training data are learned"
    assert judge([2.097, 2.09, 2.09], early=2.0)[0] == "passed", "it was better"
    assert judge([0.70, 0.69, 0.693], classes=2, late=0.692, early=0.75)[0] == "passed", "of yes and no little is known"
