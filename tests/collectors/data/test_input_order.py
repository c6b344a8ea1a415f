"""Whether the inputs of a loop without a loader come in the same order, pass after pass."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.collectors.conftest import Collect  # noqa: E402
from tracelyze.collectors.program.consumed.input_order import InputOrder, Order  # noqa: E402
from tracelyze.collectors.program.progress import Progress  # noqa: E402


def order_of(inputs: list[Any]) -> Order:
    progress = Progress()
    seen = InputOrder(torch, progress)
    for given in inputs:
        seen.called(given)
        seen.called(torch.rand(3))  # a second call of the step
        progress.steps += 1
    return seen.found()


def test_periods() -> None:
    rows = torch.rand(60, 5)
    order = torch.randperm(60)
    repeated = [rows[at] for _ in range(4) for at in order.split(7)]
    assert order_of(repeated)[:4] == (36, 9, 4, 9)
    assert order_of([torch.rand(7, 5), *repeated, rows[:7]][:-1])[1:4] == (9, 4, 9), "a step before, of something else"
    assert order_of(repeated[:-3])[1:4] == (9, 3, 9), "ended within a pass"
    assert order_of(repeated[:20]).period == 0, "two passes and a bit"
    assert order_of([rows[at] for _ in range(4) for at in torch.randperm(60).split(7)]).period == 0
    assert order_of([rows] * 9)[1:4] == (1, 9, 1), "one batch"
    slices = order_of([part for _ in range(4) for part in rows.split(6)])
    assert (slices.period, slices.adjoining > 0.8) == (10, True)


@pytest.mark.parametrize(
    "given",
    [torch.rand(4, 6).t(), torch.rand(4, 6).to_sparse(), torch.empty(0), torch.rand(2, device="meta"), "a text", None],
)
def test_inputs_that_cannot_be_read(given: Any) -> None:
    assert order_of([given] * 40).period == 0


def test_within_a_transform_of_torch() -> None:
    seen = []

    def loss(x: Any) -> Any:
        seen.append(order_of([x] * 12).period)
        return x.square().mean()

    torch.func.grad(loss)(torch.rand(40))
    assert seen == [0]


@pytest.mark.parametrize("given", [torch.tensor(3), torch.zeros(1, 1), torch.arange(3)])
def test_inputs_of_a_few_bytes(given: Any) -> None:
    assert order_of([given.clone() for _ in range(12)]).distinct == 1


LOOP = """
import sys
import torch
from torch import nn
x = torch.randn(320, 6)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
order = torch.randperm(320)
for epoch in range(12):
    if sys.argv[1] == "anew":
        order = torch.randperm(320)
    for rows in order.split(16):
        loss = model(x[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        model(x)
"""


@pytest.mark.parametrize(("kind", "period"), [("once", 20), ("anew", 0)])
def test_steps_that_are_skipped_are_seen(kind: str, period: int, collect: Collect) -> None:
    done = collect(sys.executable, "-c", LOOP, kind)
    (process,) = done.run.processes
    (event,) = [row for row in process.events.records() if row["kind"] == "input-order"]
    seen = json.loads(event["text"])
    assert (seen["steps"], seen["period"]) == (240, period)
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
