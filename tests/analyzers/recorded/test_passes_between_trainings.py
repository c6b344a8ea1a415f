"""A pass between two trainings of one model belongs to the one that goes on with it."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rule import Rule, Skipped
from tracelyze.analyzers.rules.data.input_normalization import rule as input_normalization
from tracelyze.analyzers.rules.ending.stops_short import rule as stops_short
from tracelyze.analyzers.rules.gradients.dead_relu import rule as dead_relu
from tracelyze.analyzers.rules.model.constant_output import rule as constant_output
from tracelyze.analyzers.rules.updates.learning_rate_too_high import rule as learning_rate_too_high
from tracelyze.analyzers.rules.updates.update_ratio import rule as update_ratio

STEPS = 400


def split(make: Any, passes: list[dict[str, Any]], fed_from: int = 200) -> list[list[float]]:
    """The numbers of steps done before the passes of each of two trainings: 200 steps by one optimizer, then 200."""
    optimizer = [0] * 200 + [1] * 200
    fed = [1 if step >= fed_from else None for step in range(STEPS)]
    steps = make.steps() | {"optimizer": optimizer, "loader": fed}
    names = ("after_step", "optimizer", "site", "loader")
    evals = make.evals(len(passes)) | {name: [one.get(name) for one in passes] for name in names}
    evals |= {"model": [0] * len(passes)}
    links = {"links": [{"time": 0.1, "step": 1, "optimizer": n, "model": 0} for n in (0, 1)]}
    optimizers = [{"optimizer": n, "name": "AdamW"} for n in (0, 1)]
    process = make.process(steps, evals=evals, optimizers=optimizers, more=links)
    return [one.evals["after_step"].tolist() for one in process.trainings]


@pytest.mark.parametrize(
    ("between", "owner"),
    [
        ({"site": 5, "loader": 1}, 1),  # what it reads trains the later one
        ({"site": 5}, 1),  # the first of the rollouts
        ({"site": 7}, 0),  # the validation at the end of the earlier one
        ({"site": 9}, 0),  # a line that is met only here
    ],
)
def test_a_pass_before_the_first_step_of_a_later_training(make: Any, between: dict[str, Any], owner: int) -> None:
    passes = [
        {"after_step": 100, "optimizer": 0, "site": 7},
        {"after_step": 200, "optimizer": 0} | between,
        {"after_step": 201, "optimizer": 1, "site": 5},
        {"after_step": 300, "optimizer": 1, "site": 7},
    ]
    found = split(make, passes)
    assert [len(one) for one in found] == ([1, 3] if owner else [2, 2])
    assert found[1][:1] == [0.0] if owner else [1.0]


@pytest.mark.parametrize(
    "rule",
    [
        dead_relu.RULE,
        constant_output.RULE,
        input_normalization.RULE,
        stops_short.RULE,
        update_ratio.RULE,
        learning_rate_too_high.RULE,
    ],
    ids=lambda rule: rule.id,
)
def test_trainings_one_after_the_other_do_not_work_against_each_other(make, rule: Rule) -> None:
    """A model that is trained first and fine-tuned then has two optimizers, and no equilibrium between them."""
    optimizers = [{"optimizer": n, "name": "AdamW"} for n in (0, 1)]

    def reason(turns: list[int]) -> str:
        process = make.process(make.steps() | {"optimizer": turns}, optimizers=optimizers)
        outcome = rule.check(process, rule.defaults)
        return outcome.reason if isinstance(outcome, Skipped) else str(outcome)

    assert "2 trainings share this process" in reason([0] * 200 + [1] * 200)
    assert "several optimizers" in reason([0, 1] * 200)
