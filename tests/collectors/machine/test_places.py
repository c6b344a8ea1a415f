"""Tensors told apart by where they lie, and by what lies there; and what is asked of a device that captures a graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelyze.collectors.signals.gradients.places import EXACT, Places, different
from tracelyze.collectors.tensors.readback import EventPair, Readback


def counted(contents: list[Any]) -> tuple[int, int]:
    """How many of these tensors differ, each of which goes through a backward of its own, at a place of its own or at
    that of the one before it. And how many there seemed to be."""
    places = Places(torch)
    places.clear(copying=True)
    place, groups = torch.empty_like(contents[0]), []
    for number, one in enumerate(contents):
        if number % 2:
            place.copy_(one)  # raises the version, as memory that is used again for another tensor
        else:
            place = one.clone()
        groups.append(frozenset([places.key(place)]))
    question = places.question()
    assert question is not None
    keys, numbers = question
    return different(groups, dict(zip(keys, numbers.tolist(), strict=True))), different(groups, {})


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 3), min_size=2, max_size=6),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]),
    shape=st.sampled_from([(1,), (5, 3), (40, 9), (2, 3, 8, 8)]),
)
def test_as_many_as_there_are_contents(numbers: list[int], dtype: Any, shape: tuple[int, ...]) -> None:
    if dtype is torch.bool:
        numbers = [one % 2 for one in numbers]
    contents = [torch.full(shape, one).to(dtype) for one in numbers]
    found, seemed = counted(contents)
    assert found == len(set(numbers))
    assert seemed == len(numbers)


def test_one_element_makes_a_difference() -> None:
    first = torch.randn(8, 8)
    other = first.clone()
    other[7, 7] += 1e-6
    assert counted([first, other, first])[0] == 2


def test_what_lives_and_is_not_written_to_is_the_same() -> None:
    places, batch = Places(torch), torch.randn(16, 4)
    assert places.key(batch) == places.key(batch) == places.key(batch[:])
    assert places.key(batch[8:]) != places.key(batch[:8])
    assert not places.certain, "two halves of one shape"
    before = places.key(batch)
    batch.mul_(2)
    assert places.key(batch) != before
    assert places.question() is None, "no copies were kept"


def test_numbers_are_exact_in_what_they_are_read_as() -> None:
    places = Places(torch)
    numbers = places._digests([torch.randn(64, generator=torch.Generator().manual_seed(n)) for n in range(200)])
    assert int(numbers.max()) <= EXACT
    assert numbers.float().long().tolist() == numbers.tolist()
    assert len(set(numbers.tolist())) == 200


class _Event:
    """An event that may not be asked while a graph is captured: on a device that makes the capture fail."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def query(self) -> bool:
        assert not self.cuda.capturing
        return True


def test_no_event_is_asked_while_a_graph_is_captured() -> None:
    cuda = SimpleNamespace(capturing=True)
    cuda.is_current_stream_capturing = lambda: cuda.capturing
    device = SimpleNamespace(cuda=cuda, Tensor=torch.Tensor)
    pair = EventPair(device, _Event(cuda), _Event(cuda), "seconds")
    values = Readback(device, [torch.tensor(1.0)], lambda _row, _values: None)
    values._event = _Event(cuda)
    assert not pair.arrived()
    assert not values.arrived()
    cuda.capturing = False
    assert pair.arrived()
    assert values.arrived()
