"""Searches for a learning rate, which raise it until the loss blows up, and trainings that raise theirs."""

from __future__ import annotations

import numpy as np
import pytest

from tracelyze.analyzers.computed.schedules import range_tests

COUNT = 400
FOUND = np.geomspace(1e-6, 10, 80)
USUAL = np.full(COUNT - 80, 0.01)


@pytest.mark.parametrize(
    ("rates", "searches"),
    [
        (np.concatenate([FOUND, USUAL]), True),
        (np.concatenate([FOUND, np.full(COUNT - 80, 10.0)]), False),  # it stays there
        (np.concatenate([np.linspace(1e-6, 10, 80), USUAL]), False),  # a warm-up to a rate that is too high
        (np.concatenate([np.geomspace(1.0, 10, 80), USUAL]), False),  # a tenfold rise
        (np.concatenate([np.repeat(np.geomspace(1e-6, 10, 8), 10), USUAL]), False),  # at each tenth step
        (np.concatenate([FOUND[:15], USUAL, USUAL])[:COUNT], False),  # a few steps
    ],
)
def test_a_training_that_begins_with_a_search(make, rates: np.ndarray, searches: bool) -> None:
    loss = np.concatenate([np.linspace(2.0, 0.5, 60), np.geomspace(0.6, 900, 20), np.linspace(800, 5, COUNT - 80)])
    process = make.process(make.steps() | {"lr": list(rates), "loss": list(loss)})
    assert range_tests.begins_with_one(process.longest) == searches
    if searches:
        assert make.check("learning-rate-too-high", process)[0] == "skipped"


@pytest.mark.parametrize(("rates", "searches"), [(FOUND, True), (np.linspace(1e-6, 10, 80), False), (USUAL, False)])
def test_a_trial_is_one_that_another_training_follows(make, rates: np.ndarray, searches: bool) -> None:
    steps = {name: values[: len(rates)] for name, values in make.steps().items()} | {"lr": list(rates)}
    trial, training = make.process(steps), make.process()
    assert range_tests.before_others([trial, training]) == [searches, False]
    assert range_tests.before_others([training, trial]) == [False, False]
    assert range_tests.before_others([trial]) == [False]
