"""missing-zero-grad where several optimizers step and none of them is cleared: one example clears all of them."""

from __future__ import annotations

from typing import Any

import pytest

COUNT = 400


def found(make: Any, lines: str, carried: tuple[int, int] = (8, 8)) -> Any:
    """The finding about opt_a and opt_b in a loop of these lines, from line 40 on."""
    text = lines.split("; ")
    part = {"file": "train.py", "function": "main", "excerpt_line": 40}
    part["excerpt"] = "\n".join(f"        {one}" for one in text)
    roles = {"zero_grad": "zero_grad(", "backward": "backward(", "step": ".step("}
    sites = [
        {"site": 7 + at, "role": role, "line": 40 + at, "source": one.strip(), **part}
        for at, one in enumerate(text)
        for role, call in roles.items()
        if call in one
    ]
    own = {name: next(one["site"] for one in sites if f"{name}.step" in one["source"]) for name in ("opt_a", "opt_b")}
    both = [{"optimizer": at, "name": "Adam", "site": site} for at, site in enumerate(own.values())]
    steps = make.steps() | {
        "optimizer": [index % 2 for index in range(COUNT)],
        "grads_carried": [0, 0] + [carried[index % 2] for index in range(COUNT - 2)],
    }
    return make.check("missing-zero-grad", make.process(steps, optimizers=both, sites=sites))[2]


@pytest.mark.parametrize(
    "backward", ["loss.backward()", "self.manual_backward(loss)", "one.backward(); two.backward()"]
)
def test_all_are_cleared_behind_the_last_step(make: Any, backward: str) -> None:
    finding = found(make, f"{backward}; opt_a.step(); opt_b.step()")
    last = 42 + backward.count(";")
    assert (finding.location.line, finding.diff.line, finding.diff.removed) == (last, last + 1, [])
    assert finding.diff.added == ["        opt_a.zero_grad()", "        opt_b.zero_grad()"]
    assert finding.fix.startswith("Clear the gradients of both optimizers once per step, right behind the last")
    assert ("before it validates" in finding.fix) == ("manual" in backward)


@pytest.mark.parametrize(
    "lines",
    [
        "loss_a.backward(); opt_a.step(); loss_b.backward(); opt_b.step()",
        "loss.backward(); opt_a.step(); if late:;     opt_b.step()",
        "loss.backward(); if late:;     opt_a.step(); opt_b.step()",
        "opt_a.step(); opt_b.step(); loss.backward()",
    ],
)
def test_each_is_cleared_before_its_own_backward(make: Any, lines: str) -> None:
    """The second loss fills the gradients of both, and a step may stand behind a condition of its own."""
    finding = found(make, lines)
    assert finding.diff is None
    own = "  # before the first backward of its own loss"
    assert finding.fix_code == f"opt_a.zero_grad(){own}\nopt_b.zero_grad(){own}"


def test_one_that_the_script_clears_somewhere_is_not_cleared_again(make: Any) -> None:
    finding = found(make, "if late: opt_b.zero_grad(); loss.backward(); opt_a.step(); opt_b.step()")
    assert (finding.diff, finding.location.line) == (None, 42)
    assert "both optimizers" not in finding.fix
