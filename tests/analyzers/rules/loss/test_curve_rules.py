"""Diagnoses from curves alone, as logs of other programs hold them: each with the healthy curve that looks like it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracelyze
from tracelyze.analyzers import statistics
from tracelyze.analyzers.rule import Limits
from tracelyze.analyzers.rules.loss.loss_spikes import loss_leaps
from tracelyze.analyzers.rules.loss.loss_spikes import rule as loss_spikes

SHARED = Path(__file__).resolve().parents[5] / "shared" / "recordings"
RECORDINGS = Path(os.environ.get("TRACELYZE_RECORDINGS", SHARED))
COUNT = 400
STEPS = np.arange(1, COUNT + 1)


def log(make: Any, loss: Any, **columns: Any) -> Any:
    """A process as an importer makes it: steps with a loss, nothing else but these columns and tables."""
    loss = np.asarray(loss, dtype=float)
    steps = {"optimizer": [0] * len(loss), "step": list(range(1, len(loss) + 1)), "loss": loss.tolist()}
    tables = {name: columns.pop(name) for name in ("evals", "more", "facts", "sites") if name in columns}
    tables = {"evals": {}, "sites": []} | tables
    return make.process(steps | columns, optimizers=[], loaders=[], models=[], **tables)


def evaluations(validation: Any, training: Any) -> dict[str, list[Any]]:
    """Evaluations of both splits at the same steps."""
    after = [10 * (index + 1) for index in range(len(validation)) for _ in range(2)]
    losses = [float(value) for pair in zip(validation, training, strict=True) for value in pair]
    purposes = ["validation", "training"] * len(validation)
    return {"after_step": after, "loss": losses, "trained": [True] * len(after), "purpose": purposes}


def scalars(phase: str = "train", **curves: Any) -> dict[str, list[dict[str, Any]]]:
    """The table scalars with a value of each curve for every step. `__` stands for a slash in a name."""
    return {
        "scalars": [
            {"step": n, "own_step": n, "phase": phase, "name": name.replace("__", "/"), "value": float(value)}
            for name, values in curves.items()
            for n, value in enumerate(values, 1)
        ]
    }


FALLING = 0.4 + 3 * np.exp(-STEPS / 80)
FEW = 0.5 + 3 * np.exp(-np.arange(30) / 6)


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


def leaping(times: int, length: int) -> np.ndarray:
    losses = FALLING * np.exp(np.random.default_rng(1).normal(0, 0.02, COUNT))
    for place in np.linspace(120, 340, times).astype(int):
        losses[place : place + length] *= np.linspace(8, 2, length)
    return losses


@pytest.mark.parametrize(
    ("losses", "status"),
    [
        (leaping(3, 12), "fired"),
        (leaping(1, 12), "passed"),  # one leap that is regained
        (leaping(6, 1), "passed"),  # single batches
        (np.exp(np.random.default_rng(2).normal(0, 1, COUNT)), "passed"),  # heavy noise
        (FALLING, "passed"),
        (FALLING[:20], "skipped"),
    ],
    ids=["leaps", "one", "batches", "noise", "falls", "short"],
)
def test_leaps_of_the_loss(make, losses, status) -> None:
    assert make.check("loss-spikes", log(make, losses))[0] == status


def broken_samples(count: int = 1600) -> np.ndarray:
    """Every tenth batch holds a sample whose loss is far above all others, wherever it comes."""
    random = np.random.default_rng(4)
    losses = 0.07 * np.exp(random.normal(0, 0.25, count)) + np.exp(-np.arange(count) / 40)
    return losses + 195.0 * (random.random(count) < 0.1)


def test_broken_samples_that_come_close_together_by_chance_are_no_leaps(make) -> None:
    """Three of five batches in a row: with one in ten, that happens some times in a run of this length."""
    losses = broken_samples()
    assert make.check("loss-spikes", log(make, losses))[0] == "passed"
    for place in (500, 900):
        losses[place : place + 20] = np.linspace(60, 20, 20)
    _, _, finding = make.check("loss-spikes", log(make, losses))
    assert "At steps 501 and 901 the loss jumped" in finding.summary, "twenty in a row are no chance"


@pytest.mark.parametrize(("spread", "fired"), [(14.0, True), (1.1, False)])
def test_a_tenth_of_the_batches_and_more_is_told_where_their_targets_lie_far_out(make, spread: float, fired) -> None:
    losses = broken_samples()
    bad = {int(step) for step in np.flatnonzero(losses > 100)}
    looked = sorted({*range(20), *range(200, 1600, 100), *sorted(bad)[::20]})
    calls = [
        {"step": step, "site": 1, "training": True, "target_varies": spread if step in bad else 0.8, "value": 1.0}
        for step in looked
    ]
    steps = {**make.steps(len(losses)), "loss": losses.tolist(), "batch_size": [64] * len(losses)}
    status, _, finding = make.check("loss-spikes", make.process(steps, evals={}, more={"loss_calls": calls}))
    assert (status == "fired") == fired, "else it may be a second kind of data"
    if fired:
        assert "standard deviation of their targets is 14 or more in all" in finding.summary
        assert " in a row at most" in finding.summary


@pytest.mark.parametrize(("start", "status"), [(2.0, "fired"), (2000.0, "passed")])
def test_leaps_far_below_the_first_losses(make, start: float, status: str) -> None:
    """A fit without noise, as of an equation, bumps about when there is next to nothing left to learn."""
    losses = leaping(3, 12)
    losses[:80] *= np.geomspace(start / losses[0], 1, 80)
    assert make.check("loss-spikes", log(make, losses))[0] == status


@pytest.mark.parametrize(("height", "status"), [(60.0, "fired"), (1.0, "passed")])
def test_tall_leaps_of_a_loss_that_wanders_about_its_level(make, height: float, status: str) -> None:
    """How much of the run leaps fill is counted for what comes near them: each falls back within some steps."""
    noise = np.random.default_rng(0).normal(0, 0.25, 450)
    wander = np.log(3) * np.sin(np.arange(450) / 17) ** 8  # to twice the lowest level and more, again and again
    since = np.arange(450) % 90
    leaps = np.where(np.arange(450) >= 90, np.log(height) * np.exp(-since / 12), 0.0)
    losses = 0.012 * np.exp(noise + wander + leaps)
    losses[:20] = np.geomspace(0.8, 0.05, 20)
    found, _, finding = make.check("loss-spikes", log(make, losses))
    assert found == status
    if finding is not None:
        assert "At steps 91, 181, 271 and 361 the loss jumped" in finding.summary
        assert "They come every 90 steps" in finding.summary


def test_leaps_behind_an_update_that_was_measured_are_no_other_objective(make) -> None:
    """An ordinary gradient and rate: what the optimizer makes of them is known where the update was measured."""
    loss = 0.01 + 3 * np.exp(-(np.arange(COUNT) % 130) / 8)
    sizes = {1: 0.01, 2: 0.01, 16: 0.01, 54: 0.01, 130: 0.5, 260: 0.5}
    rows = [
        {"step": step, "optimizer": 0, "elements": 64, "parameter": "w", "weight_norm": 1.0, "update_norm": size}
        for step, size in sizes.items()
    ]
    for looks, severity in ((rows, "warning"), (rows[:4], "info")):
        process = log(make, loss, grad_norm=[1.0] * COUNT, more={"parameters": looks})
        assert make.check("loss-spikes", process)[2].severity == severity


@pytest.mark.parametrize(("height", "norms", "said"), [(9.0, 1.0, True), (9.0, None, False), (3.0, 1.0, False)])
def test_leaps_that_neither_gradient_nor_rate_explains(make, height: float, norms: float | None, said: bool) -> None:
    """To more than twice the first loss: what the optimizer's state made of an ordinary gradient, and who was there."""
    loss = 1 + 2 * np.exp(-np.arange(COUNT) / 20)
    for begin in (151, 251, 351):
        loss[begin:] += height * np.exp(-np.arange(len(loss) - begin) / 6)
    evals = make.evals(3, 100) | {"after_step": [150, 250, 350]}
    process = log(make, loss, grad_norm=[norms] * COUNT, lr=[1e-3] * COUNT, evals=evals)
    _, _, finding = make.check("loss-spikes", process)
    assert ("optimizer state or the weights were changed" in finding.summary) is said
    assert ("An evaluation ran right before each" in finding.summary) is said
    assert ("copy.deepcopy(optimizer.state_dict())" in finding.fix_code) is said


