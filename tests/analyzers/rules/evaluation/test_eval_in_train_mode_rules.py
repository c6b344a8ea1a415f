"""eval-in-train-mode and eval-with-grad: what they fire on, and what only looks like a validation."""

from __future__ import annotations

import numpy as np
import pytest

from tracelyze.analyzers import diagnose

COUNT = 400


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
        ({"model_in_train": [True] * 4, "modules_sensitive": [0] * 4}, "skipped"),  # nothing depends on the mode
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
