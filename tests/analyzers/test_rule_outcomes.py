"""The plugin that holds that every rule fires in a test and passes in one: tests/rule_outcomes.py."""

from __future__ import annotations

import pytest

from tests.rule_outcomes import RuleOutcomes


@pytest.fixture
def noted(request: pytest.FixtureRequest) -> RuleOutcomes:
    plugin = request.config.pluginmanager.get_plugin("rule-outcomes")
    assert isinstance(plugin, RuleOutcomes)
    return plugin


def test_answers_are_noted_by_test(make, noted: RuleOutcomes) -> None:
    assert make.check("loss-nonfinite", make.process())[0] == "passed"
    assert noted.answers[noted.test] == {("loss-nonfinite", "Passed")}
    assert "loss-nonfinite" in noted.rules("Passed")


def test_a_rule_without_its_tests_is_named() -> None:
    plugin = RuleOutcomes()
    plugin.answers = {"test": {("loss-nonfinite", "Passed"), ("memory-leak", "Skipped")}}
    said = "no test of its own in which the answer is"
    problems = {problem.partition(" (")[0] for problem in plugin.problems()}
    assert f"loss-nonfinite: {said} Fired" in problems
    assert f"memory-leak: {said} Passed" in problems
    assert f"loss-nonfinite: {said} Passed" not in problems
