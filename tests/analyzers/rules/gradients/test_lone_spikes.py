"""Values that tower above all others: two spikes are found, and the short cut past quiet curves misses none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from tracelyze.analyzers import statistics
from tracelyze.analyzers.signatures.spikes import lone_spikes

LIMITS = {"height": 50.0, "gap": 3.0, "sigmas": 8.0}


def noise(count: int, seed: int, width: float = 0.3) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(0, width, count))


def test_two_values_that_tower() -> None:
    values = noise(200, 1)
    assert lone_spikes.towering(values, np.arange(200), **LIMITS) == []
    values[[60, 150]] = 400.0
    assert lone_spikes.towering(values, np.arange(200), **LIMITS) == [60, 150]
    values[151] = 400.0
    assert lone_spikes.towering(values, np.arange(200), **LIMITS) == [], "what stays is another level"


def test_spikes_of_a_short_run_that_was_not_looked_at_in_every_step() -> None:
    """From the hundredth step on norms are known where something is out of the ordinary: these are spikes apart."""
    values = noise(90, 4)
    steps = np.concatenate([np.arange(86), [110, 131, 150, 180]])
    values[[40, 86, 87, 89]] = [30.0, 90.0, 40.0, 120.0]
    found = {"factor": 20.0, "sigmas": 8.0}
    assert lone_spikes.isolated(values, steps, **found) == [40, 86, 87, 89]
    assert lone_spikes.isolated(values, np.arange(90), **found) == [], "the next step is as high: another level"
    tails = np.exp(np.random.default_rng(3).normal(0, 1.2, 90))
    assert lone_spikes.isolated(tails, steps, **found) == []
    assert lone_spikes.isolated(values[:30], steps[:30], **found) == []


@given(
    st.integers(33, 300),
    st.integers(0, 10_000),
    st.sampled_from([0.1, 0.5, 1.5, 3.0]),
    st.lists(st.tuples(st.floats(0, 1), st.floats(1, 500)), max_size=4),
)
def test_the_short_cut_asks_what_all_levels_would_answer(
    count: int, seed: int, width: float, spikes: list[tuple[float, float]]
) -> None:
    values = noise(count, seed, width)
    for place, height in spikes:
        values[int(place * (count - 1))] *= height
    levels = statistics.row_medians(sliding_window_view(values, 33))
    places = np.clip(np.arange(count) - 16, 0, len(levels) - 1)
    for height in (2.0, 50.0):
        assert lone_spikes.any_towers(values, height) == bool((values > height * levels[places]).any())
