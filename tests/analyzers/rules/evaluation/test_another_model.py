"""A validation whose eval() is that of another model than the one that it calls."""

from __future__ import annotations

from typing import Any

import pytest

VALIDATE = """
def validate(ema, loader):
    {mode}
    for x, y in loader:
        {call}
"""


def finding(make: Any, mode: str, call: str, trained: bool = False, more: tuple[dict[str, Any], ...] = ()) -> Any:
    text = VALIDATE.format(mode=mode, call=call).strip()
    lines = text.split("\n")
    at = {"file": "train.py", "function": "validate", "excerpt": text, "excerpt_line": 1}
    last = len(lines)
    eval_line = next(number for number, line in enumerate(lines, 1) if ".eval()" in line)
    sites = [
        at | {"site": 3, "role": "forward", "line": last, "source": lines[-1].strip()},
        at | {"site": 4, "role": "eval-mode", "line": eval_line, "source": lines[eval_line - 1].strip()},
        *more,
    ]
    columns = {"model_in_train": [True] * 4, "modules_in_train": [3] * 4, "modules": ["Dropout x3"] * 4}
    columns |= {"site": [3] * 4, "trained": [trained] * 4, "dropouts": [9] * 4, "model": [0 if trained else 1] * 4}
    models = [{"model": n, "name": "Net", "parameters": 8, "elements": 500, "sensitive": "Dropout"} for n in (0, 1)]
    links = {"links": [{"time": 0.1, "step": 1, "optimizer": 0, "model": 0}]}
    process = make.process(evals=dict(make.evals()) | columns, sites=sites, models=models, more=links)
    return make.check("eval-in-train-mode", process)[2]


@pytest.mark.parametrize("call", ["out = ema(x)", "total += loss_fn(ema(x), y).item()", "out = self.ema.module(x)"])
def test_the_model_that_is_evaluated_is_not_the_one_in_eval_mode(make: Any, call: str) -> None:
    found = finding(make, "model.eval()", call)
    called = "self.ema.module" if "self" in call else "ema"
    assert found.fix == (
        f"Line 2 puts model into eval mode, but line 4 calls {called}, which stays in train mode: call {called}.eval() "
        "as well."
    )
    assert found.fix_code == f"{called}.eval()  # below line 2"
    assert found.location.line == 2


def test_a_model_that_is_trained_goes_back_into_train_mode(make: Any) -> None:
    assert "and ema.train() before training continues." in finding(make, "model.eval()", "out = ema(x)", True).fix


@pytest.mark.parametrize(
    ("mode", "call"),
    [
        ("ema.eval()", "out = ema(x)"),
        ("self.eval()", "out = self.net(x)"),
        ("model.eval()", "out = outputs_of(model, x)"),
        ("model.eval()", "out = step(x)"),  # which calls the model in its turn
        ("model.eval()", "out = one(x) + other(x)"),
        ("if quick:\n        model.eval()", "out = ema(x)"),
    ],
)
def test_what_may_be_the_same_model_is_not_told_apart(make: Any, mode: str, call: str) -> None:
    inside = {"site": 9, "role": "loss", "file": "train.py", "line": 40, "function": "step", "source": "y = model(x)"}
    assert "stays in train mode" not in finding(make, mode, call, more=(inside,)).fix


PHASES = """
def fit(model, loaders):
    model.train()
    for phase in ("train", "val"):
        for x, y in loaders[phase]:
            {switch}
                # both phases
                out = {called}(x)
                loss = loss_of(out, y)
"""


@pytest.mark.parametrize(
    ("switch", "called", "more", "call"),
    [
        ('with torch.set_grad_enabled(phase == "train"):', "model", (), 'model.train(phase == "train")'),
        ("with torch.set_grad_enabled(training):  # or not", "self.net", (), "self.net.train(training)"),
        ("with torch.set_grad_enabled(True):", "model", (), ""),
        ("with torch.no_grad():", "model", (), ""),
        ("if phase:", "model", (), ""),
        ("with torch.set_grad_enabled(training):", "model", ("eval-mode",), ""),  # a part of the model, perhaps
    ],
)
def test_a_condition_that_switches_gradients_switches_the_mode_too(make: Any, switch, called, more, call) -> None:
    text = PHASES.format(switch=switch, called=called).strip()
    at = {"file": "train.py", "function": "fit", "excerpt": text, "excerpt_line": 1, "line": 7}
    sites = [
        at | {"site": number, "role": role, "source": text.split("\n")[6].strip()}
        for number, role in enumerate(("forward", "training-call"), 3)
    ]
    sites += [at | {"site": 9, "role": role, "line": 2, "source": "model.backbone.eval()"} for role in more]
    columns = {"model_in_train": [True] * 4, "modules_in_train": [3] * 4, "modules": ["Dropout x3"] * 4}
    columns |= {"site": [3] * 4, "trained": [True] * 4, "dropouts": [9] * 4, "model": [0] * 4}
    found = make.check("eval-in-train-mode", make.process(evals=dict(make.evals()) | columns, sites=sites))[2]
    assert (found.diff.added if found.diff else None) == ([f"{' ' * 12}{call}"] if call else None)
    if call:
        assert (found.location.line, found.diff.line, found.seen_at.line) == (5, 5, 7)
        assert found.fix == f"Line 5 turns gradients on in training only: set the mode by it, too, with {call}."
