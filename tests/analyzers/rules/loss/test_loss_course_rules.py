"""Losses that are not finite or that diverge, and objectives that rise by plan."""

from __future__ import annotations

import numpy as np
import pytest

COUNT = 400


NAN = float("nan")


def test_loss_nonfinite(make) -> None:
    steps = make.steps()
    steps["loss"][300:] = [NAN] * 100
    status, _, finding = make.check("loss-nonfinite", make.process(steps))
    assert status == "fired"
    assert (finding.severity, finding.first_step, finding.title) == ("critical", 301, "The loss became NaN at step 301")
    assert [mark.label for mark in finding.charts[0].marks] == ["loss is NaN"]


def test_loss_nonfinite_that_recovers_is_a_warning(make) -> None:
    steps = make.steps()
    steps["loss"][100] = NAN
    _, _, finding = make.check("loss-nonfinite", make.process(steps))
    assert (finding.severity, finding.title) == ("warning", "The loss was NaN once, at step 101")
    assert "Only 1 of the 300 losses from step 101 on is not finite" in finding.summary
    steps["loss"][200] = NAN
    assert (
        make.check("loss-nonfinite", make.process(steps))[2].title == "The loss was NaN in 2 steps, first at step 101"
    )


def test_a_finite_loss_among_those_that_are_not_saves_no_weights(make) -> None:
    """The loss overflows on one batch and not on the next, before the weights themselves are lost."""
    steps = make.steps()
    steps["loss"][98:] = [float("inf"), 1e32, *[float("inf")] * 10, *[NAN] * 290]
    finding = make.check("loss-nonfinite", make.process(steps))[2]
    assert (finding.severity, finding.first_step) == ("critical", 99)
    assert (
        "301 of the 302 losses from step 99 on are not finite, and after step 100 none is: what was" in finding.summary
    )
    steps["loss"][98:] = [NAN, NAN, 0.3] * 100 + [NAN, NAN]  # two batches in three, to the end
    summary = make.check("loss-nonfinite", make.process(steps))[2].summary
    assert "are not finite: finite ones come in between, the last at step 398." in summary
    assert "lost" not in summary


def test_loss_nonfinite_says_what_moved_first(make) -> None:
    steps = make.steps()
    steps["loss"][300:] = [NAN] * 100
    steps["grad_norm"][290:300] = np.logspace(0, 6, 10).tolist()
    assert "gradient norm rose" in make.check("loss-nonfinite", make.process(steps))[2].summary


def test_a_loss_that_is_nan_in_some_batches_from_the_start_is_no_matter_of_weights(make) -> None:
    steps = make.steps()
    steps["loss"] = [NAN if index % 3 != 1 else 0.5 for index in range(COUNT)]
    summary = make.check("loss-nonfinite", make.process(steps))[2].summary
    assert "the weights are whole" in summary
    assert "initial weights" not in summary
    steps["loss"] = [NAN] * COUNT
    assert "initial weights" in make.check("loss-nonfinite", make.process(steps))[2].summary


def test_loss_nonfinite_leaves_skipped_steps_to_the_scaler(make) -> None:
    steps = make.steps()
    steps["loss"][5] = float("inf")
    steps["skipped"] = [index == 5 for index in range(COUNT)]
    assert make.check("loss-nonfinite", make.process(steps))[0] == "passed"
    unknown = make.steps()
    unknown["loss"][5] = None  # not measured is not NaN
    assert make.check("loss-nonfinite", make.process(unknown))[0] == "passed"


def test_loss_divergence(make) -> None:
    loss = np.concatenate([np.linspace(2, 0.5, 200), np.linspace(0.5, 4, 200)])
    status, _, finding = make.check("loss-divergence", make.process(make.steps() | {"loss": loss.tolist()}))
    assert status == "fired"
    assert finding.severity == "critical"
    assert 150 < finding.first_step < 280
    assert "at its lowest" in finding.title


def test_a_loss_that_only_rose_has_no_lowest_level_below_its_start(make) -> None:
    loss = np.concatenate([[0.17] * 10, [0.28] * 190, np.linspace(0.3, 4, 200)])
    _, _, finding = make.check("loss-divergence", make.process(make.steps() | {"loss": loss.tolist()}))
    assert "at its lowest" not in finding.title
    assert "0.17 at the start" in finding.title
    assert "never stayed lower for long" in finding.summary


