"""Optimizers within whose steps another one steps: which of the two leaves a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tracelyze.collectors.program.optimizers import constructed, wrapping
from tracelyze.collectors.recording.wrapped_steps import WrappedSteps, inner

torch = pytest.importorskip("torch")


class Outer(torch.optim.SGD):
    """An optimizer that has others as attributes."""

    def __init__(self, parameters: Any, **others: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.__dict__.update(others)


@pytest.fixture
def weights() -> Iterator[list[Any]]:
    yield [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]
    wrapping.clear()


def made(optimizer: Any) -> Any:
    constructed.add(optimizer)
    return optimizer


def test_the_step_of_an_outer_optimizer_leaves_no_row(weights: list[Any]) -> None:
    steps, fast = WrappedSteps(), made(torch.optim.SGD(weights, lr=0.1))
    outer = made(Outer(weights, fast=fast))
    assert inner(outer) is fast
    assert (steps.begins(outer, False), steps.begins(fast, False)) == (True, False)
    assert not steps.ends(fast)
    steps.stepped(fast)
    assert steps.ends(outer)
    assert steps.begins(outer, False), "known by now"
    assert inner(fast) is None


def test_an_optimizer_that_only_knows_another_one_has_its_own_steps(weights: list[Any]) -> None:
    steps, other = WrappedSteps(), made(torch.optim.SGD(weights, lr=0.1))
    outer = made(Outer(weights, copied_from=other))
    assert steps.begins(outer, False)
    assert (steps.ends(outer), steps.waited(outer)) == (False, True)
    assert not steps.begins(outer, True), "it has made a step"


def test_one_that_holds_a_part_does_not_stand_for_the_whole(weights: list[Any]) -> None:
    steps, part = WrappedSteps(), made(torch.optim.SGD(weights[:1], lr=0.1))
    assert not steps.begins(made(Outer(weights, part=part)), False)


def test_a_step_that_raised_is_forgotten(weights: list[Any]) -> None:
    steps, fast = WrappedSteps(), made(torch.optim.SGD(weights, lr=0.1))
    outer = made(Outer(weights, fast=fast))
    assert steps.begins(outer, False)
    steps.stepped(fast)
    assert steps.begins(outer, False), "again, after it raised"
    assert not steps.ends(outer)
