"""A validation without eval(), where training itself switches back to train mode: one call is missing."""

from __future__ import annotations

from typing import Any

import pytest

STEP = """\
def train_step(engine, batch):
    model.train()
    x, y = batch
    loss = criterion(model(x), y)

def validate_step(engine, batch):
    images = batch[0]
    out = model(images)
"""
EPOCHS = """\
def main():
    for epoch in range(4):
        model.train()
        for x, y in loader:
            loss = criterion(model(x), y)
        score(model)

def score(net):
    total = 0
    for x, y in held_out:
        out = net(x)
"""
BLOCK = STEP.replace(
    "    images = batch[0]\n    out = model(images)", "    with torch.no_grad():\n        out = model(batch[0])"
)
LOOP = EPOCHS.replace("    total = 0\n", "")
ONCE = EPOCHS.replace("        model.train()\n", "").replace("    for epoch", "    model.train()\n    for epoch")


def finding(make: Any, text: str, planned: int | None = 4, models: int = 1) -> Any:
    lines = text.split("\n")

    def row(site: int, role: str, said: str) -> dict[str, Any]:
        at = next((number for number, line in enumerate(lines, 1) if said in line), 0)
        heads = [(number, line) for number, line in enumerate(lines[:at], 1) if line.startswith("def ")]
        first, head = heads[-1] if heads else (1, "def f(")
        after = [number for number, line in enumerate(lines, 1) if number > first and line.startswith("def ")]
        own = "\n".join(lines[first - 1 : (after[0] if after else len(lines) + 1) - 1])
        place = {"file": "train.py", "function": head[4:].partition("(")[0], "excerpt": own, "excerpt_line": first}
        return place | {"site": site, "role": role, "line": at, "source": lines[at - 1].strip()}

    sites = [row(2, "training-call", "loss ="), row(3, "forward", "out ="), row(4, "train-mode", ".train()")]
    begins = next(said for said in ("images =", "total =", "with torch", "for x, y in held_out") if said in text)
    sites.append(row(5, "evaluation", begins))
    sites += [row(6, "epochs", "for epoch")] * ("for epoch" in text)
    columns = {"model_in_train": [True] * 4, "modules_in_train": [3] * 4, "modules": ["Dropout x3"] * 4}
    columns |= {"site": [3] * 4, "trained": [True] * 4, "dropouts": [9] * 4, "model": [i % models for i in range(4)]}
    events = [{"time": 0.0, "step": 0, "kind": "epochs-planned", "text": "main", "value": planned}] if planned else []
    process = make.process(evals=dict(make.evals()) | columns, sites=sites, more={"events": events})
    return make.check("eval-in-train-mode", process)[2]


@pytest.mark.parametrize(
    ("text", "at", "added"),
    [
        (STEP, 7, "    model.eval()"),
        (BLOCK, 7, "    model.eval()"),
        (EPOCHS, 9, "    net.eval()"),
        (LOOP, 9, "    net.eval()"),
    ],
)
def test_the_call_that_is_missing_is_put_above_the_validation(make: Any, text: str, at: int, added: str) -> None:
    found = finding(make, text)
    assert (found.diff.line, found.diff.removed, found.diff.added) == (at, [], [added])
    assert found.location.line == at
    assert "calls model.train() before training goes on." in found.fix


@pytest.mark.parametrize(
    ("text", "planned", "models"),
    [
        (ONCE, 4, 1),  # nothing would put the model back into train mode
        (EPOCHS, 3, 1),  # validations are more frequent than epochs
        (EPOCHS, None, 1),
        (EPOCHS, 4, 2),  # another model is evaluated as well
        (EPOCHS.replace("        model.train()", "        if warm:\n            model.train()"), 4, 1),
        (EPOCHS.replace("total = 0", "total = 0\n    net = make()"), 4, 1),  # which is not there above this line
    ],
)
def test_both_calls_are_shown_where_one_may_not_do(make: Any, text: str, planned: int | None, models: int) -> None:
    found = finding(make, text, planned, models)
    assert found.diff is None
    assert "model.train() before training continues" in found.fix


@pytest.mark.parametrize(
    ("called", "shown"),
    [("self.model", "self.model"), ("self.predict", "model"), ("self.net.encode", "model"), ("net", "model")],
)
def test_where_nothing_switches_back_the_attribute_that_is_called_has_its_name(make: Any, called: str, shown: str):
    """A trainer's own evaluate() calls `self.model(...)`; a method, such as `self.predict`, has no eval()."""
    found = finding(make, EPOCHS.replace("        model.train()\n", "").replace("out = net(x)", f"out = {called}(x)"))
    assert found.diff is None
    assert found.fix.startswith(f"Call {shown}.eval() before each validation and {shown}.train() before")
    assert f"\n{shown}.eval()  # right before" in f"\n{found.fix_code}"
