"""update-spike: averages that were emptied though the count of steps went on, and what changes updates otherwise."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tracelyze.testing import SITES

RULE, STEPS, AT = "update-spike", 400, 200
OPTIONS = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8}
LINES = [
    {"role": "zero-fill", "file": "train.py", "function": "restart", "line": 30 + at, "site": 70 + at, "source": line}
    for at, line in enumerate(('state["exp_avg"].zero_()', 'state["exp_avg_sq"].zero_()'))
]


def updates(
    second: Any = None, counted: Any = None, gradient: Any = None, size: Any = None, every: int = 1
) -> list[dict[str, Any]]:
    """What Adam does whose averages are emptied behind step 200, or what a look-alike changes of that."""
    rows = []
    for step in range(1, STEPS + 1, every):
        behind = step - AT
        weight = 1 - 0.999 ** (behind if behind > 0 else step)
        rows.append(
            {
                "step": step,
                "optimizer": 0,
                "sample": 1,
                "size": size(step) if size else 0.2 if behind <= 0 else max(0.2, 0.23 / weight**0.5),
                "gradient": gradient(step) if gradient else 0.1,
                "second": second(step) if second else 0.1 * weight**0.5,
                "own_step": counted(step) if counted else step,
                "lost": 0.0,
            }
        )
    return rows


def process(make: Any, rows: list[dict[str, Any]], harm: float = 3.0, lines: Any = LINES, **facts: Any) -> Any:
    generator = np.random.default_rng(0)
    steps = np.arange(1, STEPS + 1)
    loss = (
        0.5 * np.exp(0.2 * generator.standard_normal(STEPS)) * np.where((steps > AT + 1) & (steps < AT + 90), harm, 1)
    )
    optimizer = {"optimizer": 0, "name": "Adam", "options": json.dumps(OPTIONS)} | facts
    return make.process(
        steps={**make.steps(), "loss": loss.tolist(), "lr": [1e-3] * STEPS},
        optimizers=[optimizer],
        sites=[*SITES, *lines],
        more={"updates": rows},
    )


@pytest.mark.parametrize("every", [1, 8])
def test_averages_that_are_emptied_without_the_count_of_steps(make: Any, every: int) -> None:
    status, _, finding = make.check(RULE, process(make, updates(every=every)))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "certain")
    assert finding.first_step == 201
    assert finding.location.line == 30
    assert 'state["exp_avg_sq"].zero_()\nstate["step"].zero_()' in finding.fix_code
    where = "at step 201" if every == 1 else "between its steps 193 and 201"
    assert where in finding.summary


def test_a_line_that_empties_something_else_is_not_named(make: Any) -> None:
    other = [LINES[0] | {"source": 'memory["hidden"].zero_()'}]
    made = [LINES[0] | {"source": 'state["exp_avg"] = torch.zeros_like(p)', "function": "step"}]
    for lines in (other, made):
        finding = make.check(RULE, process(make, updates(), lines=lines, name="OwnAdam", step_defined_at=41))[2]
        assert finding.location is None or finding.location.line != 30
        assert "Line" not in finding.fix
        assert finding.fix_code.startswith("for state in optimizer.state.values():")
    plain = make.check(RULE, process(make, updates(), lines=other))[2]
    assert plain.fix_code.startswith("optimizer.state.clear()")


def test_the_example_fits_an_optimizer_of_the_scripts_own(make: Any) -> None:
    own = make.check(RULE, process(make, updates(), name="OwnAdam", step_defined_at=41))[2]
    assert own.fix_code.endswith('state["step"] = 0  # beside that, for each state')
    assert "Line 30 empties them." in own.fix
    guessed = [LINES[0] | {"source": 'stats["var"].zero_()'}]  # by its name alone, which another state may have, too
    own = make.check(RULE, process(make, updates(), lines=guessed, name="OwnAdam", step_defined_at=41))[2]
    assert "Line 30 seems to empty them." in own.fix


def test_what_makes_updates_larger_otherwise(make: Any) -> None:
    def square(at: float, times: float) -> Any:  # one batch whose gradient is so many times as large
        return lambda step: 0.1 * (1 + (times**2 - 1) * 0.001 * 0.999 ** (step - at) * (step >= at)) ** 0.5

    for rows in (
        updates(counted=lambda step: step if step <= AT else step - AT),  # a restart that begins the count anew
        updates(size=lambda step: 0.2),  # emptied, and no update became larger
        updates(square(AT, 40), gradient=lambda step: 4.0 if step == AT else 0.1),  # a bad batch
        updates(gradient=lambda step: 9.0 if step > AT else 0.1),  # gradients became larger still
        updates(lambda step: 0.1 * 0.999 ** (step / 2)),  # gradients that vanished, and came back
    ):
        assert make.check(RULE, process(make, rows))[0] == "passed"
    assert make.check(RULE, process(make, updates(), harm=1.0))[0] == "passed", "the loss did not rise"


def test_what_cannot_be_judged(make: Any) -> None:
    assert make.check(RULE, make.process())[0] == "skipped"
    assert make.check(RULE, process(make, updates(), options=json.dumps({"lr": 0.1, "alpha": 0.99})))[0] == "skipped"
    others = json.dumps([{"betas": [0.9, 0.9]}])
    assert make.check(RULE, process(make, updates(), other_options=others))[0] == "skipped"
    untold = process(make, updates(counted=lambda step: float("nan")))
    status, reason, _ = make.check(RULE, untold)
    assert (status, "on a device" in reason) == ("skipped", True)
