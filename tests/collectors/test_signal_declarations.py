"""What a class of signals has to declare, and what the whole list of them must not do. No program is run."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracelyze
from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.signals import SIGNALS
from tracelyze.collectors.signals.events import EVENTS, STEP_EVENTS, Events
from tracelyze.collectors.signals.signal import Signal

BESIDE_DISPATCH = {"every_second"}  # which a thread of its own calls (recording/sampling.py)


def define(**members: Any) -> type[Signal]:
    return type("Example", (Signal,), {"name": "example", "columns": (), **members})


def fill(self: Signal, tracked: Any, row: dict[str, Any]) -> None:
    row["lr"] = 0.1


def test_a_misspelt_event_is_an_error_that_names_the_event() -> None:
    with pytest.raises(TypeError, match=r"Example\.after_steps is no event of a training: did you mean after_step\?"):
        define(after_steps=fill)
    with pytest.raises(TypeError, match=r"Example\.measure is no event.*underscore"):
        define(measure=fill)
    define(_measure=fill)


def test_a_signal_that_listens_to_steps_says_what_becomes_of_its_columns_when_they_are_skipped() -> None:
    for event in STEP_EVENTS:
        with pytest.raises(TypeError, match=f"Example listens to {event}: declare what becomes of its columns"):
            define(**{event: fill})
    define(after_step=fill, copied_columns=())
    define(after_step=fill, fast_columns=("lr",))
    parent = define(after_step=fill, needs_every_step=True)
    type("Derived", (parent,), {"name": "derived"})
    define(every_second=fill)


def given(method: Any) -> list[str]:
    """The names of what a method takes, without self."""
    return list(inspect.signature(method).parameters)[1:]


def fired() -> Iterator[tuple[str, int, str]]:
    """Each place in the package that fires an event: which one, how much it gives, and where."""
    package = Path(tracelyze.__file__).parent
    for room in ("collectors", "integrations"):
        for file in sorted((package / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                if named and node.func.attr in ("fire", "dispatch") and isinstance(node.args[0], ast.Constant):
                    assert not any(isinstance(one, ast.Starred) for one in node.args), f"{file}:{node.lineno}"
                    yield node.args[0].value, len(node.args) - 1, f"{file}:{node.lineno}"


@pytest.mark.parametrize("event", EVENTS)
def test_every_signal_accepts_what_an_event_gives(event: str) -> None:
    declared = given(getattr(Events, event))
    for kind in SIGNALS:
        method = getattr(kind, event, None)
        if method is not None:
            inspect.signature(method).bind(None, *declared)
            assert given(method) == declared, f"{kind.__name__}.{event}: the parameters of events.Events.{event}"


def test_every_event_is_fired_with_what_it_declares() -> None:
    places = list(fired())
    assert {event for event, _, _ in places} | BESIDE_DISPATCH == set(EVENTS)
    for event, count, place in places:
        assert count == len(given(getattr(Events, event))), f"{place} fires {event}"


def always_in_the_way(kind: type[Signal]) -> list[str]:
    """Events of steps to which a signal listens all the time, though it can do without no step."""
    seldom = (*kind.pausable, *kind.inactive)
    return [event for event in STEP_EVENTS if kind.needs_every_step and hasattr(kind, event) and event not in seldom]


def test_no_signal_that_is_on_by_default_keeps_every_step_from_the_fast_path() -> None:
    asked_for = {"profiler_windows"}  # off without --profile-every, whose steps are slow anyway
    found = {kind.name: events for kind in SIGNALS if (events := always_in_the_way(kind)) and kind.default_on}
    assert set(found) == asked_for, (
        f"in the way of the fast path: {found}. Declare copied_columns or fast_columns (signals/signal.py), or put "
        "these events into pausable or inactive"
    )


def test_what_a_signal_declares_belongs_together() -> None:
    for kind in SIGNALS:
        own = {column.partition(".")[2] for column in kind.columns if column.startswith("steps.")}
        assert {*kind.copied_columns, *kind.fast_columns} <= own, kind.name
        assert set(kind.guard_columns) <= set(kind.copied_columns), kind.name
        assert all(hasattr(kind, event) for event in (*kind.pausable, *kind.inactive)), kind.name
        if kind.fast_columns:
            assert kind.fast_values is not Signal.fast_values, kind.name


def test_a_signal_that_asks_whether_it_may_compute_needs_the_names_for_that() -> None:
    for kind in SIGNALS:
        if "may_compute" in vars(sys.modules[kind.__module__]):
            assert set(UNSEEN) <= set(kind.needs), f"{kind.name}: add private_names.UNSEEN to needs"
