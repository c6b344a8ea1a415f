"""eval-in-train-mode under a `train()` of the script's own that does not hand its mode on."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.script.modes import own_train
from tracelyze.diagnosis import Location


def judged(
    make: Any,
    call: str,
    evaluates: tuple[str, int] = ("validate", 41),
    step: str = "opt.step()",
    inside: str = "validate",
) -> Any:
    text = f"    def train(self, on=True):\n        {call}\n        self.stem.eval()"
    sites = [
        {"role": "train-mode", "line": 9, "function": "train", "source": call, "excerpt_line": 8, "excerpt": text},
        {"role": "train-mode", "line": 30, "function": "main", "source": "net.train()"},
        {"role": "eval-mode", "line": 10, "function": "train", "source": "self.stem.eval()"},
        {"role": "eval-mode", "line": evaluates[1], "function": evaluates[0], "source": "net.eval()"},
        {"role": "step", "line": 33, "function": "main", "source": step},
    ]
    sites = [one | {"site": number, "file": "a.py"} for number, one in enumerate(sites)]
    return own_train.of(make.process(sites=sites), Location("a.py", 43, inside, "out = net(x)"))


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("super().train()", "super().train(on)"),
        ("super(Net, self).train(True)", "super(Net, self).train(on)"),
        ("nn.Module.train(self)", "nn.Module.train(self, on)"),
    ],
)
def test_the_mode_is_handed_on(make: Any, call: str, code: str) -> None:
    found = judged(make, call)
    assert (found.place.line, found.code, found.diff.added) == (9, code, [f"        {code}"])
    assert "whatever on is" in found.fix


@pytest.mark.parametrize("call", ["super().train(on)", "super().train(mode=on)", "self.stem.train(False)"])
def test_a_mode_that_is_handed_on(make: Any, call: str) -> None:
    assert judged(make, call) is None


def test_without_eval_the_call_of_it_is_missing(make: Any) -> None:
    assert judged(make, "super().train()", ("validate", 50)) is None, "below the model's call"
    assert judged(make, "super().train()", ("other", 41)) is None
    assert judged(make, "super().train()", ("other", 41), "trainer.fit(task)") is not None, "a framework calls it"


def test_a_comprehension_is_in_the_function_of_the_eval_right_above(make: Any) -> None:
    assert judged(make, "super().train()", inside="<genexpr>") is not None
    assert judged(make, "super().train()", ("other", 20), inside="<genexpr>") is None
