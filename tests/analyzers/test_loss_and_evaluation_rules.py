"""Rules about the loss and about evaluation, with their healthy look-alikes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tracelyze.analyzers import diagnose
from tracelyze.analyzers.evidence.settings import constants

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


def train_mode(evals):
    count = len(evals["after_step"])
    return evals | {"model_in_train": [True] * count, "modules_in_train": [3] * count, "modules": ["Dropout"] * count}


def test_eval_in_train_mode(make) -> None:
    status, _, finding = make.check("eval-in-train-mode", make.process(evals=train_mode(make.evals())))
    assert status == "fired"
    assert (finding.confidence, finding.first_step, finding.location.line) == ("certain", 100, 60)
    assert "dropouts that dropped values" not in [evidence.name for evidence in finding.evidence]


def test_a_validation_without_losses_is_placed_at_the_loop_over_its_loader(make) -> None:
    evals = train_mode(make.evals())
    evals |= {"site": [None] * len(evals["after_step"])}
    loaders = [{"loader": number, "dataset": "Images", "site": number + 1} for number in (0, 1)]
    process = make.process(evals=evals, loaders=loaders)
    _, _, finding = make.check("eval-in-train-mode", process)
    assert finding.location == process.site(int(evals["loader"][0]) + 1)
    assert finding.location is not None


@pytest.mark.parametrize(
    ("modules", "said", "unsaid"),
    [
        ("Dropout", "dropped at random", "Norm"),
        ("BatchNorm2d x2, Dropout2d", "BatchNorm2d uses each batch's own statistics", " x2 uses"),
        ("BatchNorm1d, BatchNorm2d x3", "BatchNorm1d uses each batch's own statistics", "dropped"),
    ],
)
def test_eval_in_train_mode_says_what_the_modules_of_the_model_do(make, modules, said, unsaid) -> None:
    evals = train_mode(make.evals())
    evals["modules"] = [modules] * len(evals["modules"])
    _, _, finding = make.check("eval-in-train-mode", make.process(evals=evals))
    assert said in finding.summary
    assert unsaid not in finding.summary


def test_eval_in_train_mode_of_a_single_pass_without_loader(make) -> None:
    evals = train_mode(make.evals(1)) | {"loader": [None], "losses": [0], "loss": [None]}
    _, _, finding = make.check("eval-in-train-mode", make.process(evals=evals))
    assert finding.confidence == "likely"


def test_functional_dropout_that_ignores_the_mode(make) -> None:
    evals = make.evals() | {"dropouts": [20] * 4}
    _, _, finding = make.check("eval-in-train-mode", make.process(evals=evals))
    assert "training=self.training" in finding.fix_code
    assert finding.confidence == "likely"  # dropout may be sampled by a repeated input within one batch
    begun = make.evals() | {"dropouts": [0, 20, 20, 20], "after_step": [0, 100, 200, 300]}
    summary = make.check("eval-in-train-mode", make.process(evals=begun))[2].summary
    assert "in 3 of 3 validation passes" in summary, "before the first step nobody looks into fused attention"
    some = begun | {"after_step": [50, 100, 200, 300]}
    assert "in 3 of 4" in make.check("eval-in-train-mode", make.process(evals=some))[2].summary


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"repeats": [8] * 4, "forwards": [10] * 4}, "passed"),  # five samples of each of two inputs
        ({"repeats": [9] * 4, "model_in_train": [True] * 4, "modules": ["Dropout"] * 4}, "passed"),
        ({"repeats": [9] * 4, "model_in_train": [True] * 4, "modules_in_train": [3] * 4,
          "modules": ["BatchNorm2d x2, Dropout"] * 4}, "fired"),
        ({"repeats": [9] * 4, "model_in_train": [True] * 4, "modules_in_train": [3] * 4, "statistics": [40] * 4,
          "modules": ["BatchNorm2d x2, Dropout"] * 4}, "passed"),  # batchnorm-in-validation says so
        ({"repeats": [5] * 4, "forwards": [10] * 4}, "fired"),  # a loss and an accuracy, each with a forward
        ({"after_step": [100] * 3 + [200]}, "passed"),  # the same set three times between two steps
        ({"after_step": [100] * 3 + [200], "loader": [1, 2, 3, 1]}, "fired"),  # three sets
    ],
)  # fmt: skip
def test_dropout_that_is_sampled_in_validation(make, change, status) -> None:
    evals = make.evals() | {"dropouts": [20] * 4} | change
    assert make.check("eval-in-train-mode", make.process(evals=evals))[0] == status


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "passed"),  # healthy
        # Monte Carlo dropout: the model itself is in eval mode
        ({"modules_in_train": [1] * 4, "dropouts": [20] * 4}, "passed"),
        # teacher, EMA: no pass of the trained model
        ({"trained": [False] * 4, "model_in_train": [True] * 4, "modules_in_train": [3] * 4}, "skipped"),
        ({"model_in_train": [True] * 4, "modules_sensitive": [0] * 4}, "passed"),  # nothing depends on the mode
        ({  # a generator's sample sheet: one forward, no loss, no other loader
            "model_in_train": [True] * 4, "modules_in_train": [3] * 4, "forwards": [1] * 4, "losses": [0] * 4,
            "loader": [0] * 4,
        }, "skipped"),
        ({  # training batches that the loop gave up
            "model_in_train": [True] * 4, "modules_in_train": [3] * 4, "forwards": [2] * 4, "losses": [0] * 4,
            "loader": [0] * 4, "grad_mode": [2] * 4,
        }, "skipped"),
        ({"model_in_train": [True, False, False, False], "modules_in_train": [3, 0, 0, 0]}, "passed"),  # one odd pass
    ],
)  # fmt: skip
def test_eval_in_train_mode_of_what_looks_like_it(make, change, status) -> None:
    assert make.check("eval-in-train-mode", make.process(evals=make.evals() | change))[0] == status


def test_eval_in_train_mode_does_not_take_rollouts_for_validation(make) -> None:
    evals = train_mode(make.evals(COUNT, 1)) | {"loader": [None] * COUNT, "losses": [0] * COUNT}
    assert make.check("eval-in-train-mode", make.process(evals=evals))[0] == "skipped"


def test_eval_in_train_mode_of_rollouts_for_prompts_from_a_loader(make) -> None:
    evals = train_mode(make.evals()) | {"losses": [0] * 4}
    assert make.check("eval-in-train-mode", make.process(evals=evals))[0] == "fired"
    acting = {"loss_graphs": [{"step": 1, "weights": 8, "weights_zero": 0.0, "weights_negative": 0.5}]}
    assert make.check("eval-in-train-mode", make.process(evals=evals, more=acting))[0] == "skipped"
    measured = make.process(evals=train_mode(make.evals()), more=acting)
    assert make.check("eval-in-train-mode", measured)[0] == "fired", "a pass with losses"


def imported(validation: np.ndarray):
    count = 100 * len(validation)
    loss = 0.5 + np.exp(-np.arange(count) / 300) + np.random.default_rng(0).normal(0, 0.03, count)
    after = [100 * (i + 1) for i in range(len(validation))]
    evals = {"after_step": after, "loss": validation.tolist(), "trained": [True] * len(validation)}
    return {"step": list(range(1, count + 1)), "loss": loss.tolist()}, evals


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "fired"),
        ({"losses": [0] * 4}, "skipped"),  # BatchNorm's statistics for the average are gathered in train mode
        ({"loader": [0] * 4}, "skipped"),  # on the batches of the training
        ({"model_in_train": [False] * 4, "modules_in_train": [0] * 4, "dropouts": [0] * 4}, "passed"),
    ],
)
def test_a_running_average_that_is_validated_in_train_mode(make, change, expected) -> None:
    evals = train_mode(make.evals()) | {"model": [1] * 4, "trained": [False] * 4} | change
    models = [{"model": n, "name": "Net", "parameters": 8, "elements": 500, "sensitive": "Dropout"} for n in (0, 1)]
    links = {"links": [{"time": 0.1, "step": 1, "optimizer": 0, "model": 0}]}
    process = make.process(evals=evals, models=models, more=links)
    assert make.check("eval-in-train-mode", process)[0] == expected
    other = [models[0], models[1] | {"elements": 900}]
    assert make.check("eval-in-train-mode", make.process(evals=evals, models=other, more=links))[0] == "skipped"


def test_a_teacher_that_takes_part_in_every_step_is_no_running_average(make) -> None:
    evals = train_mode(make.evals(count=300, every=1)) | {"model": [1] * 300, "trained": [False] * 300}
    models = [{"model": n, "name": "Net", "parameters": 8, "elements": 500, "sensitive": "Dropout"} for n in (0, 1)]
    links = {"links": [{"time": 0.1, "step": 1, "optimizer": 0, "model": 0}]}
    assert make.check("eval-in-train-mode", make.process(evals=evals, models=models, more=links))[0] == "skipped"


def test_eval_in_train_mode_signature(make) -> None:
    random = np.random.default_rng(0)
    steps, evals = imported(0.7 * np.exp(random.normal(0, 0.4, 20)))
    process = make.process(steps, evals=evals, optimizers=[], loaders=[])
    _, _, finding = make.check("eval-in-train-mode", process)
    assert (finding.confidence, finding.severity) == ("possible", "warning")
    both = diagnose(make.run(process)).findings
    assert [(f.rule, f.caused_by) for f in both] == [
        ("eval-in-train-mode", None),
        ("validation-fluctuation", "eval-in-train-mode"),
    ]
    calm, evals = imported(0.7 + 0.5 * np.exp(-np.arange(20) / 5) + random.normal(0, 0.005, 20))
    assert diagnose(make.run(make.process(calm, evals=evals, optimizers=[], loaders=[]))).findings == []
    few, evals = imported(0.7 * np.exp(random.normal(0, 0.4, 6)))
    assert make.check("eval-in-train-mode", make.process(few, evals=evals, optimizers=[]))[0] == "skipped"


def overfitted(make, losses, train=None):
    count = len(losses)
    steps = make.steps() if train is None else make.steps() | {"loss": list(map(float, train))}
    return make.process(steps, evals=make.evals(count, COUNT // count) | {"loss": list(map(float, losses))})


def test_overfitting(make) -> None:
    losses = np.concatenate([np.linspace(2, 0.6, 6), np.linspace(0.62, 1.3, 14)])
    status, _, finding = make.check("overfitting", overfitted(make, losses))
    assert status == "fired"
    assert (finding.severity, finding.first_step, finding.last_step) == ("warning", 120, 400)
    assert finding.cost.share == pytest.approx(0.7, abs=0.02)
    slight = np.concatenate([np.linspace(2, 0.6, 6), np.linspace(0.605, 0.68, 14)])
    assert make.check("overfitting", overfitted(make, slight))[2].severity == "info"


def test_losses_that_a_model_puts_out_beside_the_one_that_is_trained_do_not_overfit(make) -> None:
    """Preferences: a model is given labels and puts out their likelihood, and the training lowers another loss."""
    losses = np.concatenate([np.linspace(2, 0.6, 6), np.linspace(0.62, 1.3, 14)])
    evals = make.evals(20, COUNT // 20) | {"loss": losses.tolist()}

    def answer(*calls: tuple[int, str, bool]) -> str:
        rows = [{"step": step, "function": name, "training": training} for step, name, training in calls]
        return str(make.check("overfitting", make.process(evals=evals, more={"loss_calls": rows}))[0])

    assert answer((5, "the model's own loss", True), (5, "written out", True)) == "skipped"
    assert answer((5, "the model's own loss", True)) == "fired"
    assert answer((5, "the model's own loss", True), (90, "written out", True)) == "fired", "another training"
    assert answer((5, "the model's own loss", True), (5, "written out", False)) == "fired", "a metric"


LOOPS = [
    {"site": 5, "role": "epochs", "line": 30, "source": "for epoch in range(params['epochs']):"},
    {"site": 6, "role": "constant", "line": 4, "source": '"epochs": 20,', "name": "epochs", "own_name": "epochs"}
    | {"value": "20"},
    {"site": 7, "role": "load_state_dict", "line": 50, "source": "model.load_state_dict(best_state)"},
]


@pytest.mark.parametrize(
    ("planned", "line", "seen"),
    [([20], 4, 30), ([40], 30, 12), ([], 12, None), ([20, 20], 12, None)],
    ids=["set by a constant", "given elsewhere", "no loop over epochs", "several loops"],
)
def test_a_training_that_overfits_stops_in_its_loop_over_epochs(make, planned, line, seen) -> None:
    losses = np.concatenate([np.linspace(2, 0.6, 6), np.linspace(0.62, 1.3, 14)])
    evals = make.evals(20, COUNT // 20) | {"loss": losses.tolist(), "site": [4] * 20}
    sites = [{"site": 4, "role": "forward", "line": 12, "source": "return model(x)"}, *LOOPS[: 2 if planned else 0]]
    events = [{"kind": "epochs-planned", "value": float(one)} for one in planned]
    process = make.process(evals=evals, events=events, sites=[{"file": "train.py", **row} for row in sites])
    finding = constants.at_its_constant(make.check("overfitting", process)[2], process)
    assert (finding.location.line, finding.seen_at and finding.seen_at.line) == (line, seen)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, "Line 50 loads the best weights again, so only time is lost"),
        ({"taken_at": 400}, "Keep the weights"),  # the last ones
        ({"step": 200}, "Keep the weights"),  # and trained on
        ({"own": 8}, "Keep the weights"),  # the model's own memory
        ({"from_other": True}, "Keep the weights"),
    ],
    ids=["the best", "the last", "midway", "aliased", "of another model"],
)
def test_weights_that_are_loaded_again_at_the_end_are_kept_already(make, state, words) -> None:
    losses = np.concatenate([np.linspace(2, 0.6, 6), np.linspace(0.62, 1.3, 14)])
    load = {"step": 400, "given": 8, "expected": 8, "missing": 0, "own": 0, "taken_at": 120, "site": 7, **state}
    evals = make.evals(20, COUNT // 20) | {"loss": losses.tolist()}
    finding = make.check("overfitting", make.process(evals=evals, more={"loads": [load]}, sites=LOOPS))[2]
    assert finding.fix.startswith(words)
    assert ("best.pt" in finding.fix_code) == words.startswith("Keep")


@pytest.mark.parametrize(
    ("losses", "train"),
    [
        (np.linspace(2, 0.5, 20), None),  # still falling
        (0.6 + 0.02 * np.random.default_rng(0).standard_normal(20), None),  # flat
        (np.concatenate([np.linspace(2, 0.6, 16), np.linspace(0.65, 1, 4)]), None),  # four passes at the end
        (np.concatenate([np.linspace(2, 0.6, 6), np.linspace(0.62, 1.3, 14)]), np.linspace(0.5, 3, COUNT)),  # diverges
        # A bump.
        (np.concatenate([np.linspace(2, 0.6, 10), [1.5, 1.4, 1.2, 1, 0.9, 0.8, 0.75, 0.7, 0.65, 0.62]]), None),
    ],
)
def test_overfitting_is_silent(make, losses, train) -> None:
    assert make.check("overfitting", overfitted(make, losses, train))[0] == "passed"


def test_overfitting_needs_passes_a_level_and_one_optimizer(make) -> None:
    rising = np.concatenate([np.linspace(2, 0.6, 6), np.linspace(0.62, 1.3, 14)])
    assert make.check("overfitting", overfitted(make, rising[:4]))[0] == "skipped"
    assert make.check("overfitting", overfitted(make, rising - 2))[0] == "skipped"
    gan = make.steps() | {"optimizer": [index % 2 for index in range(COUNT)]}
    evals = make.evals(20, 20) | {"loss": rising.tolist()}
    assert make.check("overfitting", make.process(gan, evals=evals))[0] == "skipped"


def test_validation_fluctuation_of_a_tiny_set_is_sampling_noise(make) -> None:
    losses = (0.7 * np.exp(np.random.default_rng(0).normal(0, 0.4, 20))).tolist()
    evals = make.evals(20, 20) | {"loss": losses}
    assert make.check("validation-fluctuation", make.process(evals=evals))[0] == "fired"
    tiny = evals | {"samples": [50] * 20}
    assert make.check("validation-fluctuation", make.process(evals=tiny))[0] == "passed"


@pytest.mark.parametrize(
    ("length", "shuffled", "status"), [(40, True, "fired"), (40, False, "passed"), (3, True, "passed")]
)
def test_validations_that_take_a_part_of_a_shuffled_loader(make, length: int, shuffled: bool, status: str) -> None:
    losses = (0.7 * np.exp(np.random.default_rng(0).normal(0, 0.4, 20))).tolist()
    evals = make.evals(20, 20) | {"loss": losses, "samples": [16] * 20, "forwards": [1] * 20, "loader": [1] * 20}
    loaders = [
        {"loader": 0, "dataset": "Days", "iterable": False, "length": 75, "batch_size": 64, "shuffled": True},
        {"loader": 1, "dataset": "Days", "iterable": False, "length": length, "batch_size": 16, "shuffled": shuffled},
    ]
    found, _, finding = make.check("validation-fluctuation", make.process(evals=evals, loaders=loaders))
    assert found == status
    if status == "fired":
        assert finding.title == "Each validation uses 1 of 40 batches, different ones each time"


@pytest.mark.parametrize(
    "losses",
    [
        np.exp(np.linspace(0, 5, 20)),  # an overfitted model's, ever steeper
        np.exp(-np.linspace(0, 6, 20)),  # one that learns
        np.concatenate([np.geomspace(9, 0.5, 10), np.geomspace(0.51, 6, 10)]),  # first the one, then the other
    ],
)
def test_a_trend_of_the_validation_is_no_fluctuation(make, losses) -> None:
    calm = make.steps() | {"loss": [0.7] * COUNT}
    for rule in ("validation-fluctuation", "eval-in-train-mode"):
        evals = make.evals(20, 20) | {"loss": losses.tolist()}
        assert make.check(rule, make.process(calm, evals=evals, optimizers=[], loaders=[]))[0] != "fired"


def test_what_validation_is_compared_with_is_no_training_loss_of_nearly_zero(make) -> None:
    """A memorised training set has a loss of a thousandth, and its noise is of that size."""
    random = np.random.default_rng(2)
    evals = make.evals(20, 20) | {"loss": (2.0 * np.exp(random.normal(0, 0.1, 20))).tolist()}
    memorised = make.steps() | {"loss": (1e-3 * np.exp(random.normal(0, 0.3, COUNT))).tolist()}
    assert make.check("validation-fluctuation", make.process(memorised, evals=evals))[0] == "passed"
    still = make.steps() | {"loss": [2.0] * COUNT}
    _, _, finding = make.check("validation-fluctuation", make.process(still, evals=evals))
    assert "of its level, while the training loss hardly moves." in finding.summary
    assert "times less" not in finding.summary
    assert "over 100" in [one.value for one in finding.evidence]


def with_momentum(make, momentum: float | None, noise: float, **more):
    random = np.random.default_rng(0)
    train = 0.7 * np.exp(random.normal(0, 0.25, COUNT))
    evals = make.evals(20, 20) | {"loss": (0.7 * np.exp(random.normal(0, noise, 20))).tolist()}
    models = [{"model": 0, "name": "Net", "parameters": 4, "elements": 899, "momentum": momentum}]
    process = make.process(make.steps() | {"loss": train.tolist()}, evals=evals, models=models, more=more)
    return make.check("validation-fluctuation", process)


def test_running_statistics_of_the_last_batch_explain_a_validation_that_swings(make) -> None:
    status, _, finding = with_momentum(make, 0.95, 0.2)
    assert (status, finding.confidence) == ("fired", "likely")
    assert "takes 95% of its running statistics from the last batch alone" in finding.summary
    assert with_momentum(make, 0.1, 0.2)[0] == "passed", "no cause is seen, and training is noisy as well"
    assert with_momentum(make, None, 0.2)[0] == "passed"
    assert with_momentum(make, 0.95, 0.03)[0] == "passed", "batches that are alike: no harm is done"


@pytest.mark.parametrize(
    ("source", "example"),
    [
        ("self.norm = nn.BatchNorm2d(width, momentum=MOMENTUM)", "self.norm = nn.BatchNorm2d(width, momentum=0.1)"),
        ("self.norm = nn.BatchNorm2d(width)", "norm = nn.BatchNorm2d(channels, momentum=0.1)"),  # set afterwards
    ],
)
def test_the_line_that_gives_a_batch_normalisation_its_momentum(make, source: str, example: str) -> None:
    site = {"site": 7, "role": "module", "file": "net.py", "line": 9, "function": "__init__", "source": source}
    module = {"model": 0, "module": "norm", "kind": "BatchNorm2d", "made_at": 7}
    finding = with_momentum(make, 0.99, 0.2, modules=[module], sites=[site])[2]
    assert finding.fix_code == example
    assert finding.location.line == 9


@pytest.mark.parametrize(("optimizer", "line"), [(None, 3), (0.9, 3), (0.99, 9)])
def test_a_momentum_that_is_set_elsewhere(make, optimizer: float | None, line: int) -> None:
    text = "NORM = dict(momentum=0.99, eps=1e-3)"
    sites = [
        {"site": 7, "role": "module", "line": 9, "source": "self.norm = nn.BatchNorm2d(width, **NORM)"},
        {"site": 8, "role": "constant", "line": 3, "source": text, "excerpt": text, "excerpt_line": 3}
        | {"name": "momentum", "own_name": "momentum", "value": "0.99"},
    ]
    random = np.random.default_rng(0)
    process = make.process(
        make.steps() | {"loss": (0.7 * np.exp(random.normal(0, 0.25, COUNT))).tolist()},
        evals=make.evals(20, 20) | {"loss": (0.7 * np.exp(random.normal(0, 0.2, 20))).tolist()},
        models=[{"model": 0, "name": "Net", "parameters": 4, "elements": 899, "momentum": 0.99}],
        optimizers=[{"optimizer": 0, "name": "SGD", "options": json.dumps({"lr": 0.1, "momentum": optimizer})}],
        sites=[{"file": "net.py", **row} for row in sites],
        more={"modules": [{"model": 0, "module": "norm", "kind": "BatchNorm2d", "made_at": 7}]},
    )
    finding = constants.at_its_constant(make.check("validation-fluctuation", process)[2], process)
    assert finding.location.line == line
    assert finding.diff is None or finding.diff.added == ["NORM = dict(momentum=0.1, eps=1e-3)"]


@pytest.mark.parametrize(
    ("whole", "trained", "measured", "status"),
    [
        (True, ("cross_entropy",), ("cross_entropy",), "fired"),
        (False, ("cross_entropy", "mse_loss"), ("mse_loss",), "skipped"),  # a term of the loss
        (True, ("huber_loss",), ("mse_loss",), "skipped"),
        (True, ("written out",), ("l1_loss",), "skipped"),
    ],
)
def test_a_validation_by_another_measure_than_training_is_no_fluctuation(
    make, whole, trained, measured, status
) -> None:
    evals = make.evals(20, 20) | {
        "loss": (0.7 * np.exp(np.random.default_rng(0).normal(0, 0.4, 20))).tolist(),
        "loss_is_whole": [whole] * 20,
    }
    calls = [{"step": 0, "function": one, "training": True} for one in trained]
    calls += [{"step": 20, "function": one, "training": False} for one in measured]
    process = make.process(evals=evals, more={"loss_calls": calls})
    assert make.check("validation-fluctuation", process)[0] == status


def test_two_validation_sets_do_not_fluctuate(make) -> None:
    both = make.evals(20, 20) | {"loss": [0.5, 5.0] * 10, "loader": [1, 2] * 10}
    assert make.check("validation-fluctuation", make.process(evals=both))[0] == "passed"


def test_validation_nonfinite(make) -> None:
    evals = make.evals() | {"loss": [0.5, NAN, 0.4, NAN]}
    _, _, finding = make.check("validation-nonfinite", make.process(evals=evals))
    assert (finding.first_step, finding.severity) == (200, "critical")
    assert "Behind it may be a validation sample, a mean over no samples" in finding.summary
    empty = [{"kind": "empty-loss", "name": "smooth_l1_loss", "step": 200, "time": 1.0}]
    line = {"site": 9, "role": "empty-loss", "file": "t.py", "line": 49, "function": "forward",
            "source": "location = F.smooth_l1_loss(place[found], where[found], beta=0.1)"}  # fmt: skip
    _, _, finding = make.check("validation-nonfinite", make.process(evals=evals, events=empty, sites=[line]))
    assert "smooth_l1_loss at line 49 was called with no elements" in finding.summary
    assert (finding.location.line, "clamp(min=1)" in finding.fix_code) == (49, True)
    row = {"step": 200, "function": "cross_entropy", "site": 3, "training": False, "ignored": 1.0, "value": NAN}
    ignored = make.check("validation-nonfinite", make.process(evals=evals, more={"loss_calls": [row]}))[2]
    assert "All targets of cross_entropy at line 60 were ignore_index" in ignored.summary
    assert 'reduction="sum"' in ignored.fix_code
    some = make.check("validation-nonfinite", make.process(evals=evals, more={"loss_calls": [row | {"ignored": 0.5}]}))
    assert "ignore_index" not in some[2].summary
    lost = make.steps() | {"loss": [1.0] * 150 + [NAN] * 250}
    assert make.check("validation-nonfinite", make.process(lost, evals=evals))[0] == "passed"
    assert make.check("validation-nonfinite", make.process())[0] == "passed"


@pytest.mark.parametrize("case", ["finite after it", "none after it", "broken after it", "not finite later", "none"])
def test_validation_nonfinite_says_no_more_of_the_training_than_is_known(make, case: str) -> None:
    """Whether the weights were broken shows in the next training loss; before the first step no loss says anything."""
    evals = make.evals(2) | {"loss": [0.5, NAN], "after_step": [100, 0 if case == "none" else 200]}
    losses: list[float] = make.steps()["loss"]
    if case == "broken after it":
        losses = losses[:200] + [NAN] * 200
    if case == "not finite later":
        losses = losses[:300] + [NAN] * 100
    count = 200 if case == "none after it" else 400
    steps = {name: values[:count] for name, values in (make.steps() | {"loss": losses}).items()}
    finding = make.check("validation-nonfinite", make.process(steps, evals=evals))[2]
    assert finding.title.startswith("1 of 2 validation losses is NaN or Inf")
    assert ("training losses are finite" in finding.title) == (case in ("finite after it", "none after it"))
    assert ("training loss was finite" in finding.title) == (case == "not finite later")
    assert ("weights themselves are not broken" in finding.summary) == (case in ("finite after it", "not finite later"))
    assert ("may be broken as well" in finding.summary) == (case == "broken after it")
    assert finding.confidence == ("likely" if case in ("broken after it", "none") else "certain")


def test_train_in_eval_mode_after_a_validation(make) -> None:
    steps = make.steps() | {
        "model_in_train": [True] * 100 + [False] * 300,
        "modules_in_train": [3] * 100 + [0] * 300,
    }
    _, _, finding = make.check("train-in-eval-mode", make.process(steps))
    assert (finding.severity, finding.confidence, finding.first_step) == ("critical", "certain", 101)
    for kinds, drops, norms in (
        ("Dropout x7", True, False),
        ("BatchNorm1d x3, Dropout x3", True, True),
        ("BatchNorm2d x20", False, True),
        ("MultiheadAttention x2", False, False),
    ):
        models = [{"model": 0, "name": "Net", "sensitive": kinds}]
        said = make.check("train-in-eval-mode", make.process(steps, models=models))[2].summary
        assert ("Dropout is off" in said, "BatchNorm uses" in said) == (drops, norms), "only what is there"


@pytest.mark.parametrize(("later", "status"), [([1] * 300, "fired"), ([3] * 300, "passed")])
def test_a_pretrained_part_that_stays_in_eval_mode(make, later: list[int], status: str) -> None:
    """`later`: how many of three modules are in train mode after the first epoch."""
    steps = make.steps() | {"modules_in_train": [1] * 100 + later, "modules_sensitive": [3] * 400}
    text = json.dumps({"site": 2, "optimizer": 0, "modules": 2})
    event = {"kind": "pretrained-mode", "name": "BertModel", "step": 1, "time": 1.0, "text": text}
    found, _, finding = make.check("train-in-eval-mode", make.process(steps, events=[event]))
    assert found == status
    if finding is not None:
        assert (finding.severity, finding.first_step, finding.last_step) == ("warning", 1, 400)
        assert "2 modules of it that drop values" in finding.summary


def test_a_pretrained_model_that_is_all_there_is_stays_in_eval_mode(make) -> None:
    """No module is in train mode: the line that loads it is known all the same; not of a model that was switched."""
    loads = {"site": 2, "role": "pretrained", "file": "t.py", "line": 7, "function": "__init__"}
    text = "self.model = AutoModel.from_pretrained(path)"
    sites = [loads | {"source": text, "excerpt": f"        {text}", "excerpt_line": 7}]
    event = {"kind": "pretrained-mode", "name": "BertModel", "step": 1, "time": 1.0}
    event |= {"text": json.dumps({"site": 2, "optimizer": 0, "modules": 3})}
    steps = make.steps() | {"modules_in_train": [0] * 400, "modules_sensitive": [3] * 400}
    steps |= {"model_in_train": [False] * 400}
    finding = make.check("train-in-eval-mode", make.process(steps, events=[event], sites=sites))[2]
    assert (finding.confidence, finding.location.line) == ("likely", 7)
    assert finding.diff.added[-1].strip() == "self.model.train()"
    switched = steps | {"modules_in_train": [3] * 100 + [0] * 300, "model_in_train": [True] * 100 + [False] * 300}
    assert make.check("train-in-eval-mode", make.process(switched, sites=sites))[2].confidence == "certain"


@pytest.mark.parametrize(
    ("kinds", "dropout", "norm"),
    [
        ("Dropout x7", True, ""),
        ("BatchNorm1d x3, Dropout x3", True, "BatchNorm"),
        ("BatchNorm2d x20", False, "BatchNorm"),
        ("GumbelGate x2", False, ""),
    ],
)
def test_train_in_eval_mode_names_the_modules_that_are_there(make, kinds: str, dropout: bool, norm: str) -> None:
    off = {"model_in_train": [True] * 100 + [False] * 300, "modules_in_train": [3] * 100 + [0] * 300}
    models = [{"model": 0, "name": "Net", "sensitive": kinds}]
    summary = make.check("train-in-eval-mode", make.process(make.steps() | off, models=models))[2].summary
    assert ("Dropout is off" in summary) == dropout
    assert ("statistics" in summary) == bool(norm)
    assert norm in summary


@pytest.mark.parametrize(
    ("evaluated", "status"),
    [
        ([100, 200, 250, 300, 350], "fired"),  # an evaluation that does not always switch back
        ([150], "passed"),  # the script goes to eval mode for reasons of its own
    ],
)
def test_train_in_eval_mode_after_some_validations(make, evaluated, status) -> None:
    mode = [not (100 <= index < 150 or 250 <= index < 300) for index in range(COUNT)]
    steps = make.steps() | {"model_in_train": mode, "modules_in_train": [3 * value for value in mode]}
    evals = make.evals(len(evaluated)) | {"after_step": evaluated}
    assert make.check("train-in-eval-mode", make.process(steps, evals=evals))[0] == status


def test_train_in_eval_mode_says_what_is_known_of_how_it_came(make) -> None:
    """A part of the steps is no "since then"; who switched it is said where a validation, or one line, is known."""
    mode = [not (100 <= index < 150 or 250 <= index < 300) for index in range(COUNT)]
    steps = make.steps() | {"model_in_train": mode, "modules_in_train": [3 * value for value in mode]}
    evals = make.evals(5) | {"after_step": [100, 200, 250, 300, 350], "time_start": [5.0, 10.0, 12.5, 15.0, 17.5]}
    partly = make.check("train-in-eval-mode", make.process(steps, evals=evals))[2]
    assert partly.title == "33% of the steps since step 101 trained in eval mode"
    assert "A validation switched it to eval mode, and it was only sometimes switched back" in partly.summary
    off = {"model_in_train": [True] * 150 + [False] * 250, "modules_in_train": [3] * 150 + [0] * 250}
    by_itself = make.check("train-in-eval-mode", make.process(make.steps() | off))[2]
    assert "It was switched to eval mode, and it was never switched back" in by_itself.summary
    evaluates = {"site": 20, "role": "eval-mode", "file": "t.py", "line": 7, "function": "fit"}
    models = [{"model": 0, "name": "Net", "called_as": "net", "sensitive": "Dropout x2"},
              {"model": 1, "name": "Net", "called_as": "teacher", "sensitive": "BatchNorm1d x2"}]  # fmt: skip
    links = [{"optimizer": 0, "model": 0, "time": 0.0, "step": 0}]
    for name, told in (("net", "Line 7 switched it"), ("teacher", "It was switched")):
        sites = [evaluates | {"source": f"{name}.eval()"}]
        process = make.process(make.steps() | off, sites=sites, models=models, more={"links": links})
        said = make.check("train-in-eval-mode", process)[2].summary
        assert told in said
        assert "BatchNorm" not in said, "which the teacher has"
    start = make.steps() | {"model_in_train": [False] * COUNT, "modules_in_train": [0] * COUNT}
    never = make.check("train-in-eval-mode", make.process(start))[2]
    assert (never.title, "validation" in never.fix) == ("The model trains in eval mode from the first step", False)


@pytest.mark.parametrize(
    ("fit", "evaluates", "model"),
    [
        ("trainer.fit(net, datamodule=data)", "describe", "net"),
        ("trainer.fit(datamodule=data, model=self.net)", "describe", "self.net"),
        ("trainer.fit(make(), data)", "describe", None),
        ("trainer.fit(net, data)", "on_train_start", None),  # within fit(), which a call before it does not reach
        ("fabric_loop(net, data)", "describe", None),
    ],
)
def test_a_mode_that_fit_finds_is_switched_before_it(make, fit: str, evaluates: str, model: str | None) -> None:
    """Lightning calls no train(), and a validation puts back what it found: the step is not the place."""
    lines = ["def main():", "    trainer = Trainer(max_epochs=2)", f"    {fit}"]
    calls = {"file": "t.py", "function": "main", "line": 90, "source": fit, "excerpt": "\n".join(lines)}
    sites = [
        {"site": 20 + at, "role": role, "excerpt_line": 88, **calls} for at, role in enumerate(("step", "backward"))
    ]
    text = "loss = F.cross_entropy(self(x), y)"
    within = {"file": "t.py", "function": "training_step", "line": 40, "source": text}
    within |= {"excerpt": f"        x, y = batch\n        {text}", "excerpt_line": 39}
    sites += [{"site": 30 + at, "role": role, **within} for at, role in enumerate(("forward", "training-call"))]
    sites += [
        {"site": 40, "role": "eval-mode", "file": "t.py", "line": 70, "function": evaluates, "source": "net.eval()"}
    ]
    off = {"model_in_train": [False] * 400, "modules_in_train": [0] * 400}
    finding = make.check("train-in-eval-mode", make.process(make.steps() | off, sites=sites))[2]
    assert ("before fit()" in finding.fix) is (model is not None)
    assert finding.location.line == (90 if model else 40)
    if model:
        assert finding.diff.added == [f"    {model}.train()"]
        assert (finding.diff.line, finding.diff.removed) == (90, [])


DISTILLED = """def distill(teacher, student, train, valid):
    opt = torch.optim.Adam(student.parameters())
    student.train()  # with dropout
    for epoch in range(9):
        for x, y in train:
            target = teacher(x)
            loss = loss_of(student(x), target, y)
            loss.backward()
        evaluate(student, valid)"""


@pytest.mark.parametrize("case", ["too late", "early", "not put back", "of another"])
def test_train_in_eval_mode_names_the_line_that_keeps_the_mode_too_late(make, case: str) -> None:
    """Read behind eval() it is eval mode, which is put back."""
    lines = ["model.eval()", "was = model.training", "yield", "model.train(was)"]
    if case == "early":
        lines[:2] = lines[1::-1]
    if case == "of another":
        lines[1] = "was = teacher.training"
    at = {"file": "t.py", "function": "judging", "excerpt": "\n".join(f"    {one}" for one in lines), "excerpt_line": 4}
    sites = [
        {"site": 20, "role": "eval-mode", "line": 4 + lines.index("model.eval()"), "source": "model.eval()", **at},
        {"site": 21, "role": "train-mode", "line": 7, "source": "model.train(was)", **at},
    ]
    off = {"model_in_train": [True] * 100 + [False] * 300, "modules_in_train": [3] * 100 + [0] * 300}
    sites = sites[:1] if case == "not put back" else sites
    finding = make.check("train-in-eval-mode", make.process(make.steps() | off, sites=sites))[2]
    if case == "too late":
        assert finding.location.line == 5
        assert "before line 5 reads the mode that line 7 restores" in finding.summary
        assert [one.strip() for one in finding.diff.added] == ["was = model.training", "model.eval()"]
    else:
        assert "restores" not in finding.summary
        assert "never switched back" in finding.summary


@pytest.mark.parametrize("case", ["once", "in the loop", "another model"])
def test_train_in_eval_mode_names_the_call_that_is_made_once(make, case: str) -> None:
    """Before the loop over epochs: the line and the edit move it. A teacher's forward in the loop is no training."""
    text = DISTILLED
    if case == "in the loop":
        text = text.replace("    student.train()  # with dropout\n    for epoch in range(9):",
                            "    for epoch in range(9):\n        student.train() if epoch == 0 else None")  # fmt: skip
    if case == "another model":
        text = text.replace("student.train()", "teacher.train()")
    roles = {4: "epochs", 6: "forward", 7: "forward", 8: "backward"}
    places = [*roles.items(), (7, "training-call")]
    lines = text.split("\n")
    excerpt = {"file": "t.py", "function": "distill", "excerpt": text, "excerpt_line": 1}
    sites = [
        {"site": 20 + at, "role": role, "line": line, "source": lines[line - 1].strip(), **excerpt}
        for at, (line, role) in enumerate(places)
    ]
    if case == "in the loop":
        sites[0] |= {"line": 3, "source": "for epoch in range(9):"}
    off = {"model_in_train": [True] * 100 + [False] * 300, "modules_in_train": [3] * 100 + [0] * 300}
    finding = make.check("train-in-eval-mode", make.process(make.steps() | off, sites=sites))[2]
    assert finding.location.line == (3 if case == "once" else 7), "the student is called there, not the teacher"
    assert ("student.train() inside the epoch loop" in finding.fix) == (case == "once")
    if case == "once":
        assert finding.diff.removed == ["    student.train()  # with dropout", "    for epoch in range(9):"]
        assert finding.diff.added == ["    for epoch in range(9):", "        student.train()  # with dropout"]
        assert finding.fix_code == "for epoch in range(9):\n    student.train()  # with dropout"


