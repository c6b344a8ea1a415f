"""Losses of one optimizer go on where another's ended, or begin again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelyze.analyzers.recorded.continuations import goes_on


def falling(begin: float, end: float, steps: int, noise: float, seed: int) -> np.ndarray:
    scatter = np.random.default_rng(seed).normal(0, noise, steps)
    return end + (begin - end) * np.exp(-4 * np.arange(steps) / steps) + scatter


CURVES = {
    "begin": st.floats(1.0, 100.0),
    "share": st.floats(0.05, 0.6),
    "steps": st.integers(20, 400),
    "seed": st.integers(0, 10_000),
}


@given(**CURVES)
def test_a_loss_that_goes_on_falling_is_one_training(begin: float, share: float, steps: int, seed: int) -> None:
    whole = falling(begin, begin * share, 2 * steps, 0.02 * begin, seed)
    assert goes_on(whole[:steps], whole[:steps], whole[steps:])


@given(**CURVES)
def test_a_loss_that_begins_again_is_another(begin: float, share: float, steps: int, seed: int) -> None:
    first, second = (falling(begin, begin * share, steps, 0.02 * begin, seed + part) for part in range(2))
    assert not goes_on(first, first, second)


def test_what_has_diverged_goes_on_diverged() -> None:
    risen = np.linspace(1.0, 50.0, 40)
    lost = np.full(40, math.nan)
    lost[:30] = np.linspace(1.0, 50.0, 30)
    assert goes_on(risen, risen, np.full(40, 55.0))
    assert not goes_on(risen, risen, np.linspace(1.1, 60.0, 40))
    assert goes_on(lost, lost, np.full(40, math.inf))
    assert not goes_on(lost, lost, risen)


@pytest.mark.parametrize("empty", range(3))
def test_without_losses_nothing_is_said_to_go_on(empty: int) -> None:
    parts = [np.linspace(2.0, 1.0, 10)] * 2 + [np.linspace(1.0, 0.9, 10)]
    assert goes_on(*parts)
    parts[empty] = np.array([])
    assert not goes_on(*parts)