@pytest.mark.parametrize(("update", "severity"), [(0.001, "info"), (0.5, "warning")])
def test_a_loss_that_rises_by_sound_updates_may_be_meant_to(make, update: float, severity: str) -> None:
    """A term that grows, noise that is added, an adversary: the loss rises, and stays below its start."""
    steps = np.arange(COUNT)
    loss = np.where(steps < 150, 2.0 * np.exp(-steps / 30), 0.01 + 0.004 * (steps - 150))
    rows = [
        {"step": int(at), "optimizer": 0, "parameter": "w", "elements": 64, "weight_norm": 1.0, "update_norm": update}
        for at in range(0, COUNT, 20)
    ]
    process = make.process(make.steps() | {"loss": loss.tolist()}, more={"parameters": rows})
    status, _, finding = make.check("loss-divergence", process)
    assert (status, finding.severity) == ("fired", severity)
    meant = severity == "info"
    assert ("rose again" in finding.title) == meant
    assert (finding.cost is None) == (finding.fix_code == "") == meant, "what may be meant costs nothing"


@pytest.mark.parametrize(
    ("validation", "status"),
    [
        ([1.5, 1.2, 0.9, 0.8, 0.7, 0.65, 0.62, 0.6], "passed"),
        ([1.5, 1.2, 0.9, 0.5, 0.7, 1.2, 1.1, 1.0], "fired"),  # it was lower once
        ([1.5, 0.4, 0.9, 0.8, 0.7, 0.65, 0.62, 0.6], "fired"),  # as low before the rise
        ([None, None, None, None, 0.8, 0.7, 0.65, 0.6], "fired"),  # nobody looked before
        ([1.5, 1.2, 0.9, 0.8, 0.7, None, None, None], "fired"),  # nor while the training loss was up
    ],
)
def test_a_loss_that_rises_while_that_of_validation_falls(make, validation: list[float | None], status: str) -> None:
    """The data became harder; the weights did not become worse."""
    steps = np.arange(COUNT)
    loss = np.where(steps < 120, 2.0 * np.exp(-steps / 30), np.fmin(0.04 + 0.02 * (steps - 120), 2.5))
    spacing = COUNT // len(validation)
    evals = make.evals(len(validation), spacing) | {"loss": validation}
    process = make.process(make.steps() | {"loss": loss.tolist()}, evals=evals)
    assert make.check("loss-divergence", process)[0] == status


def test_loss_divergence_is_silent(make) -> None:
    recovers = np.linspace(2, 0.5, COUNT)
    recovers[200:240] += 5
    density = np.concatenate([np.linspace(2, -3, 200), np.linspace(-3, -1, 200)])
    for loss, status in (
        (recovers, "passed"),
        (density, "skipped"),  # has no zero
        (np.ones(COUNT), "passed"),
    ):
        assert make.check("loss-divergence", make.process(make.steps() | {"loss": loss.tolist()}))[0] == status


@pytest.mark.parametrize(
    ("shapes", "status"),
    [
        (["32x8", "32x11", "32x9", "32x10", "32x20"], "passed"),  # longer sequences from there on
        (["32x8", "32x11", "32x9", "32x10", "32x12"], "fired"),  # sequences of varying length
        (["32x8", "32x11", "32x9", "32x10"], "fired"),  # no look since
    ],
)
def test_loss_divergence_knows_a_curriculum_by_its_inputs(make, shapes, status) -> None:
    loss = np.concatenate([np.linspace(2, 0.1, 200), np.linspace(0.1, 3, 100), np.linspace(3, 2.5, 100)])
    looks = [
        {"step": step, "trained": True, "field": field, "shape": shape if field == "0" else "32"}
        for step, shape in zip((1, 5, 30, 90, 330), shapes, strict=False)
        for field in ("0", "1")
    ]
    process = make.process(make.steps() | {"loss": loss.tolist()}, more={"batches": looks})
    assert make.check("loss-divergence", process)[0] == status


def test_loss_divergence_does_not_judge_gans_and_players(make) -> None:
    rising = np.linspace(0.5, 4, COUNT).tolist()
    gan = make.steps() | {"loss": rising, "optimizer": [index % 2 for index in range(COUNT)]}
    assert make.check("loss-divergence", make.process(gan))[0] == "skipped"
    rollouts = make.evals(200, 2) | {"loader": [None] * 200, "losses": [0] * 200, "forwards": [20] * 200}
    rollouts |= {"samples": [20 * 8] * 200}  # eight environments
    player = make.process(make.steps() | {"loss": rising}, evals=rollouts)
    assert make.check("loss-divergence", player)[0] == "skipped"
