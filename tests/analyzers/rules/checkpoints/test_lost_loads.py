"""A line that loads weights into a copy again and again, and gives it none of those that it has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.rules.reinforcement.test_policy_rules import FAR, SAMPLER, STALE, acted
from tracelyze.analyzers.rules.reinforcement.sampler_mismatch import lost_loads

PLACE = {"file": "a.py", "function": "push"}
LOAD = {"site": 1, "role": "load_state_dict", "line": 54, "source": "self.net.load_state_dict(state, strict=False)"}
TAKE = {
    "site": 2,
    "role": "state_dict",
    "line": 53,
    "source": "state = {k[7:]: v for k, v in agent.state_dict().items()}",
}
CALL = {"name": "Policy", "module": 0, "site": 1, "given": 0, "expected": 29, "missing": 29, "unexpected": 0}


def run(make: Any, *rows: dict[str, Any], take: dict[str, Any] = TAKE) -> Any:
    loads = [CALL | row | {"time": 1.0 * at, "step": 10 * at} for at, row in enumerate(rows)]
    return make.process(sites=[LOAD | PLACE, PLACE | take], more={"loads": loads})


def test_a_load_that_finds_no_name(make: Any) -> None:
    found = lost_loads.of(run(make, *[{}] * 8), 6)
    assert found.location is not None
    assert found.location.line == 54
    assert found.said.startswith(" Line 54 gave Policy none of its 29 weights in all 8 calls")
    assert found.code == "self.net.load_state_dict(agent.state_dict())  # in line 54"
    apart = lost_loads.of(run(make, *[{}] * 8, take=TAKE | {"function": "main"}), 6)
    assert "(policy.state_dict())" in apart.code


@pytest.mark.parametrize(
    "rows",
    [
        [{}] * 5,  # too few
        [*[{}] * 8, {"missing": 0}],  # it got them at last
        [*[{}] * 8, {"missing": 3, "site": 2}],  # another line gives them
        [*[{}] * 4, *[{"site": 2}] * 4],
        [],
    ],
)
def test_loads_that_say_nothing(make: Any, rows: list[dict[str, Any]]) -> None:
    assert lost_loads.of(run(make, *rows), 6) == lost_loads.LostLoad()


def test_the_copy_that_acts_never_takes_over_the_weights(make: Any) -> None:
    loads = [CALL | {"time": 1.0 * at, "step": 10 * at} for at in range(8)]
    _, _, finding = make.check(SAMPLER, make.process(sites=[LOAD | PLACE], more=acted(FAR, **STALE) | {"loads": loads}))
    assert finding.location.line == 54
    assert "none of its 29 weights" in finding.summary
    _, _, as_it_is = make.check(SAMPLER, make.process(sites=[LOAD | PLACE], more=acted(FAR) | {"loads": loads}))
    assert "none of its" not in as_it_is.summary


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["actor_old = copy.deepcopy(actor).requires_grad_(False)"], "actor_old.load_state_dict(actor.state_dict())"),
        (["self.mu = deepcopy(self.pi).eval()"], "self.mu.load_state_dict(self.pi.state_dict())"),
        (["best = copy.deepcopy(model.state_dict())"], None),
        (["a = copy.deepcopy(actor).eval()", "b = copy.deepcopy(critic).eval()"], None),  # one of them acts
    ],
)
def test_the_copy_that_nothing_loads_is_the_line_that_makes_it(make: Any, lines: list[str], code: str | None) -> None:
    sites = [PLACE | {"site": at, "role": "freeze", "line": at, "source": line} for at, line in enumerate(lines, 7)]
    found = lost_loads.of(make.process(sites=sites), 6)
    assert (found.location and found.location.line) == (7 if code else None)
    assert found.code.startswith(code or "acting.")
