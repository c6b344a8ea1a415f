"""Settings of all tests, and the markers by which `scripts/test.sh --quick` chooses."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from .rule_outcomes import RuleOutcomes

# No deadline: a busy machine is no failure. In continuous integration the same examples every time: a failure there is
# the change's own; new examples are for developers' machines.
settings.register_profile("tracelyze", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile("quick", deadline=None, max_examples=15)
settings.load_profile("tracelyze")

STARTING = {"collect", "collect_started", "recorded", "programs", "plain", "run_plain", "run_started"}
"""Fixtures and functions that start programs."""
WEIGHTS = {"starts_programs": 50, "slow": 500}
"""About how much longer such a test takes than others."""
_quiet: list[str] = []  # the test that is running, if it may start no process


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RuleOutcomes(), "rule-outcomes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with a fixture that starts programs or a browser are marked by it."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        called = set(item.function.__code__.co_names) if isinstance(item, pytest.Function) else set()
        if "/collectors/" in item.nodeid and (fixtures | called) & STARTING:
            item.add_marker(pytest.mark.starts_programs)
        if fixtures & {"browser", "chromium"}:
            item.add_marker(pytest.mark.browser)
    _longest_files_first(items)


def _longest_files_first(items: list[pytest.Item]) -> None:
    """A file goes to one worker: one that takes long and is begun last keeps everybody waiting for its worker."""
    weights: Counter[Path] = Counter()
    for item in items:
        weights[item.path] += WEIGHTS["starts_programs"] if item.get_closest_marker("starts_programs") else 1
        weights[item.path] += WEIGHTS["slow"] if item.get_closest_marker("slow") else 0
    items.sort(key=lambda item: -weights[item.path])


@pytest.fixture(autouse=True)
def _starts_only_what_it_says(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that starts a process without a marker fails: the quick tier would be quick no longer."""
    marks = ("starts_programs", "browser")
    _quiet[:] = [] if any(request.node.get_closest_marker(name) for name in marks) else [request.node.nodeid]
    yield
    _quiet.clear()


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _quiet and event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        test = _quiet.pop()
        raise RuntimeError(f"{test} starts a process ({arguments[0] if arguments else event}): mark it starts_programs")


sys.addaudithook(_audit)
