"""repeated-initialization: what it fires on, and the initialisations that are usual."""

from __future__ import annotations

from typing import Any

RULE = "repeated-initialization"


def filled(make: Any, **more: Any) -> Any:
    row = {"step": 1, "optimizer": 0, "weights": 12, "repeated": 0, "most": 2, "loaded": 0, "overwritten": 0}
    return make.process(more={"initializations": [row | more]})


def test_three_times_and_after_a_load(make: Any) -> None:
    status, _, finding = make.check(RULE, filled(make, repeated=12, most=3, site=3))
    assert (status, finding.severity, finding.location.line) == ("fired", "info", 60)
    status, _, finding = make.check(RULE, filled(make, loaded=12, overwritten=12, overwritten_site=3))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert finding.location.line == 60
    assert make.check(RULE, filled(make, weights=3, loaded=2, overwritten=2))[0] == "fired", "an encoder of two layers"


def test_what_is_usual(make: Any) -> None:
    assert make.check(RULE, filled(make))[0] == "passed", "default and one of the program's"
    assert make.check(RULE, filled(make, repeated=4, most=3))[0] == "passed", "a scale of their own for some layers"
    assert make.check(RULE, filled(make, loaded=11, overwritten=1))[0] == "passed", "a new head"
    assert make.check(RULE, filled(make, loaded=12, overwritten=6))[0] == "passed", "the upper layers again"
    assert make.check(RULE, filled(make, loaded=2, overwritten=2))[0] == "passed", "a head that was loaded"
    assert make.check(RULE, filled(make, weights=3, loaded=1, overwritten=1))[0] == "passed", "an embedding"
    assert make.check(RULE, filled(make, weights=2, loaded=2, overwritten=2))[0] == "passed"
    assert make.check(RULE, make.process())[0] == "skipped"
