"""The statement that computes the loss of a backward, read from the recorded lines above it."""

from __future__ import annotations

import pytest

from tracelyze.analyzers.evidence.loss import statement

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
    found = statement.of(process, process.location("backward"))
    assert (None if found is None else found.line - 10) == expected
