"""A run of the whole suite fails where a diagnosis lacks a test in which it fires, or a look-alike in which it passes.

A rule that always skips would pass every test that only says that it does not fire. So this plugin notes how rules
answer in the tests that run in one process. That a rule passes counts in a test that asks few rules: in a diagnosis
with the whole catalogue nearly all pass by the way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FEW = 5  # rules that one test may ask to be about each of them
TESTS = Path(__file__).parent

# What has no such test yet. Take a rule out of here as soon as it has one; none comes in.
FIRES_IN_NO_TEST: frozenset[str] = frozenset()
PASSES_IN_NO_TEST: frozenset[str] = frozenset()


class RuleOutcomes:
    """Notes the rules that answered, test by test, in all workers."""

    def __init__(self) -> None:
        self.answers: dict[str, set[tuple[str, str]]] = defaultdict(set)  # by test: rule and kind of answer
        self.test = ""

    def pytest_sessionstart(self) -> None:
        from tracelyze.analyzers.kineto import diagnose
        from tracelyze.analyzers.ranks import summary

        summary.run_check = self._noting(summary.run_check)
        diagnose.run_check = self._noting(diagnose.run_check)

    def _noting(self, run_check: Callable[..., Any]) -> Callable[..., Any]:
        def noted(rule: Any, *arguments: Any) -> Any:
            outcome = run_check(rule, *arguments)
            self.answers[self.test].add((rule.id, "Fired" if isinstance(outcome, list) else type(outcome).__name__))
            return outcome

        return noted

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for test, answers in getattr(node, "workeroutput", {}).get("rule_outcomes", {}).items():
            self.answers[test].update(map(tuple, answers))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        config = session.config
        if hasattr(config, "workeroutput"):
            config.workeroutput["rule_outcomes"] = {test: sorted(found) for test, found in self.answers.items()}
        elif is_whole(config) and session.exitstatus == pytest.ExitCode.OK and self.problems():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
        if is_whole(config) and exitstatus == pytest.ExitCode.TESTS_FAILED:
            for problem in self.problems():
                terminalreporter.line(problem, red=True)

    def rules(self, kind: str) -> set[str]:
        """The rules that gave an answer of this kind in a test that may be about them."""
        about = [found for found in self.answers.values() if kind == "Fired" or len({rule for rule, _ in found}) <= FEW]
        return {rule for found in about for rule, answer in found if answer == kind}

    def problems(self) -> list[str]:
        from tracelyze.catalogue.entries import entries

        known = {entry.id for entry in entries()}
        return [
            f"{rule}: {said} (tests/rule_outcomes.py)"
            for kind, excepted in (("Fired", FIRES_IN_NO_TEST), ("Passed", PASSES_IN_NO_TEST))
            for rules, said in (
                (known - self.rules(kind) - excepted, f"no test of its own in which the answer is {kind}"),
                (self.rules(kind) & excepted, f"has a test in which the answer is {kind}: take it off the list"),
            )
            for rule in sorted(rules)
        ]


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests were asked for: with a part of them nothing can be said."""
    narrowed = config.option.keyword or getattr(config.option, "lf", False) or config.option.deselect
    return not narrowed and [Path(argument).resolve() for argument in config.args] == [TESTS]