@pytest.mark.parametrize(("before", "severity"), [(1.0, "info"), (30.0, "warning")])
def test_leaps_to_another_task(make, before: float, severity: str) -> None:
    """New classes from one step on: the loss leaps to what it was at first, and no update explains it."""
    task = np.arange(COUNT) % 130
    loss = 0.01 + 3 * np.exp(-task / 8)
    norms = np.full(COUNT, 1.0)
    norms[[129, 259]] = before
    found, _, finding = make.check("loss-spikes", log(make, loss, grad_norm=norms.tolist()))
    assert (found, finding.severity) == ("fired", severity)


@pytest.mark.parametrize(("longer", "status"), [(2, "passed"), (1, "fired")])
def test_leaps_at_which_samples_become_longer(make, longer: float, status: str) -> None:
    places = np.linspace(120, 340, 3).astype(int)
    sampled = [1, 2, *range(10, COUNT, 10)]
    rows = [
        {"step": at, "module": "", "order": 1, "elements": 640 * longer ** int((places < at).sum())} for at in sampled
    ]
    assert make.check("loss-spikes", log(make, leaping(3, 12), more={"activations": rows}))[0] == status


def batches(make, losses: np.ndarray, size: int = 32):
    return make.process(steps={**make.steps(len(losses)), "loss": losses.tolist(), "batch_size": [size] * len(losses)})


