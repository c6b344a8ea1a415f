"""Lines that make a value of its predecessor are found in functions, and what only looks like it is not."""

from __future__ import annotations

from textwrap import dedent
from types import CodeType
from typing import Any, NamedTuple

import pytest

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines.growing import own_values
from tracelyze.collectors.program.lines.growing.values import LONG, LOOKS, GrowingValues
from tracelyze.collectors.signals.gradients.live_graphs import LiveGraphs


def code_of(text: str) -> CodeType:
    whole = compile(dedent(text), "train.py", "exec")
    return next(one for one in whole.co_consts if isinstance(one, CodeType))


@pytest.mark.parametrize(
    "line",
    [
        "kept = kept + [loss]",
        "kept += [loss]",
        "kept = [*kept, loss]",
        "kept = loss + kept",
        "kept = 0.9 * kept + 0.1 * loss",
        "kept = torch.cat([kept, out])",
        "kept = {name: total + out[name] for name, total in kept.items()}",
        "kept.extend(out)",
        "kept[epoch].append(loss)",
        "kept.update({step: loss})",
        'kept["loss"] = kept["loss"] + loss',
        'kept["loss"] += loss',
        "kept[step] = loss",
        "kept = (\n            kept + [loss]\n        )",
    ],
)
def test_a_variable_that_is_made_of_itself(line: str) -> None:
    code = code_of(f"def run(kept, loss):\n    for step in range(3):\n        {line}\n        print(kept, loss)\n")
    (found,) = own_values.lines(code, "kept", attribute=False)
    assert 3 <= found <= 4


@pytest.mark.parametrize("line", ["kept = loss", "other = kept + [loss]", "print(kept)", "loss = kept.item()"])
def test_another_value(line: str) -> None:
    code = code_of(f"def run(kept, loss):\n    for step in range(3):\n        {line}\n")
    assert own_values.lines(code, "kept", attribute=False) == []


def test_an_attribute_and_a_loop() -> None:
    code = code_of("""
        def run(self, loss):
            self.total = self.total + 1
            for step in range(3):
                self.total = self.total + loss
                self.other = loss
            self.total = self.total / 3
        """)
    assert own_values.lines(code, "total", attribute=True) == [3, 5, 7]
    assert own_values.lines(code, "total", attribute=True, within=6) == [5]


class Meter:
    def __init__(self) -> None:
        self.total: Any = 0.0
        self.seen: list[Any] = []
        self.latest: Any = None

    def add(self, value: Any) -> None:
        self.total = self.total + value  # the sum

    def show(self) -> None:
        self.latest = self.total


def grown(steps: int, detached: bool, long: bool = True) -> list[str]:
    torch = pytest.importorskip("torch")
    rows: list[dict[str, Any]] = []
    values = GrowingValues(torch, Sites(rows.append), "keeps", lambda one: getattr(one, "grad_fn", None) is not None)
    weight, meter = torch.ones(3, requires_grad=True), Meter()
    for _ in range(steps):
        loss = (weight * 2).sum()
        meter.add(loss.detach() if detached else loss)
        meter.seen = meter.seen + [loss.item() if detached else loss] * (LONG if long else 1)  # the list
        meter.latest = loss
        values.look(None, [meter])
    assert values.done == (steps >= LOOKS and not detached)
    return [row["function"] for row in rows]


def test_values_that_grow_are_told_by_the_line() -> None:
    assert grown(LOOKS, detached=False) == ["add"], "the list is made by a function that was not looked at"


def test_values_that_stay_are_not_told() -> None:
    assert grown(LOOKS, detached=True) == []
    assert grown(LOOKS - 1, detached=False) == []


class Step(NamedTuple):
    action: int
    state: Any


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (lambda kept: kept, 1),
        (lambda kept: (0, kept), 2),
        (lambda kept: [Step(1, kept.detach()), Step(0, kept)], 2),  # an episode
        (lambda kept: {"steps": [Step(0, {"state": kept})]}, 0),  # deeper than is looked
        (lambda kept: [Step(0, kept.detach()) for _ in range(100)], 0),
        (lambda kept: dict.fromkeys(range(100), kept), 0),
        (lambda kept: 3.0, 0),
    ],
)
def test_what_an_entry_of_a_list_holds(entry: Any, found: int) -> None:
    torch = pytest.importorskip("torch")
    signal = object.__new__(LiveGraphs)
    signal.torch = torch
    assert signal._holds_graph(entry(torch.ones(2, requires_grad=True) * 2)) == found
