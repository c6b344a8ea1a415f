"""group-rate-overwritten: groups whose rates became one, and schedules that keep them apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tracelyze.testing import SITES

RULE, MADE, SAMPLED_STEPS = "group-rate-overwritten", [1e-4, 1e-3], (1, 2, 3, 5, 10, 20, 50, 100)


def process(make: Any, now: Callable[[int], list[float]], made: list[float] = MADE) -> Any:
    row = {"optimizer": 0, "made": json.dumps(made), "scheduler": "OneCycleLR", "site": 1}
    rows = [row | {"step": n, "steps": n, "now": json.dumps(now(n))} for n in SAMPLED_STEPS]
    return make.process(more={"group_rates": rows})


def test_rates_that_became_one(make: Any) -> None:
    for now in (lambda n: [1e-3 / n] * 2, lambda n: [1e-3, 1e-3] if n > 1 else MADE, lambda n: [5e-4] * 2):
        status, _, finding = make.check(RULE, process(make, now))
        assert (status, finding.severity, finding.confidence, finding.location.line) == (
            "fired",
            "warning",
            "certain",
            41,
        )
    late = make.check(RULE, process(make, lambda n: [6e-4] * 2 if n >= 20 else MADE))
    assert (late[0], late[2].first_step) == ("fired", 20), "set by the loop after an epoch"
    assert "from the start" not in " ".join(late[2].excluded), "they had rates of their own until then"


def test_rates_that_stay_apart(make: Any) -> None:
    for now in (
        lambda n: [1e-4 / n, 1e-3 / n],
        lambda n: [0.0, 0.0] if n < 3 else MADE,  # warm-up
        lambda n: [1e-6, 1e-6] if n >= 50 else MADE,  # a lowest rate for all
        lambda n: [1e-3, 1e-3] if n == 10 else MADE,
    ):
        assert make.check(RULE, process(make, now))[0] == "passed"
    assert make.check(RULE, process(make, lambda n: [1e-3] * 2, made=[1e-3, 1.1e-3]))[0] == "passed"
    assert make.check(RULE, make.process())[0] == "skipped"


def test_a_scheduler_of_its_own_that_makes_one_rate_for_all(make: Any) -> None:
    row = {"optimizer": 0, "made": json.dumps(MADE), "now": json.dumps([1e-3] * 2), "scheduler": "WarmUp"}
    rows = [row | {"step": n, "steps": n, "site": 1, "rates_at": 70} for n in SAMPLED_STEPS]
    line = {
        "site": 70,
        "role": "rates",
        "file": "train.py",
        "line": 12,
        "function": "get_lr",
        "source": "def get_lr(s):",
    }
    finding = make.check(RULE, make.process(sites=[*SITES, line], more={"group_rates": rows}))[2]
    assert (finding.location.line, finding.seen_at.line) == (12, 41)
    assert "for base in self.base_lrs" in finding.fix_code
    assert "WarmUp sets the same for all" in finding.summary


def test_the_line_that_sets_one_rate_for_all(make: Any) -> None:
    row = {"optimizer": 0, "made": json.dumps(MADE), "now": json.dumps([1e-3] * 2)}
    rows = [row | {"step": n, "steps": n, "site": 1} for n in SAMPLED_STEPS]
    line = {"role": "rate-text", "file": "train.py", "function": "adjust", "source": 'group["lr"] = rate'}
    sites = [*SITES, line | {"site": 70, "line": 73}]
    finding = make.check(RULE, make.process(sites=sites, more={"group_rates": rows}))[2]
    assert (finding.location.line, "line 73 sets the same for all" in finding.summary) == (73, True)
    assert all(one.name != "scheduler" for one in finding.evidence)
    two = [*sites, line | {"site": 71, "line": 99}]
    finding = make.check(RULE, make.process(sites=two, more={"group_rates": rows}))[2]
    assert (finding.location.line, "the script sets the same" in finding.summary) == (41, True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('group["lr"] = rate', 'group["lr"] = rate * base / max(rates)'),
        ('g["lr"] = 0.5 * rate + low', 'g["lr"] = (0.5 * rate + low) * base / max(rates)'),
        ('group["lr"] = base * decay', 'group["lr"] = rate * factor'),  # a name that the example needs
        ('self.groups[0]["lr"] = rate', 'group["lr"] = rate * factor'),
    ],
)
def test_the_example_keeps_the_ratio_of_rates_that_a_loop_sets(make: Any, line: str, said: str) -> None:
    row = {"optimizer": 0, "made": json.dumps(MADE), "now": json.dumps([1e-3] * 2)}
    rows = [row | {"step": n, "steps": n, "site": 1} for n in SAMPLED_STEPS]
    place = {"site": 70, "role": "rate-text", "file": "train.py", "function": "adjust", "line": 73, "source": line}
    place |= {"excerpt": f"    for group in groups:\n        {line}", "excerpt_line": 72}
    finding = make.check(RULE, make.process(sites=[*SITES, place], more={"group_rates": rows}))[2]
    assert said in finding.fix_code
    assert finding.fix.startswith("Scale each group's own rate"), "the script has no scheduler"


def test_the_ratio_is_kept_beside_the_rate_that_all_have_today(make: Any) -> None:
    """A schedule that was made for the slow group must not slow down the fast one."""
    place = {"site": 70, "role": "rate-text", "file": "train.py", "function": "adjust", "line": 73}
    place |= {"source": 'group["lr"] = rate', "excerpt": '        group["lr"] = rate', "excerpt_line": 73}
    for peak, scale in ((1e-4, "min"), (1e-3, "max")):
        row = {"optimizer": 0, "made": json.dumps(MADE), "site": 1}
        now = [row | {"step": n, "steps": n, "now": json.dumps([peak * min(n, 20) / 20] * 2)} for n in SAMPLED_STEPS]
        finding = make.check(RULE, make.process(sites=[*SITES, place], more={"group_rates": now}))[2]
        assert f'group["lr"] = rate * base / {scale}(rates)' in finding.fix_code
        assert f"at first and {peak:g} at most, in each" in finding.summary
        assert finding.title.endswith(f"became one: {peak:g}"), "not the first rate of a warm-up"


def test_of_several_trainings_the_one_whose_rates_became_one_is_named_with_its_time(make: Any) -> None:
    first, second = make.steps(50), make.steps(50)
    steps = {name: [*first[name], *second[name]] for name in first}
    steps |= {"optimizer": [0] * 50 + [1] * 50, "time": [0.1 * (index + 1) for index in range(100)]}
    row = {"optimizer": 1, "made": json.dumps(MADE), "scheduler": "OneCycleLR", "site": 1}
    rows = [row | {"step": 50 + n, "steps": n, "now": json.dumps([1e-3] * 2)} for n in SAMPLED_STEPS[:6]]
    optimizers = [{"optimizer": index, "name": "AdamW"} for index in (0, 1)]
    recorded = make.process(steps=steps, more={"group_rates": rows, "optimizers": optimizers})
    assert len(recorded.trainings) == 2
    finding = make.check(RULE, recorded)[2]
    assert finding.title.endswith("(training 2 of 2)")
    assert finding.trainings == ["training 2 of 2"]
    assert (finding.first_step, round(finding.first_second, 1)) == (1, 5.1), "not at step 1 of the first training"
