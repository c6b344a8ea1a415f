"""Backwards that keep their graph and run through that of an earlier step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracelyze.collectors.signals.gradients.earlier_graphs import EarlierGraphs  # noqa: E402


class Recurrent(torch.nn.Module):
    """Keeps its state from call to call, as a tuple or as a tensor."""

    def __init__(self, several: bool, detach: bool) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(2, 3)
        self.several, self.detach = several, detach
        self.history: list[float] = []
        self.hidden: Any = (torch.zeros(1, 3),) if several else torch.zeros(1, 3)

    def forward(self, x: Any) -> Any:
        hidden = self.hidden[0] if self.several else self.hidden
        hidden = self.cell(x, hidden.detach() if self.detach else hidden)
        self.hidden = (hidden,) if self.several else hidden
        return hidden.sum()


def looked(model: Any, loss_of: Any, backwards: int = 1) -> list[tuple[str, str, float]]:
    """The events of five steps, each with so many backwards of one graph."""
    events: list[tuple[str, str, float]] = []
    context = SimpleNamespace(
        torch=torch,
        progress=SimpleNamespace(steps=0),
        program=SimpleNamespace(calls=SimpleNamespace(modules=lambda: [(0, model)])),
        record_event=lambda _kind, name, text, value=0.0: events.append((name, text, value)),
    )
    graphs = EarlierGraphs(context)
    for step in range(5):
        context.progress.steps = step
        loss = loss_of()
        for _ in range(backwards):
            if not graphs.done:
                graphs.look((loss,))
            loss.backward(retain_graph=True)
    return events


@pytest.mark.parametrize("several", [True, False])
def test_the_attribute_that_leads_to_the_step_before(several: bool) -> None:
    model = Recurrent(several, detach=False)
    assert looked(model, lambda: model(torch.ones(1, 2))) == [("hidden", "step before", float(several))]
    inside = torch.nn.Sequential(Recurrent(several, detach=False))
    assert looked(inside, lambda: inside(torch.ones(1, 2))) == [("0.hidden", "step before", float(several))]


def test_a_state_of_the_script_has_no_name() -> None:
    cell, state = torch.nn.GRUCell(2, 3), [torch.zeros(1, 3)]

    def loss() -> Any:
        state[0] = cell(torch.ones(1, 2), state[0])
        return state[0].sum()

    assert looked(cell, loss) == [("", "step before", 0.0)]


def test_graphs_of_their_own_step_alone() -> None:
    model = Recurrent(several=False, detach=True)
    assert looked(model, lambda: model(torch.ones(1, 2))) == []
    assert looked(model, lambda: model(torch.ones(1, 2)), backwards=2) == [], "two backwards of one graph"


def test_what_was_made_once() -> None:
    layer = torch.nn.Linear(2, 2)
    features = layer(torch.ones(1, 2)).tanh()
    head = torch.nn.Linear(2, 1)
    assert looked(head, lambda: head(features).sum()) == [("", "once", 0.0)]
