"""Losses that leap, for several steps or at single batches, and those that only look so."""

from __future__ import annotations

import numpy as np
import pytest

from tests.analyzers.curves import COUNT, FALLING, FEW, evaluations, log
from tracelyze.analyzers.rule import Limits
from tracelyze.analyzers.rules.loss.loss_spikes import loss_leaps
from tracelyze.analyzers.rules.loss.loss_spikes import rule as loss_spikes


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
