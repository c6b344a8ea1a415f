"""Graphs that pile up in validation passes alone, and the line there that keeps them."""

from __future__ import annotations

from typing import Any

import pytest

STEPS, EVERY, PASS = 200, 20, 12

EVALUATION = """\
def run_dev():
    model.eval()
    loss, right = 0, 0
    for x, y in dev_set:
        pred = model(x)
        loss += criterion(pred, y)
        right += (pred.argmax(1) == y).sum().item()
    model.train()
    {last}
    return right / len(dev_set)"""


def process(make: Any, text: str, each: int = PASS, **evals: Any) -> Any:
    steps = make.steps(STEPS) | {
        "live_graphs": [1.0 + each * (step // EVERY) for step in range(STEPS)],
        "model_calls": [1.0] * STEPS,
    }
    count = STEPS // EVERY - 1
    columns = {"forwards": [PASS] * count, "grad_mode": [2] * count, "site": [5] * count} | evals
    lines = text.split("\n")
    at = next(index for index, line in enumerate(lines) if "model(x)" in line)
    place = {"file": "train.py", "function": "run_dev", "excerpt_line": 1, "excerpt": text}
    called = {"site": 5, "role": "forward", "line": at + 1, "source": lines[at].strip(), **place}
    loop = "for x, y in loader:\n    loss = criterion(model(x), y)\n    losses.append(loss)\n    loss.backward()"
    trains = {"file": "train.py", "function": "train", "excerpt_line": 50, "excerpt": loop}
    sites = [
        called,
        {"site": 1, "role": "backward", "line": 53, "source": "loss.backward()", **trains},
        {"site": 2, "role": "training-call", "line": 51, "source": "loss = criterion(model(x), y)", **trains},
    ]
    return make.process(steps, sites=sites, evals=make.evals(count, EVERY) | columns)


@pytest.mark.parametrize(
    ("last", "line", "instead"),
    [
        ("curve.append(loss / len(dev_set))", 9, "curve.append((loss / len(dev_set)).detach())"),
        ("self.total += loss", 9, "self.total += loss.detach()"),
        ("curve.append((loss, right))", 9, "curve.append((loss.detach(), right))"),
        ("curve.append(loss.item())", 5, "with torch.no_grad():\npred = model(x)"),
        ("self.last = loss", 5, "with torch.no_grad():\npred = model(x)"),  # it takes the place of the one before
        ("meter.update(loss)", 5, "with torch.no_grad():\npred = model(x)"),
    ],
)
def test_the_line_that_keeps_what_a_pass_computed(make: Any, last: str, line: int, instead: str) -> None:
    finding = make.check("memory-leak", process(make, EVALUATION.format(last=last)))[2]
    assert finding is not None
    assert "pile up in validation alone" in finding.summary
    assert f"{PASS} in each pass" in finding.summary
    assert "losses.append" not in finding.summary, "what the training loop stores is not to blame"
    assert (finding.location.line, finding.location.function) == (line, "run_dev")
    assert "\n".join(text.strip() for text in finding.diff.added) == instead


def test_what_a_function_hands_back_with_its_graph(make: Any) -> None:
    text = EVALUATION.format(last="print(loss)").replace("return right / len(dev_set)", "return loss / len(dev_set)")
    finding = make.check("memory-leak", process(make, text))[2]
    assert "Line 10 hands back" in finding.summary
    assert finding.diff.added == ["    return (loss / len(dev_set)).detach()"]


def test_a_list_that_ends_with_the_function_keeps_nothing(make: Any) -> None:
    text = EVALUATION.format(last="seen.append(loss)").replace("loss, right = 0, 0", "loss, right, seen = 0, 0, []")
    finding = make.check("memory-leak", process(make, text))[2]
    assert finding.location.line == 5


def test_graphs_that_the_training_keeps(make: Any) -> None:
    """A loop that keeps its last loss of each epoch beside a validation with autograd on; or one without autograd."""
    text = EVALUATION.format(last="curve.append(loss)")
    few = make.check("memory-leak", process(make, text, each=1))[2]
    without = make.check("memory-leak", process(make, text, grad_mode=[0] * (STEPS // EVERY - 1)))[2]
    assert few is None or "in validation" not in few.summary
    assert "in validation" not in without.summary
