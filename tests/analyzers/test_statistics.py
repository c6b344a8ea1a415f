"""The statistics are silent on healthy look-alikes, see what is planted, and do not depend on units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.optimization.one_batch import leap
from tracelyze.analyzers.statistics.robust import median

MIB = 2.0**20
lengths = st.sampled_from([60, 120, 300, 1000, 4000])
seeds = st.integers(0, 2**32 - 1)


def look_alikes(count: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Memory curves of healthy trainings, in MiB around 200."""
    t = np.arange(count) / count
    period = int(random.integers(5, max(6, count // 12)))
    filled = random.uniform(0.05, 0.75)
    noise = random.normal(0, random.choice([0.1, 2, 10]), count)
    return {
        "constant": np.full(count, 200.0),
        "white noise": 200 + noise,
        "logarithmic warm-up": 200 + random.uniform(1, 50) * np.log1p(np.arange(count)) + noise,
        "exponential warm-up": 200 + 100 * (1 - np.exp(-t / random.uniform(0.01, 0.3))) + noise,
        "sawtooth": 200 + 100 * (np.arange(count) % period) / period + noise,
        "buffer that fills, then flat": 200 + 100 * np.minimum(1, t / filled) + noise,
        "one step up": 200 + 50 * (t > random.uniform(0.1, 0.9)) + noise,
        "three steps up": 200 + 30 * np.searchsorted(np.sort(random.uniform(0, 1, 3)), t) + noise,
        "spikes": 200 + 500 * (random.random(count) < 0.05) + noise,
    }


@given(count=lengths, seed=seeds)
@settings(max_examples=60, deadline=None)
def test_no_look_alike_of_a_leak_climbs(count: int, seed: int) -> None:
    for name, curve in look_alikes(count, np.random.default_rng(seed)).items():
        assert statistics.straight_climb(curve * MIB) is None, name


def test_a_random_walk_hardly_ever_climbs() -> None:
    """Nothing distinguishes the rare walk that goes straight up from a leak: 1 of 600 of this length did."""
    walks = [200 + np.cumsum(np.random.default_rng(seed).normal(0, 1, 300)) for seed in range(300)]
    assert sum(statistics.straight_climb(walk * MIB) is not None for walk in walks) <= 1


@given(count=st.sampled_from([200, 1000, 4000]), seed=seeds, slope=st.floats(0.5, 10))
@settings(max_examples=60, deadline=None)
def test_a_leak_on_a_quiet_floor_climbs_at_its_slope(count: int, seed: int, slope: float) -> None:
    random = np.random.default_rng(seed)
    curve = 200 + slope * np.arange(count) + 300 * (random.random(count) < 0.05) + random.normal(0, 0.02, count)
    climb = statistics.straight_climb(curve * MIB)
    assert climb is not None
    assert climb.slope / MIB == pytest.approx(slope, rel=0.1)
    low, high = statistics.slope_interval(curve * MIB)
    assert low <= high
    assert low / MIB == pytest.approx(slope, rel=0.2)
    assert high / MIB == pytest.approx(slope, rel=0.2)


def test_a_leak_under_a_sawtooth_climbs() -> None:
    count = 1000
    curve = 200 + 0.5 * np.arange(count) + 300 * (np.arange(count) % 40) / 40
    assert statistics.straight_climb(curve * MIB) is not None


@given(seed=seeds, unit=st.floats(1e-6, 1e9))
@settings(max_examples=40, deadline=None)
def test_a_climb_does_not_depend_on_the_unit(seed: int, unit: float) -> None:
    random = np.random.default_rng(seed)
    curve = 200 + random.uniform(0, 0.2) * np.arange(500) + random.normal(0, 3, 500)
    one, other = statistics.straight_climb(curve), statistics.straight_climb(curve * unit)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert other.slope == pytest.approx(one.slope * unit, rel=1e-6)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.floats(-100, 100))
def test_theil_sen_follows_a_line_that_is_added(values: list[float], slope: float) -> None:
    x, y = np.arange(len(values), dtype=float), np.array(values)
    before, after = statistics.theil_sen(x, y), statistics.theil_sen(x, y + slope * x)
    assert after - before == pytest.approx(slope, abs=1e-6)


def test_theil_sen_survives_a_quarter_of_wild_points() -> None:
    x = np.arange(100, dtype=float)
    y = 3 * x
    y[::4] = np.random.default_rng(1).normal(0, 1e6, 25)
    assert statistics.theil_sen(x, y) == pytest.approx(3, rel=0.2)


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=50))
def test_kendall_tau_is_odd_and_bounded(values: list[float]) -> None:
    y = np.array(values)
    assert statistics.kendall_tau(-y) == pytest.approx(-statistics.kendall_tau(y))
    assert -1 <= statistics.kendall_tau(y) <= 1
    assert statistics.kendall_tau(np.zeros(len(y))) == 0


