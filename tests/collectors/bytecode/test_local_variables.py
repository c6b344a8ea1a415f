"""Variables of functions under way are read, and stay what they are: those of closures, too."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracelyze.collectors.internals.local_variables import borrowed  # noqa: E402
from tracelyze.collectors.program.call_sites import Sites  # noqa: E402
from tracelyze.collectors.program.lines.growing.values import MOST_LOOKS, GrowingValues  # noqa: E402
from tracelyze.collectors.program.loading.timed_lines import TimedLines  # noqa: E402


def made_with(words: dict[int, int]) -> Callable[[list[int]], Any]:
    """A collate_fn that reads a variable of the function around it, and one that an inner function reads."""

    def collate(samples: list[int]) -> Any:
        offset = 1

        def encoded(sample: int) -> int:
            return words[sample] + offset

        return torch.tensor([encoded(sample) for sample in samples])

    return collate


def test_a_collate_fn_keeps_its_closure_when_its_batches_are_timed() -> None:
    words = {number: 2 * number for number in range(8)}
    collate = made_with(words)
    timed = TimedLines(collate)
    for _ in range(6):
        timed.begin()
        assert collate(list(range(8))).tolist() == [2 * number + 1 for number in range(8)]
        timed.end()
    assert timed.lone_rows is not None
    assert collate.__closure__ is not None
    assert [cell.cell_contents for cell in collate.__closure__] == [words]


@pytest.mark.parametrize("event", ["call", "return", "c_call"])
def test_what_a_profile_function_borrows_is_not_unset(event: str) -> None:
    collate = made_with({1: 5})
    read: list[dict[str, Any]] = []

    def profile(frame: FrameType, kind: str, _given: Any) -> None:
        if kind == event and frame.f_code is collate.__code__:
            with borrowed(frame) as variables:
                read.append(dict(variables))

    sys.setprofile(profile)
    try:
        made = [collate([1]).tolist() for _ in range(2)]
    finally:
        sys.setprofile(None)
    assert made == [[6], [6]]
    assert read
    assert all(one["words"] == {1: 5} for one in read)


def test_what_is_borrowed_is_not_kept_alive() -> None:
    class Large:
        pass

    def function() -> tuple[bool, Any]:  # without an assertion, which pytest has read the variables of
        held = Large()
        known = weakref.ref(held)
        with borrowed(sys._getframe()) as variables:
            same = variables.get("held") is held
        del held
        return same, known()

    assert function() == (True, None)


class Model:
    def eval(self) -> Model:
        return self


def with_a_model_that_is_evaluated() -> list[str]:
    model = Model().eval()
    with borrowed(sys._getframe()) as variables:
        return [name for name, value in variables.items() if value is model]


def with_text_that_is_evaluated() -> tuple[list[str], int]:
    number = 3
    with borrowed(sys._getframe()) as variables:
        return list(variables), number + eval("number")


def with_a_copy_of_its_own() -> tuple[list[str], int]:
    number = 3
    own = locals()
    with borrowed(sys._getframe()) as variables:
        names = list(variables)
    return names, number + own["number"]


def test_a_model_that_is_evaluated_hides_no_variables_and_what_reads_them_itself_keeps_them() -> None:
    assert with_a_model_that_is_evaluated() == ["model"]
    assert with_text_that_is_evaluated() == ([], 6)
    assert with_a_copy_of_its_own() == ([], 6)


def test_what_a_look_for_growing_values_has_seen_can_be_deleted() -> None:
    looks = GrowingValues(torch, Sites({}), "keeps", lambda one: 0)

    def train() -> list[Any]:
        alive = []
        for _ in range(MOST_LOOKS):
            made = torch.ones(4)
            known = weakref.ref(made)
            looks.look(sys._getframe(), [])
            del made
            alive.append(known())
        return alive

    assert train() == [None] * MOST_LOOKS
    assert looks.done
