"""Rows that were added to an embedding: which weight the forward looks up, beside a copy or below an adapter."""

from __future__ import annotations

import sys

import pytest

from tests.collectors.conftest import Collect

GROWN = """
import copy
import sys
import torch
from torch import nn
how = sys.argv[1]
torch.manual_seed(0)


class Copies(nn.Module):
    def __init__(self, original, first):
        super().__init__()
        self.original, self.copy = original.requires_grad_(False), copy.deepcopy(original).requires_grad_(True)
        self.first = first

    def forward(self, ids):
        return (self.original if self.first else self.copy)(ids)


class Added(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.low = base.requires_grad_(False), nn.Parameter(torch.zeros(26, 8))

    def forward(self, ids):
        return self.base(ids) + self.low[ids]


class Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.drop = inner, nn.Dropout(0.1)

    def forward(self, ids):
        return self.drop(self.inner(ids))


class Words(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words, self.mix, self.head = words, nn.Linear(8, 8), nn.Linear(8, 26)

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.words(ids))))


words = nn.Embedding(20, 8)
words.weight = nn.Parameter(torch.cat([words.weight.detach(), torch.randn(6, 8)]))
words = {
    "plain": lambda: words.requires_grad_(False),
    "copy": lambda: Copies(words, first=False),
    "original": lambda: Copies(words, first=True),
    "added": lambda: Twice(Added(words)),
}[how.removeprefix("compiled ")]()
model = Words(words)
if how.startswith("compiled"):
    model.compile(backend="eager")
optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
for _ in range(40):
    ids = torch.randint(0, 26, (8, 5))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("how", "looked_up"),
    [
        ("plain", {"words.weight": True}),
        ("copy", {"words.original.weight": False, "words.copy.weight": True}),
        ("original", {"words.original.weight": True, "words.copy.weight": False}),
        ("added", {"words.inner.base.weight": False}),
        ("compiled plain", {"words.weight": None}),
    ],
)
def test_which_rows_the_forward_looks_up(how: str, looked_up: dict[str, bool | None], collect: Collect) -> None:
    (process,) = collect(sys.executable, "-c", GROWN, how).run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    last = {row["parameter"]: row for row in process.tables["new_rows"].records()}
    assert {name: row["looked_up"] for name, row in last.items()} == looked_up
    trained = last.get("words.copy.weight")
    assert trained is None or (trained["unchanged"] > 0) == (how == "original")


BETWEEN = """
import sys
import torch
from torch import nn
held = sys.argv[1] == "held"
torch.manual_seed(0)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 26)

    def forward(self, ids):
        return self.head(self.words(ids))


def train(model, words):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        ids = torch.randint(0, words, (8, 5))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()


model = Words()
train(model, 20)
larger = nn.Embedding(26, 8)
with torch.no_grad():
    larger.weight.copy_(torch.cat([model.words.weight, model.words.weight.mean(0, keepdim=True).expand(6, -1)]))
model.words = larger
keep = torch.ones(26, 1)
if held:
    keep[20:] = 0
larger.weight.register_hook(lambda grad: grad * keep)
train(model, 26)
"""


@pytest.mark.parametrize("how", ["held", "trained"])
def test_rows_that_are_added_between_two_trainings_of_all_rows(how: str, collect: Collect) -> None:
    """The first step of the second training changes the rows by which the new embedding is recognised."""
    (process,) = collect(sys.executable, "-c", BETWEEN, how).run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    last = list(process.tables["new_rows"].records())[-1]
    assert (last["parameter"], last["before"], last["rows"], last["used"]) == ("words.weight", 20, 26, 6)
    assert last["looked_up"] is True
    assert last["unchanged"] == (6 if how == "held" else 0)