def test_train_in_eval_mode_from_the_start_may_be_meant(make) -> None:
    steps = make.steps() | {"model_in_train": [False] * COUNT, "modules_in_train": [0] * COUNT}
    _, _, finding = make.check("train-in-eval-mode", make.process(steps))
    assert (finding.severity, finding.confidence) == ("warning", "possible")
    frozen = [{"model": 0, "name": "ResNet", "sensitive": "BatchNorm2d x20"}]
    assert make.check("train-in-eval-mode", make.process(steps, models=frozen))[0] == "passed"
    partly = steps | {"modules_in_train": [1] * COUNT}
    assert make.check("train-in-eval-mode", make.process(partly))[0] == "passed"


def test_train_in_eval_mode_since_an_evaluation_before_the_first_step(make) -> None:
    steps = make.steps() | {"model_in_train": [False] * COUNT, "modules_in_train": [0] * COUNT}
    evals = make.evals(count=8)
    early = {name: [values[0], *values[:-1]] for name, values in evals.items()}
    early |= {
        "time_start": [-1.0, *list(evals["time_start"])[:-1]],
        "trained": [True] * 8,
        "model_in_train": [False] * 8,
    }
    models = [{"model": 0, "name": "Net", "sensitive": "BatchNorm1d x3, Dropout x1"}]
    unset = {"step": 0, "model": 0, "modules": 3, "of": 3, "spectral": 0, "call": 1, "training": False}
    links = [{"time": 0.1, "step": 1, "optimizer": 0, "model": 0}]
    process = make.process(steps, evals=early, models=models, more={"unset": [unset], "links": links})
    finding = make.check("train-in-eval-mode", process)[2]
    assert (finding.severity, finding.confidence) == ("critical", "likely"), "nothing of it is pretrained"
    assert "It was evaluated in eval mode before the first step, and not switched back." in finding.summary
    assert "from_pretrained" not in finding.summary
    assert "the mean 0 and variance 1 that it began with" in finding.summary
    assert "one call before the first step holds until the next evaluation" in finding.fix
    loaded = [{"step": 0, "name": "Net", "given": 9, "missing": 0, "unexpected": 0}]
    process = make.process(steps, evals=early, models=models, more={"unset": [unset], "links": links, "loads": loaded})
    assert make.check("train-in-eval-mode", process)[2].confidence == "possible"


