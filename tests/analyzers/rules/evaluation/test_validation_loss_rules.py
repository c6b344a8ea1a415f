"""Validation losses: overfitting, fluctuation, losses that are not finite, and what looks the same and is healthy."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tracelyze.analyzers.script.settings import constants

COUNT = 400


NAN = float("nan")


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


@pytest.mark.parametrize(("different", "length", "fires"), [(3, 63, True), (400, 63, False), (20, 1, False)])
def test_a_sampler_that_draws_the_same_few_samples(make, different, length, fires) -> None:
    """Rare samples that come often are drawn beside many others; a small dataset comes once in each pass."""
    losses = np.concatenate([np.linspace(2, 0.6, 6), np.linspace(0.62, 1.3, 14)])
    rows = [
        {
            "step": at,
            "loader": 0,
            "trained": True,
            "field": "0",
            "dtype": "float32",
            "shape": "64x20",
            "print": f"b{at}",
        }
        | {"prints": " ".join(f"s{(at * 64 + one) % different}" for one in range(64))}
        for at in range(20)
    ]
    line = "sampler = WeightedRandomSampler(class_weights, len(y))"
    site = {"site": 60, "role": "dataloader", "file": "a.py", "function": "build", "line": 34, "excerpt_line": 33}
    site |= {"source": "return DataLoader(data, 64, sampler=sampler)"}
    site |= {"excerpt": f"    {line}\n    {site['source']}"}
    steps = make.steps() | {"loader": [0] * COUNT}
    evals = make.evals(20, 20) | {"loss": list(map(float, losses))}
    loaders = [{"loader": 0, "sampler": "WeightedRandomSampler", "shuffled": True, "batch_size": 64}]
    loaders[0]["length"] = length
    finding = make.check(
        "overfitting", make.process(steps, evals=evals, sites=[site], more={"batches": rows, "loaders": loaders})
    )[2]
    assert ("are different" in finding.summary) is fires
    if fires:
        assert finding.title == "The model overfits to 3 samples: its sampler draws the same again and again"
        assert finding.location.line == 33
        assert line.replace("class_weights,", "torch.as_tensor(class_weights)[labels],") in finding.fix_code


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
    counted = [{"site": 8 + at, "role": role, "file": "train.py", "line": 40 + at, "source": "self.bad_epochs"}
               for at, role in enumerate(("waits-reset", "waits"))]  # fmt: skip
    for apart, stops in ((counted, True), (counted[1:], False), ([*counted, counted[1] | {"line": 60}], False)):
        process = make.process(evals=evals, more={"loads": [load]}, sites=[*LOOPS, *apart])
        finding = make.check("overfitting", process)[2]
        assert finding.fix.startswith(words)
        assert (". Line 41 counts validations without progress: stop after fewer of them." in finding.fix) == stops
        assert bool(finding.fix_code) != stops, "the script has all of that"


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
    ("momentum", "noise", "level", "status"),
    [
        (0.95, 0.4, 0.03, "fired"),
        (0.95, 0.15, 0.03, "passed"),  # as the losses of a model that overfits move
        (0.95, 0.4, 0.7, "passed"),  # training moves as much
        (0.1, 0.4, 0.03, "passed"),
    ],
)
def test_a_low_training_loss_that_moves_by_as_large_a_share_of_its_level(make, momentum, noise, level, status) -> None:
    """A loss of 0.03 that moves by a half moves little beside one of 0.7, where running statistics explain that."""
    random = np.random.default_rng(0)
    evals = make.evals(20, 20) | {"loss": (0.7 * np.exp(random.normal(0, noise, 20))).tolist()}
    models = [{"model": 0, "name": "Net", "parameters": 4, "elements": 899, "momentum": momentum}]
    drift = np.repeat(np.exp(np.random.default_rng(1).normal(0, 0.5, 20)), COUNT // 20)
    process = make.process(make.steps() | {"loss": (level * drift).tolist()}, evals=evals, models=models)
    found, _, finding = make.check("validation-fluctuation", process)
    assert found == status
    assert finding is None or "times less, both in the same unit" in finding.summary


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


@pytest.mark.parametrize(("calls", "status"), [(20, "passed"), (3, "fired")])
def test_a_measure_of_generated_samples_does_not_mix_with_the_validation_loss(make, calls: int, status: str) -> None:
    """A diffusion model is validated by its loss, and now and then by the error of what it generates in many calls."""
    losses = np.where(np.arange(20) % 3 == 1, 300.0, 0.5)
    forwards = np.where(np.arange(20) % 3 == 1, calls, 3)
    evals = make.evals(20, 20) | {"loss": losses.tolist(), "forwards": forwards.tolist()}
    evals |= {"losses": np.where(forwards == 20, 1, 3).tolist(), "samples": [300] * 20}
    assert make.check("validation-fluctuation", make.process(evals=evals))[0] == status