def corrupt(every: int, factor: float, count: int = 600) -> np.ndarray:
    losses = 0.2 + 2 * np.exp(-np.arange(count) / 80) + np.random.default_rng(5).normal(0, 0.01, count)
    bad = np.arange(7, count, every)
    bad = bad[bad >= count // 10]  # at first no label is known, and wrong ones look like right ones
    losses[bad] = np.maximum(losses[bad], factor)
    return losses


@pytest.mark.parametrize(
    ("losses", "size", "status"),
    [
        (corrupt(25, 3.0), 32, "fired"),
        (corrupt(25, 3.0), 4, "passed"),  # one hard sample makes the loss of four
        (corrupt(25, 0.5), 32, "passed"),  # a rare kind that is hard, and not worse than at first
        (corrupt(4, 3.0), 32, "passed"),  # a second kind of data
        (corrupt(250, 3.0), 32, "passed"),  # two bad batches
        (corrupt(600, 3.0) * np.exp(np.abs(np.random.default_rng(3).standard_t(2, 600))), 32, "passed"),  # heavy tail
    ],
    ids=["bad", "small", "hard", "mixture", "two", "tail"],
)
def test_single_batches_that_stand_apart(make, losses, size, status) -> None:
    found, _, finding = make.check("loss-spikes", batches(make, losses, size))
    assert found == status
    if finding is not None:
        assert finding.title.startswith("21 single batches")


@pytest.mark.parametrize(
    ("roles", "line"),
    [
        ({"backward": 9}, 9),
        ({"backward": 9, "loader": 7}, 7),
        ({"backward": 9, "yields": 3, "batches": 1}, 3),
    ],
)
def test_single_batches_are_looked_for_where_the_loop_takes_them(make, roles: dict[str, int], line: int) -> None:
    site = {"file": "t.py", "function": "main", "source": "x"}
    sites = [site | {"site": 60 + at, "role": role, "line": at} for role, at in roles.items()]
    losses = corrupt(25, 3.0)
    columns = {**make.steps(len(losses)), "loss": losses.tolist(), "batch_size": [32] * len(losses)}
    own = [{"optimizer": 0, "name": "Adam", "backward_site": 69}]
    finding = make.check("loss-spikes", make.process(steps=columns, sites=sites, optimizers=own))[2]
    assert finding.location.line == line


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((-1.0, 999.9), "field 1 reaches 1,000 or more in all 21 such batches that were looked at, and in none of"),
        ((-9999.0, 3.0), "field 1 reaches -9,999 or less in all 21 such"),
        ((-1.0, 9.0), "wrong labels or units"),  # within the tail of the others
    ],
)
def test_values_far_beyond_all_others_in_bad_batches(make, values: tuple[float, float], said: str) -> None:
    losses = corrupt(25, 3.0)
    bad = {int(step) for step in np.flatnonzero(losses > 2.5) if step >= 60}
    rows = [
        {"loader": 0, "epoch": 0, "batch": step, "step": step, "trained": True, "field": name}
        | dict(zip(("min", "max"), values if step in bad and name == "1" else (-2.0, 4.0), strict=True))
        for step in sorted({*bad, *range(60, 600, 10)})
        for name in ("0", "1")
    ]
    steps = {**make.steps(len(losses)), "loss": losses.tolist(), "batch_size": [32] * len(losses)}
    _, _, finding = make.check("loss-spikes", make.process(steps=steps, more={"batches": rows}))
    assert said in finding.summary
    assert ("Leave such values out" in finding.fix) == ("reaches" in said)


@pytest.mark.parametrize(("factor", "status"), [(600.0, "fired"), (6.0, "passed")])
def test_single_batches_that_also_came_in_the_first_epoch(make, factor: float, status: str) -> None:
    """What is wrong with the data is wrong from the first epoch on; then only a loss far above all others says so."""
    losses = corrupt(25, 1.0)
    losses[5::25] = factor
    assert make.check("loss-spikes", batches(make, losses))[0] == status


