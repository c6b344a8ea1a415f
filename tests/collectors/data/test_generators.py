"""Where generators of random numbers are found that a dataset draws from."""

from __future__ import annotations

import random
import types
from typing import Any, ClassVar

import numpy as np
import pytest

from tracelyze.collectors.program.fetches import generators

of_module = np.random.RandomState(1)


class OnClass:
    rng: ClassVar[Any] = random.Random(1)


class Inherits(OnClass):
    pass


class Held:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)


class Holder:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


def of_another_module() -> Any:
    other = types.ModuleType("other")
    exec("def augment(x): return rng.random() + x", other.__dict__)
    other.rng = random.Random(2)  # type: ignore[attr-defined]
    return Holder(other.augment), other.rng  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "make",
    [
        lambda: (Inherits(), OnClass.rng),
        lambda: (Holder([Inherits()]), OnClass.rng),
        lambda: (Holder(Holder(one := Held())), one.rng),
        of_another_module,
        lambda: (Holder(3), of_module),
    ],
)
def test_a_generator_is_found(make: Any) -> None:
    dataset, generator = make()
    assert any(one is generator for one in generators(dataset))


def test_what_draws_nothing_has_none() -> None:
    assert generators([1, 2, 3]) == generators({"a": np.zeros(3)}) == []
