"""zero-advantage in logs that are means over several steps each."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.testing import SITES

NAMES = {"groups": "frac_reward_zero_std", "rewards": "reward", "spread": "reward_std", "entropy": "entropy"}


def judged(make: Any, apart: int = 30, sites: Any = (), **logged: list[float]) -> Any:
    """What is said of a run that logs such values every `apart` steps."""
    rows = [
        {"step": apart * at, "own_step": apart * at, "phase": "train", "name": NAMES[name], "value": value}
        for name, values in logged.items()
        for at, value in enumerate(values, 1)
    ]
    steps = make.steps(apart * len(logged["groups"]))
    return make.check("zero-advantage", make.process(steps, sites=[*SITES, *sites], more={"scalars": rows}))


SETTLED = {"groups": [0.7, 0.96, 1.0], "rewards": [0.14, 0.252, 0.25], "spread": [0.28, 0.33, 0.31]}


def test_a_policy_that_settles_on_one_answer(make: Any) -> None:
    status, _, finding = judged(make, **SETTLED, entropy=[1.25, 0.085, 0.018])
    assert (status, finding.severity, finding.confidence, finding.first_step) == ("fired", "warning", "likely", 31)
    assert "from step 31 on" in finding.title
    assert "each a mean over 30 steps" in finding.summary
    assert "from prompt to prompt rewards do differ" in finding.summary
    assert "its entropy was 1.25 in the first log and is 0.018 in the last" in finding.summary
    assert "start again with a lower learning rate" in finding.fix
    drawn = judged(make, **SETTLED, entropy=[1.25, 1.1, 1.0])[2]
    assert "has become certain" not in drawn.summary
    assert drawn.fix.startswith("Look at a few completions")


@pytest.mark.parametrize(
    ("logged", "status"),
    [
        ({"rewards": [0.5, 0.97, 0.98], "spread": [0.5, 0.1, 0.05]}, "passed"),  # solved
        ({"rewards": [0.2, 0.5, 0.5], "spread": [0.3, 0.29, 0.29]}, "passed"),  # of rewards that differ by prompt
        ({"rewards": [0.4, 0.1, 0.0], "spread": [0.3, 0.0, 0.0]}, "fired"),  # all is lost
        ({"rewards": [0.14, 0.25, 0.25], "spread": [0.2, 0.0, 0.0]}, "passed"),  # deviations within groups: not known
        ({"groups": [1.0, 1.0, 1.0], "rewards": [0.0, 0.0, 0.0]}, "fired"),  # from the start
        ({"groups": [0.7, 0.9, 0.8]}, "passed"),
        ({"groups": [1.0, 1.0], "rewards": [0.0, 0.0]}, "skipped"),
    ],
)
def test_logs_of_several_steps(make: Any, logged: dict[str, list[float]], status: str) -> None:
    assert judged(make, **({"groups": SETTLED["groups"]} | logged))[0] == status


def test_the_line_that_gives_the_reward(make: Any) -> None:
    common = {"file": "grpo.py", "function": "scored"}
    sites = [
        common | {"site": 60, "role": "reward", "line": 4, "source": "def scored(completions):"},
        common | {"site": 61, "role": "reward-searched", "line": 6, "source": 'found = re.search("x", text)'},
    ]
    assert judged(make, sites=sites, **SETTLED)[2].location.line == 6
    sites += [common | {"site": 62, "role": "reward-searched", "line": 7, "source": "again = re.match(y, text)"}]
    assert judged(make, sites=sites, **SETTLED)[2].location.line == 4
