"""Labels that enter a model with its loss in it, and tokens that are added between two trainings."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tracelyze.analyzers import diagnose

from .conftest import program

pytest.importorskip("torch")
RULES = ["doubled-bos", "padding-in-loss", "new-tokens-untrained"]


@pytest.mark.starts_programs
@pytest.mark.parametrize("how", ["fused", "called"])
def test_faults_of_texts_are_found_in_fused_losses_too(collect: Any, how: str) -> None:
    diagnosis = diagnose(collect(sys.executable, program("fused.py"), how).run, select=RULES)
    found = {one.rule: one for one in diagnosis.findings}
    assert found.keys() == set(RULES), [check.reason for check in diagnosis.checks]
    named = "the model's own loss" if how == "fused" else "cross_entropy"
    assert named in found["padding-in-loss"].title
    assert found["new-tokens-untrained"].first_step in (41, 42)