def healthy_norms(count: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Gradient norms of healthy or merely diverging trainings."""
    t = np.arange(1, count + 1)
    noise = np.exp(random.normal(0, 0.3, count))
    return {
        "constant": np.ones(count),
        "stationary": noise,
        "decaying": noise / np.sqrt(t),
        "warm-up, then flat": noise * (1 + random.uniform(1, 8) * np.minimum(1, 5 * t / count)),
        "slow rise": noise * (1 + random.uniform(0.5, 4) * t / count),
        "exponential blow-up": noise * np.exp(10 * t / count),
    }


@pytest.mark.parametrize("count", [50, 200, 1000])
def test_healthy_gradient_norms_seldom_pile_up(count: int) -> None:
    steps = np.arange(1, count + 1, dtype=float)
    alarms = dict.fromkeys(healthy_norms(count, np.random.default_rng(0)), 0)
    for seed in range(100):
        for name, curve in healthy_norms(count, np.random.default_rng(seed)).items():
            alarms[name] += statistics.power_law_growth(steps, curve) is not None
    assert max(alarms.values()) <= 1, alarms


@pytest.mark.parametrize("count", [10, 20, 50, 200])
def test_a_flat_falling_or_wandering_validation_curve_does_not_rise(count: int) -> None:
    t = np.linspace(0, 1, count)
    alarms = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        wander = np.zeros(count)
        for index in range(1, count):
            wander[index] = 0.8 * wander[index - 1] + 0.6 * random.standard_normal()
        noise = random.standard_normal(count)
        for size in (0.01, 0.05, 0.1):
            curves = (1 + 2 * np.exp(-15 * t)) * (1 + size * noise), (1 + 2 * np.exp(-3 * t)) * (1 + size * noise)
            wandering = (1 + 2 * np.exp(-15 * t)) * (1 + size * wander)
            alarms += sum(statistics.rise(curve) is not None for curve in (*curves, wandering))
    assert alarms <= 1  # of 900; measured over 36,000: one


@given(seed=seeds, count=st.sampled_from([20, 50, 200]))
@settings(max_examples=30, deadline=None)
def test_a_rise_by_two_thirds_is_seen(seed: int, count: int) -> None:
    t = np.linspace(0, 1, count)
    curve = 1 + 2 * np.exp(-15 * t) + 0.66 * np.maximum(0, (t - 0.3) / 0.7)
    seen = statistics.rise(curve * (1 + 0.005 * np.random.default_rng(seed).standard_normal(count)))
    assert seen is not None
    assert 0.15 * count < seen.lowest < 0.55 * count
    assert seen.end > 1.4


@given(count=st.sampled_from([200, 1000]), seed=seeds, mean=st.floats(0.05, 1))
@settings(max_examples=40, deadline=None)
def test_summed_gradients_pile_up(count: int, seed: int, mean: float) -> None:
    gradients = np.random.default_rng(seed).normal(mean, 1, (count, 200))
    norms = np.linalg.norm(np.cumsum(gradients, axis=0), axis=1)
    growth = statistics.power_law_growth(np.arange(1, count + 1, dtype=float), norms)
    assert growth is not None
    assert 0.4 < growth.exponent < 1.2


@given(seed=seeds, noise=st.sampled_from([0.02, 0.1, 0.3]), count=st.sampled_from([100, 1000]))
@settings(max_examples=60, deadline=None)
def test_a_falling_or_recovering_loss_does_not_diverge(seed: int, noise: float, count: int) -> None:
    random = np.random.default_rng(seed)
    loss = (0.3 + 2 * np.exp(-np.arange(count) / (count / 5))) * np.exp(random.normal(0, noise, count))
    assert statistics.divergence(loss) is None
    loss[count // 2 : count // 2 + count // 20] *= 5
    assert statistics.divergence(loss) is None
    assert statistics.divergence(np.ones(count)) is None


def test_a_short_dip_below_the_level_is_no_minimum() -> None:
    loss = 3.2 + 0.5 * np.exp(-np.arange(1500) / 100) + np.random.default_rng(0).normal(0, 0.02, 1500)
    loss[1000:1030] -= 1  # a running mean that was reset on resume
    assert statistics.divergence(loss) is None


def test_a_task_that_becomes_harder_in_stages_does_not_diverge() -> None:
    stages = [0.2 * 3**stage * np.exp(-np.arange(150) / 40) for stage in range(4)]
    loss = np.concatenate(stages) * np.exp(np.random.default_rng(0).normal(0, 0.2, 600))
    assert statistics.divergence(loss) is None


def test_a_loss_that_collapses_to_a_plateau_diverges() -> None:
    loss = np.concatenate([2 * np.exp(-np.arange(300) / 60) + 0.1, [1000.0] * 5, np.full(200, 2.3)])
    assert statistics.divergence(loss * np.exp(np.random.default_rng(0).normal(0, 0.02, 505))) is not None


def test_noise_around_a_converged_loss_does_not_diverge() -> None:
    random = np.random.default_rng(3)
    loss = 2 * np.exp(-np.arange(1000) / 30) + 1e-6 * np.exp(np.linspace(0, 2, 1000) + random.normal(0, 0.1, 1000))
    assert statistics.divergence(loss) is None


@given(seed=seeds, rise=st.floats(2, 50))
@settings(max_examples=40, deadline=None)
def test_a_loss_that_rises_for_good_diverges_where_it_turned(seed: int, rise: float) -> None:
    random = np.random.default_rng(seed)
    level = np.concatenate([0.5 + 1.5 * np.exp(-np.arange(500) / 80), np.linspace(0.5, 0.5 * rise + 0.5, 500)])
    seen = statistics.divergence(level * np.exp(random.normal(0, 0.05, 1000)))
    assert seen is not None
    assert 200 < seen.turned < 700


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_heavy_tails_have_few_spikes_and_planted_ones_are_found(seed: int) -> None:
    random = np.random.default_rng(seed)
    norms = np.abs(1 + 0.2 * random.standard_t(4, 1000))
    assert len(statistics.spikes(norms, factor=10)) < 3
    planted = [200, 400, 600, 800]
    norms[planted] = 1e6
    assert set(planted) <= set(statistics.spikes(norms, factor=10))


def test_neighbouring_spikes_count_once() -> None:
    values = np.ones(200)
    values[[100, 101, 103, 150]] = [50, 90, 60, 40]
    assert statistics.spikes(values) == [101, 150]


def test_a_new_level_is_no_spike() -> None:
    assert statistics.spikes(np.concatenate([np.ones(100), np.full(100, 50.0)])) == []
    assert statistics.spikes(np.concatenate([np.ones(100), np.logspace(0, 6, 100)])) == []


@given(seed=seeds, slope=st.floats(-10, 10), noise=st.floats(0.01, 100))
@settings(max_examples=40, deadline=None)
def test_fluctuation_measures_noise_and_not_trend(seed: int, slope: float, noise: float) -> None:
    values = 1000 + slope * np.arange(400) + np.random.default_rng(seed).normal(0, noise, 400)
    seen = statistics.fluctuation(values)
    assert seen is not None
    assert seen.noise == pytest.approx(noise, rel=0.35)


def test_outliers_are_few_and_far() -> None:
    values = np.random.default_rng(2).normal(1, 0.05, 500)
    assert len(statistics.outliers(values)) == 0
    values[[7, 99]] = [10, 20]
    assert statistics.outliers(values).tolist() == [7, 99]


def test_sawtooth_needs_falls_and_steady_climbs() -> None:
    saw = np.tile(np.arange(60.0), 4)
    assert statistics.sawtooth(saw) == (3, 59.0)
    assert statistics.sawtooth(np.random.default_rng(0).uniform(0, 60, 240)) is None
    assert statistics.sawtooth(np.ones(100)) is None
    assert statistics.sawtooth(np.arange(100.0)) is None


def test_block_values_cover_all_values_once() -> None:
    values = np.arange(103.0)
    assert statistics.block_minima(values, 10)[0] == 0
    assert len(statistics.block_medians(values, 10)) == 10
    assert len(statistics.block_medians(np.arange(4.0), 10)) == 4


def test_onset_is_where_a_curve_stays_above() -> None:
    assert statistics.onset(np.array([0, 5, 0, 5, 6, 7.0]), 4) == 3
    assert statistics.onset(np.array([0, 5, 0.0]), 4) is None
    assert statistics.onset(np.array([9, 9.0]), 4) == 0


@given(st.lists(st.floats(width=32), max_size=12))
def test_the_median_is_that_of_numpy(values: list[float]) -> None:
    expected = np.median(values) if values else np.nan
    assert np.array_equal(median(np.array(values)), expected, equal_nan=True)


@given(st.lists(st.sampled_from([0.1, 1.0, -2.0, 60.0, 4000.0, 0.0, np.nan, np.inf]), max_size=20), st.integers(0, 14))
def test_a_leap_is_the_first_loss_fifty_times_above_the_eight_before(values: list[float], first: int) -> None:
    losses = np.array(values)
    windows = {at: np.abs(losses[at - 8 : at]) for at in range(max(8, first), len(losses))}
    towers = [at for at, before in windows.items() if np.isfinite(before).all() and losses[at] >= 50 * before.max() > 0]
    assert leap(losses, first) == (towers[0] if towers else None)


def test_a_running_median_of_three_is_that_of_numpy() -> None:
    values = np.random.default_rng(0).normal(size=50)
    values[7], values[20] = np.nan, np.inf
    padded = np.pad(values, 1, mode="edge")
    expected = [np.median(padded[at : at + 3]) for at in range(50)]
    assert np.array_equal(statistics.running_median(values, 3), expected, equal_nan=True)
