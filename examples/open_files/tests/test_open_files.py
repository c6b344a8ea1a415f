"""The rule on runs made in memory. The tests of tracelyze record a real training with the installed package."""

from __future__ import annotations

from open_files.rule import RULE

from tracelyze.testing import Workshop

MAKE = Workshop()


def counted(counts: list[float]) -> list[dict[str, object]]:
    return [
        {"time": float(second), "step": 10 * second, "name": "open files", "value": count}
        for second, count in enumerate(counts)
    ]


def test_files_that_are_never_closed_are_found() -> None:
    process = MAKE.process(more={"scalars": counted([20.0 + 5 * second for second in range(40)])})
    status, _, finding = MAKE.check(RULE, process)
    assert status == "fired"
    assert finding is not None
    assert "150 more" in finding.title


def test_workers_that_start_once_are_healthy() -> None:
    process = MAKE.process(more={"scalars": counted([20.0] * 5 + [90.0] * 35)})
    assert MAKE.check(RULE, process)[0] == "passed"


def test_a_short_run_is_not_judged() -> None:
    process = MAKE.process(more={"scalars": counted([20.0, 80.0, 140.0])})
    assert MAKE.check(RULE, process)[:2] == ("skipped", "Open files were counted 3 times; 8 are needed.")