@pytest.mark.parametrize(("height", "status"), [(90.0, "fired"), (9.0, "passed")])
def test_single_batches_that_are_learned_by_heart_later(make, height: float, status: str) -> None:
    """A sample that weighs as much as thousands is fitted in the end: its loss falls to that of the others."""
    at = np.arange(600)
    losses = 1.5 + np.random.default_rng(4).normal(0, 0.05, 600)
    odd = at % 23 == 8
    losses[odd] *= 1 + (height * np.minimum(1.0, np.exp((300 - at) / 60)))[odd] * (0.6 + 0.05 * (at[odd] % 8))
    found, _, finding = make.check("loss-spikes", batches(make, losses))
    assert found == status
    if finding is not None:
        assert finding.last_step <= 300
        assert "or that weigh far more in the loss" in finding.summary


def test_bad_batches_among_the_first_losses_are_counted(make) -> None:
    """Where they tower above what came before as the later ones do; the loss at the beginning is none."""
    losses = corrupt(25, 1.0)
    losses[55::25] = 600.0
    finding = make.check("loss-spikes", batches(make, losses))[2]
    assert finding.title.startswith("22 single batches have a loss about ")
    assert finding.summary.startswith("At steps 56, 81, ")
    losses = corrupt(25, 3.0)
    losses[:3] = (900.0, 950.0, 300.0)
    found = make.check("loss-spikes", batches(make, losses))[2]
    assert found is None or found.first_step > 3


def test_the_example_names_the_loss_where_it_is_known(make) -> None:
    site = {"site": 69, "role": "backward", "file": "t.py", "function": "main", "line": 9}
    losses = corrupt(25, 3.0)
    columns = {**make.steps(len(losses)), "loss": losses.tolist(), "batch_size": [32] * len(losses)}
    own = [{"optimizer": 0, "name": "Adam", "backward_site": 69}]
    for source, said in (("error.backward()", "loss=error"), ("accelerator.backward(error)", "below the line that")):
        process = make.process(steps=columns, sites=[site | {"source": source}], optimizers=own)
        code = make.check("loss-spikes", process)[2].fix_code
        assert "import tracelyze\n" in code
        assert said in code
        assert ("below line 9" in code) == (said == "loss=error")


@pytest.mark.parametrize(
    ("model", "line"),
    [("model(x[pick])", 3), ("model(x[k])", 3), ("model(x[pick], n)", 3), ("model(x[0])", 2), ("model(pick)", 3)],
)
def test_single_batches_are_taken_where_the_loop_says_which(make, model: str, line: int) -> None:
    """And not where the order of an epoch is drawn, above the loop."""
    text = [
        "for epoch in range(3):",
        "    order = torch.randperm(n)",
        "    for k, pick in enumerate(order.split(64)):",
        f"        loss = f({model}, y[pick])",
        "        loss.backward()",
    ]
    roles = {"split": 2, "loop": 3, "training-call": 4, "backward": 5}
    where = {"file": "t.py", "function": "main", "excerpt": "\n".join(text), "excerpt_line": 1}
    sites = [
        where | {"site": 60 + at, "role": role, "line": at, "source": text[at - 1].strip()}
        for role, at in roles.items()
    ]
    losses = corrupt(25, 3.0)
    columns = {**make.steps(len(losses)), "loss": losses.tolist(), "batch_size": [32] * len(losses)}
    process = make.process(steps=columns, sites=sites)
    assert make.check("loss-spikes", process)[2].location.line == line


def test_two_batches_that_tower_above_all_others_in_a_log_without_norms(make) -> None:
    losses = corrupt(90, 60.0, 200)  # two of them
    logged = make.process({**make.steps(200), "loss": losses.tolist(), "batch_size": [None] * 200, "grad_norm": []})
    _, _, finding = make.check("loss-spikes", logged)
    assert finding.title.startswith("2 single batches have a loss about 114 times that")
    assert "98 and 188" in finding.summary
    assert make.check("loss-spikes", batches(make, losses))[0] == "passed", "gradient-spikes speaks of them"
    claims = losses * np.exp(np.random.default_rng(1).normal(0, 1.3, 200))  # amounts that are large by themselves
    for healthy in (corrupt(90, 6.0, 200), corrupt(300, 60.0, 200), claims):
        steps = {**make.steps(200), "loss": healthy.tolist(), "batch_size": [None] * 200, "grad_norm": []}
        assert make.check("loss-spikes", make.process(steps))[0] == "passed"


def test_losses_of_many_shapes_hardly_ever_hold_single_batches(make) -> None:
    random = np.random.default_rng(11)
    fired = 0
    for run in range(60):
        count = int(random.integers(100, 1500))
        fall = random.uniform(0.05, 1) + random.uniform(0, 3) * np.exp(-np.arange(count) / random.uniform(20, count))
        noise = [random.normal(0, 0.3, count), random.standard_t(3, count) * 0.2, random.gamma(0.5, 0.4, count)][
            run % 3
        ]
        fired += make.check("loss-spikes", batches(make, fall * np.exp(noise)))[0] == "fired"
    assert fired <= 1


