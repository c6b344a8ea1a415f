"""corrupted-copy: inputs that change while autograd needs them, and buffers that may be filled again."""

from __future__ import annotations

from typing import Any

RULE = "corrupted-copy"


def seen(make: Any, looks: int, changed: int, saved: int) -> Any:
    """A run in which the last steps that were looked at are those in which an input changed."""
    place = {"module": "Net", "argument": "0"}
    rows = [
        place | {"step": looks - changed + n, "shape": "8x3", "dtype": "float32", "share": 1.0}
        | {"looks": looks - changed + n + 1, "changed": n + 1, "saved": min(n + 1, saved)}
        for n in range(changed)
    ]  # fmt: skip
    rows.append(place | {"step": 400, "looks": looks, "changed": changed, "saved": saved})
    rows.append({"module": "Loss", "argument": "1", "step": 400, "looks": looks, "changed": 0, "saved": 0})
    return make.process(more={"inputs_in_use": rows})


def test_inputs_that_change_while_autograd_needs_them(make: Any) -> None:
    status, _, finding = make.check(RULE, seen(make, 40, 40, 30))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "certain")
    assert "in 40 of 40 steps" in finding.title
    assert finding.first_step == 1
    _, _, finding = make.check(RULE, seen(make, 40, 2, 2))
    assert (finding.severity, finding.confidence) == ("critical", "likely")
    _, _, finding = make.check(RULE, seen(make, 400, 3, 3))
    assert (finding.severity, finding.first_step) == ("warning", 1)
    _, _, finding = make.check(RULE, seen(make, 40, 20, 20))
    assert finding.first_step == 21, "twenty steps before were sound"


def test_buffers_that_may_be_filled_again(make: Any) -> None:
    assert make.check(RULE, seen(make, 40, 0, 0))[0] == "passed"
    assert make.check(RULE, seen(make, 40, 40, 0))[0] == "passed", "the model made numbers of its own of them"
    assert make.check(RULE, seen(make, 40, 1, 1))[0] == "passed", "once"


def test_without_inputs(make: Any) -> None:
    assert make.check(RULE, make.process())[0] == "skipped"
