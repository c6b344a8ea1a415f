"""Measures that several rules ask for, computed when the first one does."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar


class Measured(Protocol):
    """A process or an optimization. `measures`: what was measured of it, by the name of the measure."""

    @property
    def measures(self) -> dict[str, Any]: ...


Of = TypeVar("Of", bound=Measured)
Answer = TypeVar("Answer")


def measured_once(measure: Callable[[Of], Answer]) -> Callable[[Of], Answer]:
    """`measure`, whose answer is kept until the process forgets its tables. Whoever gets it must not change it."""
    name = f"{measure.__module__}.{measure.__qualname__}"

    @wraps(measure)
    def kept(of: Of) -> Answer:
        if name not in of.measures:
            of.measures[name] = measure(of)
        answer: Answer = of.measures[name]
        return answer

    return kept
