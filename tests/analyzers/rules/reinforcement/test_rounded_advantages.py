"""zero-advantage where rewards are equal and rounding leaves something of zero."""

from __future__ import annotations

import json
from typing import Any

import pytest

RULE = "zero-advantage"
EQUAL = {"kind": "elements", "mean": 0.3, "sum": 2.4, "count": 8, "spread": 0.0, "within": 0.0}
NOISY, DIFFERENT = EQUAL | {"spread": 1e-7, "within": 5e-7}, EQUAL | {"mean": 0.4, "spread": 2e-3, "within": 7e-3}
MADE, NAMED = {"weighed": {"r": EQUAL}}, {"rewards": {"rewards": EQUAL}}
TINY, AMPLIFIED = {"weights_largest": 3e-4}, {"weights_largest": 3.0, "weights_repeated": 0.9}
USUAL = {"weights_largest": 1.8, "weights_repeated": 0.05}


def run(make: Any, held: dict[str, Any], look: dict[str, float], kind: str = "policy-choices", late: int = 0) -> Any:
    """Twenty looks at a loss; before step `late` rewards differ."""
    usual = {"site": 1, "weights": 64.0, "weights_zero": 0.0, "weights_negative": 0.4, "weights_repeated": 0.1}
    rows = [usual | {"step": n} | (USUAL if n < late else look) for n in range(20)]
    other = {"weighed": {"r": DIFFERENT}}
    texts = [json.dumps(other if n < late else held) for n in range(20)]
    events = [{"kind": kind, "step": n, "text": one} for n, one in enumerate(texts)]
    return make.process(more={"loss_graphs": rows, "events": events})


@pytest.mark.parametrize(
    ("held", "look"),
    [
        (MADE, TINY),
        (NAMED, TINY),
        ({"weighed": {"r": NOISY}}, {"weights_largest": 5e-3}),
        (MADE, AMPLIFIED),  # the epsilon is as small as the rounding
        ({"weighed": {"flat": EQUAL | {"within": 0.9}, "groups": EQUAL}}, TINY),  # the same, once in groups
    ],
)
def test_advantages_of_equal_rewards(make: Any, held: dict[str, Any], look: dict[str, float]) -> None:
    for kind in ("policy-choices", "policy-deviation", "policy-rewards"):
        status, _, finding = make.check(RULE, run(make, held, look, kind))
        assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
        assert "rounding errors" in finding.title


@pytest.mark.parametrize(
    ("held", "look", "late"),
    [
        ({"weighed": {"r": DIFFERENT}}, TINY, 0),  # they differ a little, and so do the advantages
        (MADE, USUAL, 0),  # the same reward in each step, whose sums differ
        (NAMED, AMPLIFIED, 0),  # they need not be made of these
        ({"weighed": {"r": EQUAL, "values": DIFFERENT}}, TINY, 0),
        ({}, TINY, 0),
        (MADE, TINY, 8),  # it is solved on the way
    ],
)
def test_advantages_that_are_small_for_good_reason(
    make: Any, held: dict[str, Any], look: dict[str, float], late: int
) -> None:
    assert make.check(RULE, run(make, held, look, late=late))[0] == "passed"


def test_recordings_that_do_not_tell(make: Any) -> None:
    assert make.check(RULE, run(make, MADE, {"weights_largest": float("nan")}))[0] == "passed"