def test_leaps_of_evaluated_losses(make) -> None:
    leap = FEW.copy()
    leap[12:24] *= 8
    assert make.check("loss-spikes", log(make, FALLING, evals=evaluations(leap, leap)))[0] == "fired"
    short = FEW.copy()
    short[12:14] *= 8
    assert make.check("loss-spikes", log(make, FALLING, evals=evaluations(short, short)))[0] == "passed"
    restart = FEW.copy()  # a cyclic schedule begins anew: 2.4 times, and the level is regained
    restart[15:20] *= np.linspace(2.4, 1, 5)
    assert make.check("loss-spikes", log(make, FALLING, evals=evaluations(restart, restart)))[0] == "passed"


def test_noise_of_any_shape_hardly_ever_leaps() -> None:
    limits, random, alarms = Limits(loss_spikes.RULE.thresholds), np.random.default_rng(0), 0
    for _ in range(200):
        base = random.uniform(0.1, 2) + random.uniform(0.5, 6) * np.exp(-np.arange(600) / random.uniform(20, 300))
        for noise in (random.normal(0, 0.5, 600), 0.3 * random.standard_t(3, 600), np.log(random.exponential(1, 600))):
            alarms += len(loss_leaps.of_steps(base * np.exp(noise), limits)) >= limits["spikes"]
    assert alarms == 0


@pytest.mark.parametrize(
    ("loss", "more", "status"),
    [
        (np.full(COUNT, math.log(2)) + 1e-3, scalars(rewards__margins=np.zeros(COUNT)), "fired"),
        (np.linspace(math.log(2), 0.2, COUNT), scalars(rewards__margins=np.linspace(0, 2, COUNT)), "passed"),
        (np.full(COUNT, math.log(2)), scalars(rewards__margins=np.linspace(0, 0.01, COUNT)), "passed"),  # on its way
        (np.full(COUNT, math.log(2)), scalars(rewards__margins=np.linspace(0, 2e-6, COUNT)), "fired"),  # it is not
        (np.full(90, math.log(2)), scalars(rewards__margins=np.zeros(90)), "passed"),  # it may be the warm-up
        (np.full(COUNT, math.log(10)), {}, "passed"),  # 400 steps: it may be the warm-up
        (np.full(2 * COUNT, math.log(10)), {}, "fired"),
        (np.full(2 * COUNT, 2.1), {}, "passed"),  # converged, or trained before: who knows
        (np.full(20, math.log(2)), scalars(rewards__margins=np.zeros(20)), "skipped"),
    ],
    ids=[
        "ln 2",
        "preference learned",
        "preference begun",
        "preference at rate zero",
        "preference, short",
        "short",
        "ln 10",
        "another level",
        "few",
    ],
)
def test_a_loss_that_stands_still(make, loss, more, status) -> None:
    assert make.check("loss-plateau", log(make, loss, more=more))[0] == status


def test_a_loss_that_fell_to_the_level_of_a_guess_did_not_stand_there_from_the_first_step(make) -> None:
    still = np.full(2 * COUNT, math.log(10))
    begun = still.copy()
    begun[:30] += np.linspace(0.5, 0, 30)
    titles = [make.check("loss-plateau", log(make, loss))[2].title for loss in (still, begun)]
    assert ["from the first step" in title for title in titles] == [True, False]
    assert "in every tenth of the run" in titles[1]


def test_what_is_said_of_a_plateau_is_within_the_limit_beside_it(make) -> None:
    """From just above the level of a guess to just below it is more than 1%, and no tenth is farther than that."""
    finding = make.check("loss-plateau", log(make, np.linspace(1.009, 0.991, 2 * COUNT) * math.log(10)))[2]
    assert len(finding.evidence) > 1
    for one in finding.evidence[1:]:
        assert one.threshold is None or one.value <= one.threshold, one.name


def test_a_preference_that_stands_still_is_told_without_a_guess_at_the_reason(make) -> None:
    more = scalars(rewards__margins=np.zeros(COUNT))
    finding = make.check("loss-plateau", log(make, np.full(COUNT, math.log(2)) + 1e-3, more=more))[2]
    assert "one model" not in finding.summary, "beside zero gradients it is not the reason"
    assert "two models" in finding.fix
    assert finding.evidence[0].fires_at == "", "the loss of a guess is no limit"


def test_a_loss_that_stands_still_without_skill(make) -> None:
    flat = np.r_[20.0, 8.0, np.full(18, 5.5)]
    for error, status in ((0.95, "fired"), (0.3, "passed")):
        more = scalars("eval", wer=np.full(20, error))
        process = log(make, FALLING[:50], evals=evaluations(flat, flat), more=more)
        assert make.check("loss-plateau", process)[0] == status


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


