"""Rules about what a policy's loss does beside weighing log-probabilities: its entropy and its advantages."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

ENTROPY, ADVANTAGE = "entropy-collapse", "advantage-not-detached"
FALLING, STEADY = np.geomspace(1.6, 0.2, 20), np.linspace(1.6, 1.2, 20)


def process(make: Any, losses: list[dict[str, Any]]) -> Any:
    facts = [{"undetached": False, "both_signs": True, **one} for one in losses]
    events = [{"kind": "policy-loss", "step": 5 * n, "text": json.dumps(one)} for n, one in enumerate(facts)]
    return make.process(more={"events": events})


def entropies(values: Any, punished: int, **more: bool) -> list[dict[str, Any]]:
    return [{"entropy": float(one), "most": 1.609, "punished": punished, **more} for one in values]


def test_entropy_that_the_loss_punishes(make: Any) -> None:
    status, _, finding = make.check(ENTROPY, process(make, entropies(FALLING, 1)))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "0.22" in finding.title


@pytest.mark.parametrize(
    ("losses", "status"),
    [
        (entropies(FALLING, -1), "skipped"),  # a bonus; the reward is not known
        (entropies(STEADY, 1), "passed"),  # a wrong sign without harm
        (entropies(FALLING, 1, both_signs=False), "passed"),  # a classifier that is to be sure, with weighed samples
        ([*entropies(FALLING[:10], 1), *entropies(FALLING[10:], -1)], "passed"),
        (entropies(FALLING[::4], 1), "skipped"),
        ([{}] * 20, "skipped"),
    ],
)
def test_entropy_that_it_does_not(make: Any, losses: list[dict[str, Any]], status: str) -> None:
    assert make.check(ENTROPY, process(make, losses))[0] == status


def test_advantages_that_are_not_detached(make: Any) -> None:
    status, _, finding = make.check(ADVANTAGE, process(make, [{"undetached": True}] * 20))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")


def test_advantages_that_are(make: Any) -> None:
    assert make.check(ADVANTAGE, process(make, [{}] * 20))[0] == "passed"
    assert make.check(ADVANTAGE, process(make, [{"undetached": True}, {}] * 10))[0] == "passed"
    assert make.check(ADVANTAGE, process(make, [{"undetached": True}] * 5))[0] == "skipped"
    assert make.check(ADVANTAGE, make.process())[0] == "skipped"
