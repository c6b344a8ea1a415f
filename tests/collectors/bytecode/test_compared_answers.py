"""Passes without a loader: does the script compare the answers, and was the model given the same tensor before?"""

from __future__ import annotations

import sys
import textwrap
from typing import Any

import pytest

from tests.collectors.conftest import Collect
from tracelyze.collectors.program.lines import comparisons


class _Caller:
    """Stands where the script calls its model, on line 2 or later."""

    def __init__(self) -> None:
        self.found: Any = None

    def __call__(self, *_: Any) -> Any:
        self.found = comparisons.after(sys._getframe(1))
        return None


def line_of(body: str) -> int | None:
    """The line that `comparisons` finds in a function of these lines, from where it calls its model."""
    net = _Caller()
    source = "def evaluate(net, x, y, loss, mode, accuracy):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")
    names: dict[str, Any] = {}
    exec(compile(source, "<string>", "exec"), names)  # as a script's file is
    try:
        names["evaluate"](net, None, None, None, "a", lambda *_: 0)
    except (TypeError, AttributeError):  # there is no tensor: only the code counts
        pass
    found = net.found if net.found is not None and net.found[0].co_filename == "<string>" else None  # not of this test
    return None if found is None else int(found[1])


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return (net(x).argmax(1) == y).float().mean()", 2),
        ("out = net(x)\nreturn [(out[m] == y[m]).sum() for m in mode]", 3),
        ("out = net(x)\nreturn out.max(1)[1].eq(y).sum()", 3),
        ("out = net(x)\nreturn accuracy(out, y)", 3),
        ("out = net(x)\nreturn ((out - y) ** 2).mean()", 3),
        ("out = net(x)\nreturn (out - y).abs().mean()", 3),
        ("out = net(x)\nwrong = (out.argmax(1) != y).sum()\nreturn wrong", 3),
        # what is no comparison of answers
        ("return net(x).argmax(1)", None),
        ("out = net(x)\nif mode == x:\n    return out", None),
        ("out = net(x)\nif out == 0 or mode == y:\n    return out", None),
        ("out = net(x)\nkept = out == 1\nreturn out", None),
        ("right = x == y\nreturn net(x)", None),
        ("out = net(x)\nloss(x - y).backward()\nreturn (out == y).sum()", None),  # a target of the step itself
        ("out = net(x)\nreturn out - y", None),
        # a loop of its own ends before the backward
        ("for _ in (1,):\n    out = net(x)\n    right = out == y\nloss(y).backward()", 4),
        ("for _ in (1,):\n    out = net(x)\n    right = out == y\n    loss(y).backward()", None),
    ],
)
def test_lines_that_compare(body: str, line: int | None) -> None:
    assert line_of(body) == line


HELD_OUT = """
import sys
import torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
held_out, labels = torch.rand(40, 4), torch.randint(0, 2, (40,))
def evaluate(x):
    with torch.no_grad():
        out = net(x)
    return (out.argmax(1) == labels).sum()
for step in range(30):
    optimizer.zero_grad()
    net(torch.rand(8, 4)).square().mean().backward()
    optimizer.step()
    if step % 10 == 9:
        if how == "twice":
            evaluate(held_out)
        evaluate(held_out.add_(0.1) if how == "changed" else held_out[:] if how == "view" else held_out)
"""


@pytest.mark.parametrize(
    ("how", "same"),
    [("tensor", [0, 1, 1]), ("twice", [0, 0, 1, 1, 1, 1]), ("changed", [0, 0, 0]), ("view", [0, 0, 0])],
)
def test_a_tensor_that_the_model_is_given_again(how: str, same: list[int], collect: Collect) -> None:
    done = collect(sys.executable, "-c", HELD_OUT, how)
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    rows = list(process.evals.records())
    assert [row["same_input"] for row in rows] == same
    assert all(row["compared"] is not None for row in rows)


def test_what_is_evaluated_without_a_loader_is_looked_at(collect: Collect) -> None:
    """The first passes of each number of samples, however rarely batches are looked at by then."""
    done = collect(sys.executable, "-c", HELD_OUT, "tensor")
    (process,) = done.run.processes
    rows = [row for row in process.tables["batches"].records() if not row["trained"]]
    assert [(row["step"], row["shape"], len(row["prints"].split())) for row in rows] == [
        (step, "40x4", 40) for step in (10, 20, 30)
    ]