RISING = np.linspace(0.1, 0.9, 100)
FLAT = np.full(100, 0.5)
SINKING = np.r_[np.geomspace(1.0, 0.2, 40), np.full(60, 0.2)]
WORSE = np.r_[np.linspace(0.45, 0.75, 50), np.linspace(0.75, 0.25, 90), np.full(60, 0.25)]
UNREST = np.random.default_rng(0).normal(size=100)
SOLVED = np.r_[np.linspace(0.1, 1.0, 40), np.ones(60)]


@pytest.mark.parametrize(
    ("rule", "curves", "status"),
    [
        ("zero-advantage", {"reward": FLAT, "reward_std": np.zeros(100)}, "fired"),
        ("zero-advantage", {"reward": RISING, "reward_std": np.full(100, 0.3)}, "passed"),
        ("zero-advantage", {"reward": RISING, "frac_reward_zero_std": np.tile([1.0, 0.0, 0.5], 34)[:100]}, "passed"),
        (
            "zero-advantage",
            {"reward": np.r_[RISING[:40], np.ones(60)], "reward_std": np.r_[FLAT[:40], np.zeros(60)]},
            "passed",
        ),  # solved
        ("zero-advantage", {"reward": RISING}, "skipped"),
        ("completions-truncated", {"reward": FLAT, "completions__clipped_ratio": np.full(100, 0.97)}, "fired"),
        ("completions-truncated", {"reward": FLAT, "completions__clipped_ratio": np.full(100, 0.4)}, "passed"),
        ("completions-truncated", {"reward": FLAT}, "skipped"),
        ("completions-truncated", {"reward": FLAT[:3], "completions__clipped_ratio": np.ones(3)}, "skipped"),
        ("entropy-collapse", {"reward": FLAT, "entropy": np.geomspace(2, 0.01, 100)}, "fired"),
        ("entropy-collapse", {"reward": FLAT, "entropy": np.geomspace(0.5, 5, 100)}, "fired"),
        ("entropy-collapse", {"reward": RISING, "entropy": np.geomspace(2, 0.01, 100)}, "passed"),
        ("entropy-collapse", {"reward": FLAT, "entropy": np.linspace(2, 1, 100)}, "passed"),
        ("entropy-collapse", {"entropy": np.linspace(2, 1, 100)}, "skipped"),
        ("reward-collapse", {"reward": np.r_[RISING, np.full(100, 0.1)], "kl": np.r_[FLAT, 20 * FLAT]}, "fired"),
        ("reward-collapse", {"reward": np.r_[RISING, np.full(100, 0.1)], "kl": np.r_[FLAT, FLAT]}, "passed"),
        ("reward-collapse", {"reward": np.r_[RISING, RISING], "kl": np.linspace(0.01, 1, 200)}, "passed"),
        (
            "reward-collapse",
            {"reward": WORSE, "kl": np.linspace(0.3, 0.9, 200)},
            "fired",
        ),  # than it began, ever further
        ("reward-collapse", {"reward": WORSE, "kl": 0.6 + 0.3 * np.sin(np.arange(200) / 20)}, "passed"),
        ("reward-collapse", {"reward": np.maximum(WORSE, 0.43), "kl": np.linspace(0.3, 0.9, 200)}, "passed"),
        ("reward-collapse", {"reward": RISING[:30]}, "skipped"),
        ("reward-collapse", {"reward": SINKING, "kl": 1.1 - SINKING}, "fired"),  # from the start on: a wrong sign
        ("reward-collapse", {"reward": SINKING, "kl": FLAT}, "passed"),
        ("reward-collapse", {"reward": SINKING}, "passed"),
        ("reward-collapse", {"reward": 5 + 0.1 * SINKING, "kl": 5 - SINKING}, "passed"),  # a good policy explores
        ("reward-collapse", {"reward": FLAT + 0.1 * UNREST, "kl": np.geomspace(0.01, 5, 100)}, "passed"),
        ("reward-collapse", {"ppo__reward": np.r_[RISING, FLAT * 0.2], "ppo__kl": np.r_[FLAT, 20 * FLAT]}, "fired"),
        ("reward-collapse", {"charts__episodic_return": np.r_[RISING, RISING + 0.8]}, "passed"),
        ("reward-collapse", {"eval__mean_reward": np.r_[RISING, FLAT * 0.2]}, "skipped"),
        ("entropy-collapse", {"charts__ep_return": FLAT, "losses__entropy": np.geomspace(2, 0.01, 100)}, "fired"),
        ("entropy-collapse", {"charts__ep_return": SOLVED, "losses__entropy": np.geomspace(2, 0.01, 100)}, "passed"),
        ("sampler-mismatch", {"sampling__sampling_logp_difference__mean": np.linspace(0.02, 0.4, 100)}, "fired"),
        ("sampler-mismatch", {"sampling__sampling_logp_difference__mean": np.full(100, 0.1)}, "passed"),
        ("sampler-mismatch", {"sampling__importance_sampling_ratio__mean": np.full(100, 0.6)}, "fired"),
        ("sampler-mismatch", {"sampling__importance_sampling_ratio__mean": np.full(100, 1.01)}, "passed"),
        ("sampler-mismatch", {"reward": RISING}, "skipped"),
    ],
)
def test_columns_of_reinforcement_training(make, rule, curves, status) -> None:
    assert make.check(rule, log(make, np.zeros(200), more=scalars(**curves)))[0] == status


