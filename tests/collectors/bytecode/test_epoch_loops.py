"""How many epochs a loop is written for: read off bytecode and variables, without running anything of the program."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tracelyze.collectors.program.lines.loops import epoch_loops

EPOCHS = 7
OPTIONS = argparse.Namespace(epochs=4)
SETTINGS = {"train": {"epochs": 6}}


class Settings:
    epochs = 9

    @property
    def computed(self) -> int:
        raise AssertionError("nothing of the program runs")


def planned() -> int | None:
    loop = epoch_loops.around(sys._getframe(1))
    return loop.planned if loop else None


def by_a_constant() -> Iterator[Any]:
    for _epoch in range(5):
        for _ in range(3):
            yield planned()


def by_a_global() -> Iterator[Any]:
    for _epoch in range(EPOCHS):
        yield planned()


def by_an_option() -> Iterator[Any]:
    for _ep in range(OPTIONS.epochs):
        yield planned()


def by_a_setting() -> Iterator[Any]:
    for _epoch_idx in range(2, SETTINGS["train"]["epochs"]):
        yield planned()


def by_a_class() -> Iterator[Any]:
    for _e in range(Settings.epochs):
        yield planned()


def of_a_closure(count: int = 8) -> Iterator[Any]:
    def inner() -> Iterator[Any]:
        for _epoch in range(count):
            yield planned()

    return inner()


def computed() -> Iterator[Any]:
    for _epoch in range(len(SETTINGS) * 3):
        yield planned()


def by_a_property() -> Iterator[Any]:
    settings = Settings()
    try:
        for _epoch in range(settings.computed):
            pass
    except AssertionError:
        pass
    yield planned()


def of_something_else() -> Iterator[Any]:
    for _fold in range(5):
        yield planned()


def behind_it() -> Iterator[Any]:
    for _epoch in range(5):
        pass
    yield planned()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (by_a_constant, 5),
        (by_a_global, 7),
        (by_an_option, 4),
        (by_a_setting, 4),
        (by_a_class, 9),
        (of_a_closure, 8),
        (computed, 3),
        (by_a_property, None),
        (of_something_else, None),
        (behind_it, None),
    ],
)
def test_epochs_that_a_loop_is_written_for(function: Callable[[], Iterator[Any]], expected: int | None) -> None:
    assert next(function()) == expected


def test_the_line_of_the_loop() -> None:
    def trains() -> Iterator[Any]:
        for _epoch in range(3):
            yield epoch_loops.around(sys._getframe(0))

    assert next(trains()).line == trains.__code__.co_firstlineno + 1


ROWS = list(range(100))


def rounds() -> int | None:
    inner, outer = sys._getframe(1), sys._getframe(2)
    frames = [inner] if epoch_loops.around(inner) else [inner, outer]
    loop = epoch_loops.around(frames[-1])
    return epoch_loops.batches(frames, loop) if loop else None


def in_slices(size: int = 8) -> Iterator[Any]:
    for _epoch in range(5):
        for _begin in range(0, len(ROWS), size):
            yield rounds()


def in_whole_batches(size: int = 8) -> Iterator[Any]:
    for _epoch in range(5):
        for _batch in range(len(ROWS) // size):
            yield rounds()


def in_a_function_of_its_own() -> Iterator[Any]:
    def epoch_of(count: int) -> int | None:
        found = None
        for _begin in range(count):
            found = rounds()
        return found

    for _epoch in range(5):
        yield epoch_of(9)


def over_what_a_call_gives() -> Iterator[Any]:
    for _epoch in range(5):
        for _rows in zip(ROWS, ROWS, strict=True):
            yield rounds()


def in_two_loops() -> Iterator[Any]:
    for _epoch in range(5):
        for _task in range(3):
            for _begin in range(4):
                yield rounds()


def in_none() -> Iterator[Any]:
    for _epoch in range(5):
        yield rounds()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (in_slices, 13),
        (in_whole_batches, 12),
        (in_a_function_of_its_own, 9),
        (over_what_a_call_gives, None),
        (in_two_loops, None),
        (in_none, None),
    ],
)
def test_batches_of_an_epoch_without_a_loader(function: Callable[[], Iterator[Any]], expected: int | None) -> None:
    assert next(function()) == expected
