"""What eval-with-grad says to change: nothing that training runs through as well, which would lose its graph."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import applied, sites_of
from tracelyze.diagnosis import Finding

SCRIPT = """\
def compute_loss(model, batch):
    x, y = batch
    scores = model(x)
    return criterion(scores, y)

def validate(model, loader):
    model.eval()
    for x, y in val_loader:
        answers = model(x)

def fit(model):
    for batch in train_loader:
        compute_loss(model, batch).backward()
"""
EVALUATED_IN_VALIDATE = {"forward": "answers = ", "evaluation": "model.eval()"}
EVALUATED_IN_COMPUTE_LOSS = {"forward": "scores = ", "evaluation": "x, y = batch"}
TRAINS = {"training-call": "scores = "}


def found(make: Any, roles: dict[str, str], loop: str = "val_loader", script: str = SCRIPT) -> Finding:
    """The finding of a run whose validations call the model at the line of role forward, under this loop."""
    sites = sites_of(script, **roles, loader="train_loader", exhausted=loop)
    for row in sites:
        row["function"] = "validate" if 6 <= row["line"] < 11 else "compute_loss" if row["line"] < 6 else "fit"
    at = {row["role"]: row["site"] for row in sites}
    loaders = [{"loader": 0, "site": at["loader"]}, {"loader": 1, "site": at["exhausted"]}]
    evals = make.evals() | {"grad_mode": [2] * 4, "site": [at["forward"]] * 4, "loader": [1] * 4}
    _, _, finding = make.check("eval-with-grad", make.process(evals=evals, sites=sites, loaders=loaders))
    assert isinstance(finding, Finding)
    return finding


def test_a_call_of_the_validation_alone_goes_under_no_grad(make) -> None:
    finding = found(make, EVALUATED_IN_VALIDATE | TRAINS)
    assert "        with torch.no_grad():\n            answers = model(x)\n" in applied(SCRIPT, finding.diff)
    assert finding.location
    assert finding.location.source == "answers = model(x)", "the line that the edit changes"


def test_a_method_that_returns_what_the_model_says_does_so_under_no_grad(make) -> None:
    """As an engine of Ignite calls it, batch by batch."""
    script = SCRIPT.replace("        answers = model(x)", "        return model(x), y")
    finding = found(make, EVALUATED_IN_VALIDATE | {"forward": "return model(x)"} | TRAINS, script=script)
    assert "        with torch.no_grad():\n            return model(x), y\n" in applied(script, finding.diff)


def test_of_a_call_that_trains_too_the_loop_that_validates_is_named(make) -> None:
    finding = found(make, EVALUATED_IN_COMPUTE_LOSS | TRAINS)
    assert finding.diff is None
    assert finding.location
    assert finding.location.source == "for x, y in val_loader:"
    assert "(line 8) under torch.no_grad(), not line 3" in finding.fix
    assert "@torch.no_grad()" not in (finding.fix_code or "")


def test_one_loop_for_both_phases_switches_autograd(make) -> None:
    finding = found(make, EVALUATED_IN_COMPUTE_LOSS | TRAINS, loop="train_loader")
    assert finding.diff is None
    assert finding.location
    assert finding.location.source == "scores = model(x)"
    assert "set_grad_enabled" in (finding.fix_code or "")


@pytest.mark.parametrize("roles", [EVALUATED_IN_VALIDATE, EVALUATED_IN_COMPUTE_LOSS])
def test_without_the_lines_that_trained_none_is_edited(make, roles: dict[str, str]) -> None:
    assert found(make, roles).diff is None
