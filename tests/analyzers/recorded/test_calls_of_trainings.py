"""The calls of a loss that belong to one training of a process that made several."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelyze.analyzers.rules.model.constant_output import rule as constant_output

STEPS = 400
OPTIMIZERS = [{"optimizer": n, "name": "AdamW"} for n in (0, 1)]


def trained(make: Any, turns: list[int], calls: list[dict[str, Any]], **more: Any) -> Any:
    """A process whose steps were made by these optimizers, each of a model of its own, with these calls of a loss."""
    flat = np.random.default_rng(0).normal(1.0, 0.02, STEPS).tolist()
    steps = make.steps() | {"optimizer": turns, "loss": flat} | more
    common = {"function": "mse_loss", "site": 1, "input_shape": "32x3", "value": 1.0, "target_varies": 2.0}
    calls = [common | {"training": True} | one for one in calls]
    links = [{"time": 0.1, "step": 1, "optimizer": n, "model": n} for n in (0, 1)]
    return make.process(steps, optimizers=OPTIMIZERS, more={"loss_calls": calls, "links": links})


def test_trainings_one_after_the_other_have_the_calls_of_their_steps(make: Any) -> None:
    calls = [
        {"step": 0},
        {"step": 100, "training": False},
        {"step": 199},
        {"step": 200, "training": False},  # whose it is, is not known
        {"step": 200},
        {"step": 300, "training": False},
        {"step": 400, "training": False},
    ]
    process = trained(make, [0] * 200 + [1] * 200, calls)
    found = [one.tables["loss_calls"]["step"].tolist() for one in process.trainings]
    assert found == [[0.0, 100.0, 199.0], [0.0, 100.0, 200.0]]
    assert len(process.tables["loss_calls"]) == len(calls), "the process has all of them"


def test_trainings_side_by_side_share_the_calls(make: Any) -> None:
    """The losses of two models may be computed before either steps: whose they are is not known by the step."""
    process = trained(make, [0, 1] * 200, [{"step": 0}, {"step": 1}])
    assert [len(one.tables["loss_calls"]) for one in process.trainings] == [2, 2]
    outcome = constant_output.RULE.check(process.trainings[0], constant_output.RULE.defaults)
    assert "2 trainings share this process" in str(outcome)


def test_one_answer_to_everything_in_the_first_of_two_trainings(make: Any) -> None:
    """A model is trained, and then a probe of its codes: each is judged by its own calls."""
    at = [*range(20), 120, 190]
    first = [{"step": step, "varies": 0.01} for step in at]
    second = [{"step": 200 + step, "site": 2, "varies": 1.5} for step in at]
    process = trained(make, [0] * 200 + [1] * 200, first + second)
    found = [constant_output.RULE.check(one, constant_output.RULE.defaults) for one in process.trainings]
    assert isinstance(found[0], list)
    assert found[0][0].rule == "constant-output"
    assert "predictions differ from sample to sample" in str(found[1])


def test_a_probe_that_finds_nothing_is_no_fault_of_its_own(make: Any) -> None:
    calls = [{"step": 200 + step, "varies": 0.01} for step in [*range(20), 120, 190]]
    process = trained(make, [0] * 200 + [1] * 200, calls, parameters=[8] * 200 + [2] * 200)
    assert "as a probe" in str(constant_output.RULE.check(process.trainings[1], constant_output.RULE.defaults))
