"""loss-nonfinite where no target of a batch counts: a mean over none, and no division of the script's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.loss_calls import calls

SCORE = {"site": 5, "role": "singular", "file": "train.py", "line": 89, "source": "return right / total"}


@pytest.mark.parametrize(("ignored", "uncounted"), [(1.0, True), (0.4, False), (None, False)])
def test_a_loss_without_targets_that_count(make: Any, ignored: float | None, uncounted: bool) -> None:
    steps = make.steps() | {"loss": [0.7] * 300 + [float("nan")] * 100}
    event = {"kind": "nonfinite-loss", "step": 300, "name": "", "text": "division by 0", "value": 1.0, "time": 1.0}
    rows = [one | {"step": 300, "ignored": ignored} for one in calls(1)]
    site = SCORE | {"function": "score"}
    process = make.process(steps, events=[event], sites=[site], more={"loss_calls": rows})
    finding = make.check("loss-nonfinite", process)[2]
    assert ("No target counted in its batch" in finding.summary) is uncounted
    assert (finding.location is not None and finding.location.line == 89) is not uncounted
    assert ("labels != -100" in finding.fix_code) is uncounted


@pytest.mark.parametrize("role", ["eval-mode", ""])
def test_a_division_in_a_function_that_measures_makes_no_loss(make: Any, role: str) -> None:
    steps = make.steps() | {"loss": [0.7] * 300 + [float("nan")] * 100}
    event = {"kind": "nonfinite-loss", "step": 300, "name": "", "text": "division by 0", "value": 1.0, "time": 1.0}
    sites = [SCORE | {"function": "score"}]
    sites += [{**sites[0], "site": 6, "role": role, "line": 80, "source": "model.eval()"}] if role else []
    finding = make.check("loss-nonfinite", make.process(steps, events=[event], sites=sites))[2]
    assert (finding.location is not None and finding.location.line == 89) is not bool(role)
