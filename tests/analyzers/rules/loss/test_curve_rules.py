"""Curves that diverge or overfit, NaN that a log holds as zero, and real curves."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracelyze
from tests.analyzers.curves import COUNT, FALLING, FEW, evaluations, log, scalars
from tracelyze.analyzers import statistics

SHARED = Path(__file__).resolve().parents[5] / "shared" / "recordings"
RECORDINGS = Path(os.environ.get("TRACELYZE_RECORDINGS", SHARED))


@pytest.mark.parametrize(
    ("validation", "training", "status"),
    [
        (np.r_[27, [1e3, 1e6, 1e12, 1e20, 1e27]], np.r_[27, [1e3, 1e6, 1e12, 1e20, 1e27]], "fired"),
        (np.r_[FEW, [4.0] * 10], np.r_[FEW, [4.0] * 10], "fired"),  # both rise and stay
        (np.r_[FEW, np.linspace(0.6, 2, 10)], np.r_[FEW, [0.4] * 10], "passed"),  # only validation: overfitting
        (np.r_[FEW, 3 * np.exp(-np.arange(10) / 3) + 0.45], np.r_[FEW, 3 * np.exp(-np.arange(10) / 3)], "passed"),
        (FEW, FEW, "passed"),
    ],
    ids=["powers of ten", "stays", "overfitting", "comes back", "falls"],
)
def test_divergence_of_evaluated_losses(make, validation, training, status) -> None:
    process = log(make, FALLING[:20], evals=evaluations(validation, training))
    assert make.check("loss-divergence", process)[0] == status


def test_a_validation_loss_alone_diverges_by_powers_of_ten_only(make) -> None:
    def only_validation(values: Any) -> Any:
        after = [10 * (index + 1) for index in range(len(values))]
        return {"after_step": after, "loss": [float(v) for v in values], "trained": [True] * len(values)}

    wild = log(make, FALLING[:20], evals=only_validation(np.r_[FEW, np.full(10, 1e4)]))
    assert make.check("loss-divergence", wild)[0] == "fired"
    overfitted = log(make, FALLING[:20], evals=only_validation(np.r_[FEW, np.linspace(0.6, 6, 10)]))
    assert make.check("loss-divergence", overfitted)[0] == "passed"


def test_five_validations_that_rise_in_a_row_are_overfitting(make) -> None:
    training = np.linspace(2, 0.1, 60)
    rising, noisy = [1.0, 1.1, 1.2, 1.3, 1.5], [1.0, 1.1, 1.05, 1.2, 1.3]
    for losses, status in ((rising, "fired"), (noisy, "passed"), (rising[:4], "skipped")):
        evals = {"after_step": [10 * (n + 1) for n in range(len(losses))], "loss": losses}
        process = log(make, training, evals=evals | {"trained": [True] * len(losses)})
        assert make.check("overfitting", process)[0] == status


def test_both_splits_rising_together_is_no_overfitting(make) -> None:
    rising = np.r_[np.linspace(2, 0.6, 6), np.linspace(0.62, 1.3, 14)]
    falling = np.geomspace(2, 0.1, 20)
    for training, status in ((rising, "passed"), (falling, "fired")):
        assert make.check("overfitting", log(make, FALLING, evals=evaluations(rising, training)))[0] == status


IMPORTED = {"source": {"kind": "trainer_state"}}


def test_nan_that_the_trainer_logged_as_zero(make) -> None:
    losses = np.r_[FALLING[:300], np.zeros(100)]
    norms = [1.0] * 300 + [math.nan] * 100
    hidden = log(make, losses, grad_norm=norms, facts=IMPORTED)
    status, _reason, finding = make.check("loss-nonfinite", hidden)
    assert status == "fired"
    assert finding.first_step == 301
    assert "filters NaN" in finding.summary
    assert make.check("nonfinite-gradients", hidden)[0] == "passed"  # the loss was not finite, whatever was logged
    evals = {"after_step": [100, 350], "loss": [1.0, math.nan], "trained": [True, True]}
    assert make.check("loss-nonfinite", log(make, losses, evals=evals, facts=IMPORTED))[0] == "fired"
    assert make.check("validation-nonfinite", log(make, losses, evals=evals, facts=IMPORTED))[0] == "passed"
    small = log(make, losses, grad_norm=[1.0] * 300 + [1e-6] * 100, facts=IMPORTED)  # so small that it was rounded
    assert make.check("loss-nonfinite", small)[0] == "passed"
    reward = scalars(reward=np.linspace(0, 1, COUNT))
    policy = log(make, losses, grad_norm=norms, facts=IMPORTED, more=reward)  # a policy's loss is about zero
    assert make.check("loss-nonfinite", policy)[0] == "passed"


def test_nan_that_clearml_wrote_as_zero(make) -> None:
    clearml = {"source": {"kind": "clearml"}}
    zeros = np.r_[FALLING[:300], np.zeros(100)]
    norms = [1.0] * 300 + [0.0] * 100
    status, _reason, finding = make.check("loss-nonfinite", log(make, zeros, grad_norm=norms, facts=clearml))
    assert (status, finding.confidence, finding.first_step) == ("fired", "likely", 301)
    assert "ClearML writes 0" in finding.summary
    assert make.check("loss-nonfinite", log(make, zeros, grad_norm=norms, facts=IMPORTED))[0] == "passed"
    lively = log(make, zeros, grad_norm=[1.0] * 400, facts=clearml)  # a loss that is really zero, rounded
    assert make.check("loss-nonfinite", lively)[0] == "passed"
    learned = np.r_[np.geomspace(2.0, 1e-4, 300), np.zeros(100)]
    assert make.check("loss-nonfinite", log(make, learned, grad_norm=norms, facts=clearml))[0] == "passed"


def test_the_loss_of_a_policy_is_not_judged(make) -> None:
    process = log(make, np.r_[np.full(200, 0.1), np.full(200, 5.0)], more=scalars(reward=np.linspace(0, 1, COUNT)))
    for rule in ("loss-divergence", "loss-spikes", "loss-plateau", "overfitting"):
        assert make.check(rule, process)[0] == "skipped"


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ([1.0, 2.0, 2.0, 2.0, 2.0], True),
        ([4.0, 1.0, 3.0, 3.0, 3.0, 3.0], True),
        ([1.0, 2.0, 2.0, 1.0, 2.0], False),
        ([1.0, 9.0, 8.0, 6.0, 4.0, 3.0, 2.0, 1.5], False),
        ([3.0, 2.0, 1.0, 1.0, 1.0], False),
        ([1.0, 5.0], False),
    ],
)
def test_departure(values, left) -> None:
    assert (statistics.departure(np.array(values), factor=1.3, sigmas=6) is not None) == left


def test_excursions_end_where_half_of_the_way_is_made() -> None:
    values = np.array([1.0, 1.0, 1.0, 1.0, 16.0, 9.0, 3.0, 1.0, 1.0, 8.0, 8.0])
    found = statistics.excursions(values, factor=2)
    assert [(leap.begin, leap.end, round(leap.peak)) for leap in found] == [(4, 6, 16), (9, 11, 8)]


HEALTHY = ("trainer_state/dpo_healthy", "trainer_state/grpo_ok1", "algoperf/00280.csv", "algoperf/00520.csv",
           "algoperf/00745.csv", "algoperf/01229.csv", "algoperf/01308.csv", "algoperf/03364.csv", "algoperf/04106.csv",
           "logs/modded-nanogpt-1.txt", "sb3/ppo_LunarLander-v2_1_2.monitor.csv")  # fmt: skip
FAULTY = {
    "algoperf/01434.csv": "loss-divergence",
    "algoperf/01519.csv": "loss-divergence",
    "algoperf/01484.csv": "loss-spikes",
    "algoperf/01533.csv": "overfitting",
    "algoperf/00027.csv": "loss-plateau",
    "trainer_state/dpo_lr_zero": "loss-plateau",
    "trainer_state/grpo_no_advantage": "zero-advantage",
    "trainer_state/sft_nan_hidden": "loss-nonfinite",
}


@pytest.mark.parametrize("name", [*HEALTHY, *FAULTY])
def test_real_curves(name: str) -> None:
    path = RECORDINGS / name
    if not path.exists():
        pytest.skip("no recordings: set TRACELYZE_RECORDINGS to the folder that holds them")
    diagnosis = tracelyze.diagnose(path)
    alarms = {finding.rule for finding in diagnosis.findings if finding.severity != "info"}
    if name in FAULTY:
        assert FAULTY[name] in alarms
    else:
        assert alarms == set()
