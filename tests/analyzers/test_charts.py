"""Charts keep what matters: extremes, ends, marks; gaps are gaps, and NaN is named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.evidence.charts import MAX_POINTS, chart, thin
from tracelyze.diagnosis import Mark
from tracelyze.testing import Workshop


@given(count=st.integers(1, 20_000), lines=st.integers(1, 4), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_a_chart_is_small_and_keeps_ends_and_extremes(count: int, lines: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = np.arange(1.0, count + 1)
    series = {str(index): random.normal(0, 1, count) for index in range(lines)}
    mark = float(random.integers(1, count + 1))
    drawn = chart("t", "step", "y", x, series, marks=[Mark(mark, "onset")])
    assert len(drawn.x) <= MAX_POINTS
    assert drawn.x == sorted(drawn.x)
    assert (drawn.x[0], drawn.x[-1]) == (1.0, float(count))
    assert mark in drawn.x
    for line in drawn.lines:
        assert max(y for y in line.y if y is not None) == series[line.name].max()
        assert min(y for y in line.y if y is not None) == series[line.name].min()
        assert len(line.y) == len(drawn.x)


def test_nan_becomes_a_gap_with_a_mark_and_unmeasured_does_not() -> None:
    values = np.array([1.0, 2.0, np.nan, np.nan, 5.0])
    known = np.array([True, True, False, True, True])
    drawn = chart("t", "step", "y", np.arange(5.0), {"loss": values}, known={"loss": known})
    assert drawn.x == [0, 1, 3, 4]
    assert drawn.lines[0].y == [1.0, 2.0, None, 5.0]
    assert drawn.marks == [Mark(3.0, "first NaN in loss", "not-finite")]
    told = [Mark(3.0, "so ist es", "not-finite")]
    assert chart("t", "step", "y", np.arange(5.0), {"loss": values}, known={"loss": known}, marks=told).marks == told


def test_infinity_is_named() -> None:
    drawn = chart("t", "step", "y", np.arange(3.0), {"norm": np.array([1.0, np.inf, 2.0])})
    assert drawn.lines[0].y == [1.0, None, 2.0]
    assert drawn.marks == [Mark(1.0, "first Inf in norm", "not-finite")]


def test_a_logarithmic_axis_draws_no_zero() -> None:
    drawn = chart("t", "step", "y", np.arange(3.0), {"norm": np.array([1.0, 0.0, 2.0])}, log_y=True)
    assert drawn.lines[0].y == [1.0, None, 2.0]


def test_validation_points_lie_on_the_training_line() -> None:
    x = np.arange(1.0, 5001)
    at, losses = np.arange(100.0, 5001, 100), np.linspace(2, 1, 50)
    drawn = chart("t", "step", "y", x, {"training": x}, scattered={"validation": (at, losses)})
    training, validation = drawn.lines
    points = [(a, b) for a, b in zip(drawn.x, validation.y, strict=True) if b is not None]
    assert points == list(zip(at.tolist(), losses.tolist(), strict=True))
    assert all(y is not None for y in training.y)
    assert len(drawn.x) <= MAX_POINTS


def test_only_validation_is_drawn_as_validation_and_sets_stay_apart(make: Workshop) -> None:
    """A log that evaluates training data, a test set and two validation sets at each of some steps."""
    kinds = [("validation", "a"), ("validation", "b"), ("training", "a"), ("test", "a")]
    rows = [
        {"after_step": 10 * step, "loss": 1.0 + number, "purpose": purpose, "set": name}
        for step in range(1, 5)
        for number, (purpose, name) in enumerate(kinds)
    ]
    names = ("after_step", "loss", "purpose", "set")
    for evals, series in ((rows, {"validation, a": 1.0, "validation, b": 2.0}), (rows[::4], {"validation": 1.0})):
        columns = {name: [row[name] for row in evals] for name in names}
        process = make.process(steps=make.steps(60), evals=columns)
        (drawn,) = pictures.loss(process.optimizations[0])
        seen = {line.name: {y for y in line.y if y is not None} for line in drawn.lines[1:]}
        assert seen == {name: {value} for name, value in series.items()}


def test_thinning_leaves_short_series_alone() -> None:
    assert thin(np.arange(300.0), [np.zeros(300)]).tolist() == list(range(300))
    assert chart("t", "x", "y", np.empty(0), {"a": np.empty(0)}).x == []


@pytest.mark.parametrize(
    ("function", "shape", "values", "expected"),
    [
        ("cross_entropy", "32x10", [0, 1, 2], (2.3, "guessing among 10 classes")),
        ("binary_cross_entropy", "32", [0, 1, 2], (0.693, "guessing among 2 classes")),
        ("mse_loss", "32x10", [0, 1, 2], None),
        ("cross_entropy", "32x10", [5, 6, 7], None),  # one term of several: the loss of the step is another
        ("cross_entropy", "32x50000", [0, 1, 2], None),  # far from every loss of the run
    ],
)
def test_the_loss_of_a_guess_is_drawn_where_it_is_known(
    make: Workshop, function: str, shape: str, values: list[int], expected: tuple[float, str] | None
) -> None:
    losses = np.linspace(2.6, 0.3, 60).tolist()
    calls = {
        "step": [0, 1, 2],
        "function": [function] * 3,
        "training": [True] * 3,
        "reduction": ["mean"] * 3,
        "input_shape": [shape] * 3,
        "target_integer": [True] * 3,
        "value": [losses[step] for step in values],
    }
    rows = [dict(zip(calls, values, strict=True)) for values in zip(*calls.values(), strict=True)]
    process = make.process(steps={**make.steps(60), "loss": losses}, more={"loss_calls": rows})
    (drawn,) = pictures.loss(process.optimizations[0])
    assert (drawn.threshold, drawn.threshold_label) == (expected or (None, ""))
    assert drawn.healthy == ("below" if expected else "")


def test_a_few_long_steps_do_not_press_the_others_flat(make) -> None:
    seconds = [0.02] * 400
    (even,) = pictures.time_split(make.process(make.steps() | {"seconds": seconds}).longest)
    seconds[100] = seconds[200] = 1.5
    (spiked,) = pictures.time_split(make.process(make.steps() | {"seconds": seconds}).longest)
    assert (even.log_y, spiked.log_y) == (False, True)