@pytest.mark.parametrize(
    ("reward", "severity", "confidence"), [(FLAT, "warning", "likely"), (RISING, "info", "possible")]
)
def test_cut_off_completions_are_a_hint_where_the_reward_rises(make, reward, severity, confidence) -> None:
    """A rising reward does not tell an answer of fixed length from one that never learns to stop."""
    process = log(make, np.zeros(200), more=scalars(reward=reward, completions__clipped_ratio=np.ones(100)))
    _, _, finding = make.check("completions-truncated", process)
    assert "GRPOConfig" in finding.fix_code
    place = {"site": 9, "role": "setting", "file": "a.py", "line": 88, "source": "max_completion_length=8,"}
    rows = scalars(reward=reward, completions__clipped_ratio=np.ones(100))
    known = make.check("completions-truncated", log(make, np.zeros(200), more=rows, sites=[place]))[2]
    assert known.location.line == 88
    assert "max_completion_length=16," in known.fix_code, "twice its own, which may be all that the model can hold"
    assert (finding.severity, finding.confidence) == (severity, confidence)
    assert ("rises anyway" in finding.summary) == (severity == "info")


@pytest.mark.parametrize(("source", "line"), [("trainer.train()", 60), ("loss.backward()", 90)])
def test_a_collapse_of_the_reward_in_a_trainer_is_changed_at_its_learning_rate(make, source: str, line: int) -> None:
    sites = [
        {"site": 8, "role": "setting", "file": "a.py", "line": 60, "source": "learning_rate=5e-2,"},
        {"site": 9, "role": "backward", "file": "a.py", "line": 90, "source": source},
    ]
    curves = scalars(reward=np.r_[RISING, np.full(100, 0.1)], kl=np.r_[FLAT, 20 * FLAT])
    _, _, finding = make.check("reward-collapse", log(make, np.zeros(200), more=curves, sites=sites))
    assert finding.location.line == line
    away = scalars(reward=SINKING, kl=1.1 - SINKING)  # a wrong sign is no matter of the rate
    _, _, finding = make.check("reward-collapse", log(make, np.zeros(200), more=away, sites=sites))
    assert finding.location is None or finding.location.line == 90


@pytest.mark.parametrize(("first", "lost"), [(0.0, True), (0.3, True), (0.8, False), (1.0, False)])
def test_completions_that_ended_by_themselves_at_first_had_room(make, first: float, lost: bool) -> None:
    cut = np.r_[np.full(20, first), np.ones(80)]
    sites = [
        {"site": 7, "role": "setting", "file": "a.py", "line": 60, "source": "learning_rate=5e-2,"},
        {"site": 8, "role": "setting", "file": "a.py", "line": 61, "source": "max_completion_length=8,"},
        {"site": 9, "role": "backward", "file": "a.py", "line": 90, "source": "trainer.train()"},
    ]
    curves = scalars(reward=FLAT, completions__clipped_ratio=cut)
    _, _, finding = make.check("completions-truncated", log(make, np.zeros(200), more=curves, sites=sites))
    assert finding.location.line == (60 if lost else 61)
    assert ("the limit had room for them" in finding.summary) is lost
    assert ("the model never learned to stop" in finding.summary) is not lost
    assert bool(finding.fix_code) is not lost, "a longer limit is no remedy for an end that was lost"


@pytest.mark.parametrize(
    ("name", "values", "severity"),
    [
        ("answer", np.zeros(100), "warning"),
        ("answer", np.r_[np.full(10, 0.1), np.zeros(90)], "warning"),
        ("answer", np.full(100, 0.01), "info"),  # small, and earned all the time
        ("overlong_penalty", np.zeros(100), "info"),  # as it is to be
    ],
)
def test_a_reward_that_is_not_earned_where_all_completions_are_cut_off(make, name, values, severity) -> None:
    curves = {"reward": RISING, "completions__clipped_ratio": np.ones(100), "rewards__steps__mean": RISING}
    process = log(make, np.zeros(200), more=scalars(**curves, **{f"rewards__{name}__mean": values}))
    _, _, finding = make.check("completions-truncated", process)
    assert (finding.severity, f"yet {name} gave 0" in finding.summary) == (severity, severity == "warning")


