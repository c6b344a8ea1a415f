"""What the script calls a model, as the line that calls it reads."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from tracelyze.collectors.program.lines.caller import name_of_called

teacher = partial(name_of_called)


class _Trainer:
    def __init__(self) -> None:
        self.parts = SimpleNamespace(student=teacher)

    def step(self) -> str | None:
        return self.parts.student()


def _evaluate(model: Any) -> Any:
    return model()


def _each(*models: Any) -> Any:
    return [model() for model in models] + [models[0]()]


def test_the_variable_or_attribute_that_is_called() -> None:
    assert teacher() == "teacher"
    assert (3, [teacher()], 4)[1] == ["teacher"]
    assert _Trainer().step() == "self.parts.student"


def test_a_parameter_stands_for_any_model() -> None:
    assert _evaluate(teacher) is None


def test_what_is_no_name() -> None:
    assert _each(teacher)[-1] is None
    assert [teacher][0]() is None
