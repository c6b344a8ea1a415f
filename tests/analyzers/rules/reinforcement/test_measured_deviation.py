"""entropy-collapse of policies of continuous actions: deviations read off their losses, beside their rewards."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

RULE, COUNT = "entropy-collapse", 300
LOOKS = [*range(20), 24, 29, 44, 66, 99, 149, 224]  # as a short run has them
NOISE = np.random.default_rng(0).normal(0, 0.1, COUNT)
FALLS = np.maximum(0.9 ** np.arange(COUNT), 2e-3)
STANDS, SOLVED = 0.2 + NOISE, np.r_[np.linspace(0.2, 1, 60), np.ones(COUNT - 60)] + NOISE


def process(make: Any, deviation: Any, reward: Any, both_signs: bool = True, held: bool = False, **more: Any) -> Any:
    events = []
    for n in LOOKS:
        row = {"kind": "elements", "mean": float(reward[n]), "sum": 64 * float(reward[n]), "count": 64, "spread": 0.3}
        facts = {
            "deviation": float(deviation[n]),
            "both_signs": both_signs,
            "rewards": {"rewards": row} if held else {},
        }
        events.append({"kind": "policy-deviation", "step": n, "text": json.dumps(facts)})
    scalars = [
        {"step": n + 1, "phase": "train", "name": name, "value": float(values[n])}
        for name, values in ({} if held else {"reward": reward} | more).items()
        for n in range(COUNT)
    ]
    return make.process(make.steps(COUNT), more={"events": events, "scalars": scalars})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"held": True},
        {"entropy": 3 * (1.42 + np.log(FALLS))},  # of a normal law: below zero in the end
        {"entropy": -1 - np.arange(COUNT)},  # and from the start
    ],
)
def test_a_policy_that_draws_the_same_and_gains_nothing(make: Any, more: dict[str, Any]) -> None:
    status, _, finding = make.check(RULE, process(make, FALLS, 1 + STANDS, **more))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "deviation collapsed" in finding.title


@pytest.mark.parametrize(
    ("deviation", "reward", "more", "status"),
    [
        (FALLS, SOLVED, {}, "passed"),
        (FALLS, 1 + SOLVED, {"held": True}, "passed"),
        (np.geomspace(1, 0.2, COUNT), STANDS, {}, "passed"),  # it goes on exploring
        (np.geomspace(1, 0.2, COUNT), STANDS, {"entropy": np.linspace(1.42, -0.2, COUNT)}, "passed"),
        (np.r_[FALLS[:100], np.full(COUNT, 0.5)], STANDS, {}, "passed"),
        (0.25 * FALLS, STANDS, {}, "passed"),  # it was trained before
        (FALLS, STANDS, {"both_signs": False}, "skipped"),  # weights of samples
    ],
)
def test_a_policy_that_is_narrow_for_good_reason(
    make: Any, deviation: Any, reward: Any, more: dict[str, Any], status: str
) -> None:
    assert make.check(RULE, process(make, deviation, reward, **more))[0] == status


def test_rewards_that_are_not_known(make: Any) -> None:
    run = process(make, FALLS, STANDS, held=True)
    for row in run.tables["events"].records():
        assert row["kind"] == "policy-deviation"
    assert make.check(RULE, process(make, FALLS, 0 * STANDS, held=True))[0] == "skipped"
