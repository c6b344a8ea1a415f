"""Lines of the script that matter are recorded once each: those that ran, and those that stand in the loop's text."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tracelyze.collectors.signals.script_lines import lines_of_loop

from .conftest import Collect

SCRIPT = '''
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

def validate(model, loader):
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            out = model(x)  # forward
    model.train()
    return out.mean().item()

model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout(0.1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
train_loader = DataLoader(data, batch_size=8)  # dataloader
other = DataLoader(data,
                   batch_size=32)
total = 0.0
for epoch in range(2):
    for step, (x, y) in enumerate(train_loader):  # loader
        optimizer.zero_grad()  # zero_grad
        loss = torch.nn.functional.cross_entropy(model(x), y)  # loss
        loss.backward()  # backward
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # clip
        optimizer.step()  # step
        total += loss.item()  # read
        if step % 4 == 0:
            print(loss.item())
        for p in model.parameters():
            p.grad.norm().item()
    validate(model, other)
time.sleep(1.5)
'''


def test_every_line_of_a_loop_is_found_once(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = collect(sys.executable, str(script))
    assert done.process.returncode == 0, done.process.stderr
    (process,) = done.run.processes
    sites = [row for row in process.sites.records() if row["role"] != "sampled"]
    assert len({row["site"] for row in sites}) == len(sites)
    marked = {
        (line.rpartition("  # ")[2], number) for number, line in enumerate(SCRIPT.splitlines(), 1) if "  # " in line
    }
    found = {(row["role"], row["line"]) for row in sites}
    assert marked <= found
    assert {row["line"] for row in sites if row["role"] in ("zero_grad", "read", "clip", "step", "backward")} == {
        line for role, line in marked if role in ("zero_grad", "read", "clip", "step", "backward")
    }
    made = {row["site"]: row["line"] for row in sites if row["role"] == "dataloader"}
    by_batch = {row["batch_size"]: made[row["made_at"]] for row in process.loaders.records()}
    assert by_batch[8] == next(line for role, line in marked if role == "dataloader")
    assert by_batch[32] in (by_batch[8] + 1, by_batch[8] + 2)


@pytest.mark.parametrize(
    ("source", "backward", "expected"),
    [
        ("for x in y:\n    o.zero_grad(); l.backward(); o.step()", 2, [("zero_grad", 2, "<module>")]),
        ("def step(x):\n    l.backward()\n    return l.item()\nfor x in y:\n    step(x)", 2, [("read", 3, "step")]),
        ("for x in y:\n    if x:\n        l.backward()\n        l.cpu()\n    else:\n        l.item()", 3,
         [("read", 4, "<module>")]),
        ("for x in y:\n    l.backward()\n    f = lambda: l.item()\n    def g():\n        l.item()", 2, []),
        ("l.backward()\nprint(l.item())", 1, []),
        ("while go:\n    l = (x\n         .mean()\n         .item())\n    l.backward()", 5, [("read", 4, "<module>")]),
        ("class T:\n    def fit(self):\n        for x in y:\n            o.zero_grad()\n            x.backward()", 5,
         [("zero_grad", 4, "fit")]),
    ],
)  # fmt: skip
def test_what_stands_in_a_loop(source: str, backward: int, expected: list[tuple[str, int, str]]) -> None:
    assert lines_of_loop(dedent(source), backward) == expected


def test_what_is_no_python_raises_what_the_signal_expects() -> None:
    with pytest.raises(SyntaxError):
        lines_of_loop("for x in", 1)