def test_a_part_at_rest_from_the_first_step_on_loses_nothing_by_a_validation(make) -> None:
    """Only a new head trains, which has no mode; a validation that forgets train() then changes nothing."""
    frozen = [{"model": 0, "name": "ResNet", "sensitive": "BatchNorm2d x20"}]
    modes = {"model_in_train": [index < 40 for index in range(COUNT)]}
    resting = make.steps() | modes | {"modules_in_train": [0] * COUNT}
    assert make.check("train-in-eval-mode", make.process(resting, models=frozen))[0] == "passed"
    trained = make.steps() | modes | {"modules_in_train": [20 * (index < 40) for index in range(COUNT)]}
    assert make.check("train-in-eval-mode", make.process(trained, models=frozen))[2].confidence == "certain"


def test_eval_with_grad_counts_the_forwards_of_all_passes(make) -> None:
    whole_sets = {"grad_mode": [2] * 9, "forwards": [1] * 9, "after_step": list(range(9, 90, 9)), "loader": [1] * 9}
    _, _, finding = make.check("eval-with-grad", make.process(evals=make.evals(9) | whole_sets))
    assert (finding.severity, "9 of 9 passes" in finding.title) == ("warning", True)
    once = {"grad_mode": [2], "forwards": [2]}
    _, _, finding = make.check("eval-with-grad", make.process(evals=make.evals(1) | once))
    assert finding.severity == "info", "two forwards at the end cost nothing"
    assert make.check("eval-with-grad", make.process(evals=make.evals(1) | once | {"forwards": [1]}))[0] == "passed"


def test_eval_with_grad(make) -> None:
    evals = make.evals() | {"grad_mode": [2] * 4}
    assert make.check("eval-with-grad", make.process(evals=evals))[0] == "fired"
    assert make.check("eval-with-grad", make.process())[0] == "passed"
    inference = make.evals() | {"grad_mode": [1] * 4}
    assert make.check("eval-with-grad", make.process(evals=inference))[0] == "passed"
    raw = evals | {"loader": [None] * 4, "losses": [0] * 4}
    assert make.check("eval-with-grad", make.process(evals=raw))[0] == "fired"
    alike = raw | {"model_in_train": [True] * 4}
    assert make.check("eval-with-grad", make.process(evals=alike))[0] == "fired"
    unlike = alike | {"forwards": [2, 7, 3, 9]}
    assert make.check("eval-with-grad", make.process(evals=unlike))[0] == "skipped"
    gave_up = evals | {"loader": [0] * 4, "losses": [0] * 4, "model_in_train": [True] * 4}
    assert make.check("eval-with-grad", make.process(evals=gave_up))[0] == "skipped"
