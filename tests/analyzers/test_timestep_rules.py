"""narrow-timesteps: what it fires on, and trainings that cover a part of the schedule on purpose."""

from __future__ import annotations

from typing import Any

RULE = "narrow-timesteps"


def looks(make: Any, low: float, high: float, distinct: float, **more: Any) -> Any:
    row = {"argument": "t", "source": "schedule", "range": 1000, "distinct": distinct, "low": low, "high": high}
    row |= {"lowest": low, "highest": high, **more}
    rows = [row | {"step": 1 + 10 * n, "values": 64 * (n + 1)} for n in range(12)]
    return make.process(more={"timesteps": rows})


def test_the_first_timesteps_alone(make: Any) -> None:
    status, _, finding = make.check(RULE, looks(make, 0, 99, 100))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "Only the first 100 of 1,000" in finding.title
    _, _, finding = make.check(RULE, looks(make, 0, 99, 100, source="embedding"))
    assert (finding.severity, finding.confidence) == ("info", "possible")


def test_what_covers_the_schedule_or_a_part_on_purpose(make: Any) -> None:
    assert make.check(RULE, looks(make, 0, 997, 500))[0] == "passed"
    assert make.check(RULE, looks(make, 249, 999, 4))[0] == "passed", "distilled to four steps"
    assert make.check(RULE, looks(make, 999, 999, 1))[0] == "passed", "distilled to one step"
    assert make.check(RULE, looks(make, 0, 140, 8))[0] == "passed", "few steps"
    assert make.check(RULE, looks(make, 800, 999, 200))[0] == "passed", "an expert for much noise"
    process = looks(make, 0, 240, 200)
    rows = [row | {"high": 20.0 * n} for n, row in enumerate(process.tables["timesteps"].records())]
    assert make.check(RULE, make.process(more={"timesteps": rows}))[0] == "passed", "a curriculum that has just begun"


def test_without_timesteps(make: Any) -> None:
    assert make.check(RULE, make.process())[0] == "skipped"
    few = list(looks(make, 0, 99, 100).tables["timesteps"].records())[:3]
    assert make.check(RULE, make.process(more={"timesteps": few}))[0] == "skipped"
