"""The statement that computes the loss of a backward, read from the recorded lines above it."""

from __future__ import annotations

import pytest

from tracelyze.analyzers.script.loss import assignment, handed_back

PLAIN = ["out = net(x)", "loss = (out - y).square().mean()", "optimizer.zero_grad()", "loss.backward()"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (PLAIN, 1),
        (["loss = task(out, y)", "loss = loss / 4", "loss.backward()"], 0),
        (["total = 0.0", "for part in parts:", "    total += weigh(part)", "total.backward()"], 2),
        (["loss, parts = self.losses(batch)", "self.scaler.scale(loss).backward()"], 0),
        (["loss = task(out, y)", "(loss / steps).backward()"], 0),
        (["self.loss = task(out, y)", "self.loss.backward()"], 0),
        (["loss = task(out, y)", "accelerator.backward(loss)"], 0),
        (["loss = task(out, y)", "def step(self, loss):", "    loss.backward()"], None),
        (["task(out, y).backward()"], None),
        (["if hard:", "    loss = hinge(out, y)", "else:", "    loss = task(out, y)", "loss.backward()"], None),
        (["if hard:", "    loss = hinge(out, y)", "    loss.backward()"], 1),
        (["closs = task(out, y)", "loss.backward()"], None),
    ],
)
def test_the_nearest_assignment(make, lines: list[str], expected: int | None) -> None:
    site = {
        "site": 1, "role": "backward", "file": "train.py", "line": 10 + len(lines) - 1, "function": "train",
        "source": lines[-1].strip(), "excerpt_line": 10, "excerpt": "\n".join(lines),
    }  # fmt: skip
    process = make.process(make.steps(), sites=[site])
    found = assignment.of(process, process.location("backward"))
    assert (None if found is None else found.line - 10) == expected


TRAIN = ["def train(x, y):", "    {call}", "    loss.backward()"]


@pytest.mark.parametrize(
    ("helper", "call", "expected"),
    [
        (["def squared(x, y):", "    return torch.mean((model(x) - y) ** 2)"], "loss = squared(x, y)", 1),
        (["def squared(x, y):", "    out = model(x)", "    return ((out - y) ** 2).mean()"], "loss = squared(x, y)", 2),
        (["def f(x, y):", "    out = model(x)", "    e = (out - y).abs().mean()", "    return e"], "loss = f(x, y)", 2),
        (
            ["def f(x, y):", "    out = model(x)", "    e = (out - y) ** 2", "    return e.mean(), out"],
            "loss, o = f(x, y)",
            3,
        ),
        (["def f(x, y):", "    out = model(x)", "    e = out - y", "    return out, e"], "out, loss = f(x, y)", 2),
        (
            ["def f(x, y):", "    if x:", "        return model(y)", "    return model(x)"],
            "loss = f(x, y)",
            None,
        ),  # which?
        (["def f(x, y):", "    out = model(x)", "    return out"], "loss = (f(x, y) - y).abs().mean()", None),
        (["def f(x, y):", "    out = model(x)", "    return pack(out)"], "loss, out = f(x, y)", None),
        (["def f(x, y):", "    return model(x)"], "loss = g(x, y)", None),  # another function
    ],
)
def test_a_loss_that_a_function_hands_back(make, helper: list[str], call: str, expected: int | None) -> None:
    text = [*helper, "", *(line.format(call=call) for line in TRAIN)]
    row = {"file": "train.py", "excerpt_line": 1, "excerpt": "\n".join(text)}
    models = [number for number, line in enumerate(helper, 1) if "model(" in line]
    sites = [
        row | {"site": 1, "role": "backward", "line": len(text), "function": "train", "source": "loss.backward()"},
        *(
            row | {"site": 1 + at, "role": "training-call", "line": at, "source": text[at - 1].strip()}
            | {"function": helper[0].split()[1].split("(")[0]}
            for at in models
        ),
    ]  # fmt: skip
    process = make.process(make.steps(), sites=sites)
    found = assignment.of(process, process.location("backward"))
    assert found is not None
    inside = handed_back.inside(process, found, "loss")
    assert inside.line - 1 == (len(text) - 2 if expected is None else expected)