@pytest.mark.parametrize(("rewards", "severity"), [([0.5] * 6, "warning"), ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "info")])
def test_completions_of_ten_steps_are_logged_at_once(make, rewards, severity) -> None:
    rows = [
        {"step": 10 * n, "own_step": 10 * n, "phase": "train", "name": name, "value": value}
        for n, reward in enumerate(rewards, 1)
        for name, value in (("reward", reward), ("completions/clipped_ratio", 1.0))
    ]
    _, _, finding = make.check("completions-truncated", log(make, np.zeros(60), more={"scalars": rows}))
    assert finding.severity == severity


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


def test_a_recorded_number_of_classes_says_what_a_guess_costs(make) -> None:
    """Five classes are no usual number; that the run has them was recorded, and 300 steps are enough to know it."""

    def judge(count: int, classes: int, varies: float | None = None, **columns: Any) -> Any:
        steps = make.steps(count) | {"loss": [1.61 + 0.005 * (index % 3) for index in range(count)]} | columns
        call = {"function": "cross_entropy", "training": True, "reduction": "mean", "target_integer": True}
        calls = [call | {"step": at, "input_shape": f"32x{classes}", "value": 1.612} for at in range(0, count, 20)]
        if varies is not None:
            value = {"value": 2.3, "varies": varies, "target_varies": 0.9}
            calls = [calls[0] | value | {"step": at} for at in range(20)]
        return make.check("loss-plateau", make.process(steps, more={"loss_calls": calls}))

    status, _, finding = judge(400, 5)
    assert (status, finding.confidence) == ("fired", "likely")
    assert "ln 5" in finding.title
    assert judge(250, 5)[0] == "passed"
    assert judge(400, 6)[0] == "passed"
    other = [2.3 + 0.005 * (index % 3) for index in range(600)]  # near ln 10, of 8 classes and a second term
    assert judge(600, 8, loss=other)[0] == "passed"
    assert judge(600, 10, loss=other)[0] == "fired"
    assert judge(168, 10, loss=other[:168], varies=4e-7)[0] == "fired", "no input makes a difference"
    assert judge(168, 10, loss=other[:168], varies=0.2)[0] == "passed", "labels may be random"
    assert judge(80, 10, loss=other[:80], varies=4e-7)[0] == "passed", "a few steps"
    assert judge(400, 5, lr=[1e-6 * min(index, 100) for index in range(400)])[0] == "fired", "after the warm-up"
    assert judge(400, 5, lr=[1e-6 * index**3 for index in range(400)])[0] == "passed", "still warming up"


def test_a_loss_that_came_down_to_a_guess(make) -> None:
    """And no further, in training as in validation: labels that belong to other inputs look like this."""

    def judge(evaluated: list[float], classes: int = 8, late: float = 2.072, early: float = 2.19) -> Any:
        losses = [early + (late - early) * min(1.0, at / 200) + 0.003 * (at % 3) for at in range(600)]
        call = {"function": "cross_entropy", "training": True, "reduction": "mean", "target_integer": True}
        shape = {"input_shape": f"32x{classes}"}
        calls = [call | shape | {"step": at, "value": losses[at]} for at in range(0, 600, 20)]
        after = [(number + 1) * 600 // len(evaluated) for number in range(len(evaluated))]
        evals = {"after_step": after, "loss": evaluated, "forwards": [5] * len(after), "grad_mode": [0] * len(after)}
        evals |= {"samples": [500] * len(after), "trained": [True] * len(after), "site": [3] * len(after)}
        steps = make.steps(600) | {"loss": losses}
        return make.check("loss-plateau", make.process(steps, evals=evals, more={"loss_calls": calls}))

    status, _, finding = judge([2.097, 2.09, 2.087, 2.093, 2.09])
    assert (status, finding.confidence) == ("fired", "likely")
    assert finding.title.endswith("ln 8, in training and validation")
    assert "2.09 at best" in finding.summary
    assert judge([2.097, 2.09])[0] == "passed", "two passes"
    assert judge([2.097, 2.09, 2.02, 1.99])[0] == "passed", "it learned what carries over"
    assert judge([2.2, 2.5, 2.9, 3.4])[0] == "passed", "it is surer than it should be"
    assert judge([2.097, 2.09, 2.09], late=1.9)[0] == "passed", "training data are learned"
    assert judge([2.097, 2.09, 2.09], early=2.0)[0] == "passed", "it was better"
    assert judge([0.70, 0.69, 0.693], classes=2, late=0.692, early=0.75)[0] == "passed", "of yes and no little is known"
