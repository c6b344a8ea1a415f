"""Gradients that explode or spike, and the healthy look-alikes that no rule may fire on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analyzers.sites import sites_of

COUNT = 400


def test_exploding_gradients(make) -> None:
    norm = np.concatenate([np.ones(200), np.full(200, 1e4)]) * np.exp(np.random.default_rng(0).normal(0, 0.3, COUNT))
    steps = make.steps() | {"grad_norm": norm.tolist(), "loss": [1.0] * 200 + [30.0] * 200}
    status, _, finding = make.check("exploding-gradients", make.process(steps))
    assert status == "fired"
    assert finding.first_step == pytest.approx(201, abs=3)
    assert "clip the gradient norm" in finding.fix
    clips = steps | {"clips": [1] * COUNT, "clip_max_norm": [1.0] * COUNT, "grad_norm_source": [2] * COUNT}
    clipped = make.check("exploding-gradients", make.process(clips))[2]
    assert clipped.fix.endswith("Steps are clipped already, and the norm before the clip grew.")
    assert "clip_grad_norm_" not in clipped.fix_code


@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("loss = torch.exp(criterion(out, y) / eta)", "loss = criterion(out, y) / eta"),
        ("loss = criterion(out, y).exp()", "loss = criterion(out, y)"),
        ("loss = torch.exp(-criterion(out, y))", None),  # never above 1
        ("loss = criterion(torch.exp(out), y)", None),
        ("loss = criterion(out, y)", None),
    ],
)
def test_a_loss_that_is_an_exponential_explodes(make, line: str, without: str | None) -> None:
    norm = [1.0] * 200 + [1e4] * 200
    steps = make.steps() | {"grad_norm": norm, "loss": [1.0] * 200 + [30.0] * 200}
    text = f"for x, y in batches:\n    out = net(x)\n    {line}\n    loss.backward()"
    finding = make.check("exploding-gradients", make.process(steps, sites=sites_of(text, backward="loss.backward()")))[
        2
    ]
    assert finding.location.line == (3 if without else 4)
    assert (finding.fix_code == without) == (without is not None)
    assert ("Line 3 makes the loss an exponential" in finding.summary) == (without is not None)


def test_exploding_gradients_on_the_way_to_infinity(make) -> None:
    norm = np.concatenate([np.ones(300), np.exp(np.linspace(0, 40, 60)), np.full(40, np.inf)])
    steps = make.steps() | {"grad_norm": norm.tolist()}
    assert make.check("exploding-gradients", make.process(steps))[0] == "fired"


def test_a_loss_that_falls_until_an_operation_of_it_has_no_result(make) -> None:
    """The likelihood of a mixture whose scales shrink: gradients grow, and the log of 0 is the fault."""
    norm = np.concatenate([np.exp(np.linspace(0, 6, 300)), np.full(100, np.nan)]).tolist()
    loss = [2.0 - 0.01 * step for step in range(300)] + [float("inf")] + [float("nan")] * 99
    count = [0] * 300 + [8] * 100
    steps = make.steps() | {"grad_norm": norm, "loss": loss, "grads_nonfinite": count}
    event = {"kind": "nonfinite-loss", "step": 300, "name": "", "text": "log of 0", "value": 1.0, "time": 1.0}
    line = {"site": 9, "role": "nonfinite", "file": "train.py", "line": 12, "function": "nll"}
    process = make.process(steps, events=[event], sites=[line | {"source": "return -torch.log(p).mean()"}])
    assert make.check("exploding-gradients", process)[0] == "passed"
    _, _, finding = make.check("loss-nonfinite", process)
    assert finding.summary.startswith("A log of 0 made it. One step earlier the loss was -0.99 (median of the ")
    assert finding.location.line == 12
    assert "p.clamp_min" in finding.fix_code
    under = [event | {"text": "log of exponentials that shrank to 0"}]
    shrank = make.check("loss-nonfinite", make.process(steps, events=under, sites=[*process.sites.records()]))[2]
    assert shrank.summary.startswith("A log of exponentials that shrank to 0 made it.")
    assert shrank.location.line == 12
    assert "clamp" not in shrank.fix_code, "it would hide samples that are far off, and divisions by 0 may follow"
    leaps = steps | {"loss": [*loss[:298], 80.0, 900.0, *loss[300:]]}
    assert make.check("exploding-gradients", make.process(leaps, events=[event]))[0] == "fired"
    unnamed = make.check("loss-nonfinite", make.process(steps))[2].summary
    assert "did not move" not in unnamed
    assert "Neither loss nor gradient norm leapt before" in unnamed
    assert "the loss was -0.99" in unnamed
    weight = make.process(steps, events=[event | {"name": "net.0.bias", "text": "", "value": 0.0}])
    told = make.check("loss-nonfinite", weight)[2].summary
    assert "Net.0.bias" not in told
    assert told.startswith("net.0.bias was not finite any more when this loss was computed.")


@pytest.mark.parametrize(
    "norm",
    [
        np.concatenate([np.linspace(1, 9, 100), np.full(300, 9.0)]),  # warm-up
        np.where(np.arange(COUNT) == 300, 1e6, 1.0),  # one spike
        np.exp(np.random.default_rng(5).normal(0, 1, COUNT)),  # heavy tails
    ],
)
def test_exploding_gradients_is_silent(make, norm) -> None:
    assert make.check("exploding-gradients", make.process(make.steps() | {"grad_norm": norm.tolist()}))[0] == "passed"


@pytest.mark.parametrize(("lone", "status"), [(True, "passed"), (False, "fired")])
def test_norms_that_were_measured_where_single_losses_stood_out(make, lone: bool, status: str) -> None:
    """Late steps are looked at seldom, and where the loss stands out: most of the late norms are of such batches."""
    odd = np.arange(COUNT) % 12 == 0
    loss = np.where(odd, 900.0, 1.0) if lone else np.where(np.arange(COUNT) < 300, 1.0, 900.0)
    norm = [float(loss[step]) if step < 100 or odd[step] or step % 40 == 5 else None for step in range(COUNT)]
    norm = [1.0 if step < 100 else value for step, value in enumerate(norm)]
    steps = make.steps() | {"grad_norm": norm, "loss": loss.tolist()}
    assert make.check("exploding-gradients", make.process(steps))[0] == status


@pytest.mark.parametrize(("every", "status"), [(9, "passed"), (1, "fired")])
def test_norms_of_single_batches_that_stand_out_less_and_less(make, every: int, status: str) -> None:
    """What weighs too much in a few batches is learned by heart: their losses fall, and their norms stay far above."""
    at, rng = np.arange(COUNT), np.random.default_rng(2)
    odd = (at % every == 0) & (at > (0 if every > 1 else COUNT // 2))
    loss = np.where(odd, 120.0 * np.exp(-at / 100) + 4.0, 1.5) + 0.4 * at / COUNT + rng.normal(0, 0.02, COUNT)
    norm = np.where(odd, 100.0, 0.4)
    seen = (at < 100) | odd | (at % 50 == 7)
    norms = [float(value) if known else None for value, known in zip(norm, seen, strict=True)]
    steps = make.steps() | {"grad_norm": norms, "loss": loss.tolist()}
    assert make.check("exploding-gradients", make.process(steps))[0] == status


def test_a_loss_that_runs_away_below_zero_is_an_explosion(make) -> None:
    growth = np.exp(np.linspace(0, 14, COUNT))
    steps = make.steps() | {"grad_norm": growth.tolist(), "loss": (1 - growth).tolist()}
    _, _, finding = make.check("exploding-gradients", make.process(steps))
    assert "wrong sign" in finding.summary
    assert "penalties" in finding.fix


def test_exploding_gradients_where_late_steps_are_looked_at_seldom(make) -> None:
    norm = np.exp(np.maximum(0, np.arange(COUNT) - 150) / 25)
    sampled = [float(value) if step < 100 or step % 25 == 24 else None for step, value in enumerate(norm)]
    steps = make.steps() | {"grad_norm": sampled, "loss": np.linspace(1, 30, COUNT).tolist()}
    assert make.check("exploding-gradients", make.process(steps))[0] == "fired"


@pytest.mark.parametrize(
    ("norm", "loss"),
    [
        (np.linspace(1, 400, COUNT), np.linspace(5, -300, COUNT)),  # density on a thin manifold
        (np.exp(np.linspace(0, 9, COUNT)), np.linspace(2, -8, COUNT)),  # flow whose likelihood still improves
        (np.ones(COUNT), -np.exp(np.linspace(0, 14, COUNT))),  # a linear objective
    ],
)
def test_losses_below_zero_are_no_explosion(make, norm, loss) -> None:
    steps = make.steps() | {"grad_norm": norm.tolist(), "loss": loss.tolist()}
    status, reason, _ = make.check("exploding-gradients", make.process(steps))
    assert status == "passed"
    assert ("but the loss improved" in reason) == (norm[-1] > 1000)


def test_exploding_gradients_does_not_judge_two_optimizers(make) -> None:
    steps = make.steps() | {"optimizer": [index % 2 for index in range(COUNT)], "grad_norm": list(range(1, COUNT + 1))}
    assert make.check("exploding-gradients", make.process(steps))[0] == "skipped"


def test_a_critic_that_nothing_bounds(make) -> None:
    """Two networks against each other: a loss below zero, and the gradients of both grow by orders of magnitude."""
    grown, level = np.exp(np.linspace(0, 7, COUNT)), np.exp(np.linspace(0, 2, COUNT))
    turns = [int(index % 5 == 4) for index in range(COUNT)]

    def outcome(norm, loss, samples=256, own_models=True, norm_of_other=None, sites=()):
        other = norm if norm_of_other is None else norm_of_other
        norms = [float((other if turn else norm)[index]) for index, turn in enumerate(turns)]
        losses = [float(np.log1p(norm[index])) if turn else float(loss[index]) for index, turn in enumerate(turns)]
        steps = make.steps() | {"optimizer": turns, "grad_norm": norms, "loss": losses}
        steps |= {"batch_size": [128 if turn else samples for turn in turns]}
        both = [{"optimizer": 0, "name": "Adam"}, {"optimizer": 1, "name": "Adam"}]
        links = [{"optimizer": 0, "model": int(own_models)}, {"optimizer": 1, "model": 0}, {"optimizer": 1, "other": 0}]
        return make.check(
            "exploding-gradients", make.process(steps, optimizers=both, sites=list(sites), more={"links": links})
        )

    status, _, finding = outcome(grown, -grown)
    assert (status, finding.confidence) == ("fired", "likely")
    assert "Nothing bounds the critic" in finding.title
    assert "ends at" in finding.summary
    assert "penalty" in finding.fix
    assert outcome(level, -grown)[0] == "skipped", "a penalty keeps the slope where it is"
    assert outcome(grown, grown)[0] == "skipped", "an error or a cross-entropy, which has a lower end"
    assert outcome(grown, -grown, norm_of_other=level)[0] == "skipped"
    assert outcome(grown, -grown, samples=32)[0] == "skipped", "an actor, trained on as many samples as its critic"
    assert outcome(grown, -grown, own_models=False)[0] == "skipped", "two parts of one model"
    text = "slope = autograd.grad(score, mixed, torch.ones_like(score))[0]"
    slope = {"site": 9, "role": "slope", "file": "t.py", "line": 7, "function": "penalty", "source": text}
    slope |= {"excerpt": f"    {text}", "excerpt_line": 7}
    added = grown - 1.3  # a penalty that nothing lowers is added, and soon outweighs the scores
    assert outcome(grown, added)[0] == "skipped"
    status, _, finding = outcome(grown, added, sites=[slope])
    assert (status, finding.location.line) == ("fired", 7)
    assert finding.diff.added == [f"    {text.replace('))[0]', '), create_graph=True)[0]')}"]
    assert "bounds nothing" in finding.summary
    assert outcome(level, added, sites=[slope])[0] == "skipped", "an image's gradient that is looked at"
    assert outcome(grown, grown, sites=[slope])[0] == "skipped", "no loss below zero"
    some = np.exp(np.linspace(0, 4.2, COUNT))
    bounds = slope | {"role": "dropped", "function": "constrain"}
    for text in ("w.data.clamp(-c, c)", "p.clamp(-0.01, 0.01)"):
        in_vain = bounds | {"source": text, "excerpt": f"    {text}"}
        assert outcome(some, -grown, sites=[in_vain])[0] == "fired", "the bounded weights are dropped"
        assert outcome(level, -grown, sites=[in_vain])[0] == "skipped"
    assert outcome(some, -grown)[0] == "skipped"


def test_a_function_without_a_derivative_between_loss_and_parameters(make) -> None:
    event = {"time": 1.0, "step": 0, "kind": "flat-loss", "name": "sign", "text": ""}
    sites = [
        {"site": 1 + at, "role": "flat", "file": "train.py", "line": 10 + at, "function": where, "source": source}
        for at, (where, source) in enumerate(
            [("forward", "return torch.sign(h)"), ("make_data", "y = torch.sign(x @ w)"), ("forward", "h.round()")]
        )
    ]
    steps = make.steps() | {"grads_zero": [8] * COUNT}
    process = make.process(steps, sites=sites, evals={}, more={"events": [event]})
    finding = make.check("zero-gradients", process)[2]
    assert "goes through sign(), whose derivative is zero" in finding.summary
    assert "Line 10 calls it." in finding.summary
    assert finding.location.line == 10
    assert "(torch.sign(soft) - soft).detach()" in finding.fix_code
    assert "tanh" in finding.fix
    rounded = make.process(steps, evals={}, more={"events": [event | {"name": "round"}]})
    assert "Train on the input of round(), and" in make.check("zero-gradients", rounded)[2].fix
    assert "Every path from the loss" not in make.check("zero-gradients", make.process(steps, sites=sites))[2].summary


def test_gradient_spikes(make) -> None:
    norm = np.exp(np.random.default_rng(0).normal(0, 0.3, COUNT))
    norm[[150, 220, 310]] = 80
    status, _, finding = make.check("gradient-spikes", make.process(make.steps() | {"grad_norm": norm.tolist()}))
    assert (status, finding.severity) == ("fired", "warning")
    assert "151, 221 and 311" in finding.summary
    for limit, status in ((2.0, "passed"), (50.0, "fired")):
        clipped = {"grad_norm": norm.tolist(), "clip_max_norm": [limit] * COUNT}
        assert make.check("gradient-spikes", make.process(make.steps() | clipped))[0] == status
    finding = make.check("gradient-spikes", make.process(make.steps() | clipped))[2]
    assert (finding.severity, "Clipping at 50 already limits" in finding.summary) == ("info", True)
    healthy = np.abs(1 + 0.3 * np.random.default_rng(0).standard_t(4, COUNT))
    assert make.check("gradient-spikes", make.process(make.steps() | {"grad_norm": healthy.tolist()}))[0] == "passed"
    for begin, end in ((0, 60), (70, 110)):  # large at first, or when a harder stage began
        bore = (np.arange(COUNT) >= begin) & (np.arange(COUNT) < end)
        stages = {"grad_norm": np.where(bore, 90.0, norm).tolist()}
        status, reason, _ = make.check("gradient-spikes", make.process(make.steps() | stages))
        assert (status, "usual earlier in the training" in reason) == ("passed", True)
    few = make.steps(50)
    status, reason, _ = make.check("gradient-spikes", make.process(few, evals={}))
    assert (status, reason) == ("skipped", "45 norms known after the first tenth of the run; 48 are needed.")


def test_gradients_that_leap_with_a_loss_which_stays_up_are_more_than_hard_batches(make) -> None:
    """The weights became worse: the update before was too large, as it is where the state of Adam is set to zero."""
    norm = np.exp(np.random.default_rng(0).normal(0, 0.3, COUNT))
    norm[[150, 220, 290]] = 80
    loss = np.full(COUNT, 0.1)
    single = loss.copy()
    single[[150, 220, 290]] = 5.0
    for at in (150, 220, 290):
        loss[at : at + 30] += 5 * np.exp(-np.arange(30) / 8)
    looks = [
        {"step": step, "optimizer": 0, "elements": 64, "parameter": "w", "weight_norm": 1.0, "update_norm": size}
        for step, size in ((1, 0.01), (2, 0.01), (16, 0.008), (54, 0.009), (150, 0.4))
    ]

    def judged(losses: np.ndarray, **more: Any) -> Any:
        steps = make.steps() | {"grad_norm": norm.tolist(), "loss": losses.tolist()}
        return make.check("gradient-spikes", make.process(steps, more=more))[2]

    found = judged(loss, parameters=looks)
    assert "Single batches do that" not in found.summary
    assert "The update of step 150, right before one of them, changed the weights by 40% of their size" in found.summary
    assert "They come every 70 steps" in found.summary
    assert found.fix.startswith("Check what the script does at the step before")
    assert "The update of step" not in judged(loss, parameters=looks[:-1]).summary
    assert "Single batches do that" in judged(single, parameters=looks).summary


def test_two_gradients_that_tower_above_all_others(make) -> None:
    random = np.random.default_rng(2)
    for count, at in ((90, [40, 70]), (250, [60, 200]), (300, [120, 121])):
        norm = np.exp(random.normal(0, 0.3, count))
        norm[at] = 120
        process = make.process(make.steps(count) | {"grad_norm": norm.tolist()}, evals={})
        status, _, finding = make.check("gradient-spikes", process)
        assert status == ("passed" if at[1] == at[0] + 1 else "fired")  # two in a row are a level
        if finding is not None:
            assert f"steps {at[0] + 1} and {at[1] + 1}" in finding.summary
    norm = np.exp(random.normal(0, 0.3, 250))
    norm[[130, 170, 210]] = 120
    looked = [value if index < 100 or value == 120 else None for index, value in enumerate(norm.tolist())]
    sparse = make.process(make.steps(250) | {"grad_norm": looked}, evals={})
    assert make.check("gradient-spikes", sparse)[0] == "fired", "steps between them were not looked at"
    for height, spread in ((20.0, 0.3), (120.0, 0.7)):  # not so high; amounts that are large by themselves
        norm = np.exp(random.normal(0, spread, 250))
        norm[[60, 200]] = height
        process = make.process(make.steps(250) | {"grad_norm": norm.tolist()}, evals={})
        assert make.check("gradient-spikes", process)[0] == "passed"


def test_an_explosion_that_began_with_one_batch(make) -> None:
    norm = np.exp(np.random.default_rng(3).normal(0, 0.2, COUNT))
    norm[160:] *= 1e5
    loss = np.append(np.linspace(2, 1, 160), np.full(COUNT - 160, 900.0))
    unknown = [None if index == 159 else value for index, value in enumerate(norm.tolist())]
    for known, told in ((norm.tolist(), True), (unknown, False)):
        steps = make.steps() | {"loss": loss.tolist(), "grad_norm": known}
        finding = make.check("exploding-gradients", make.process(steps))[2]
        assert ("It began with one batch: the loss leapt at step 161" in finding.summary) == told
        assert ("Look at the batch of step 161" in finding.fix) == told
    slower = make.steps() | {"loss": [*np.linspace(2, 1, 160), *np.geomspace(1, 900, 240)], "grad_norm": norm.tolist()}
    assert "one batch" not in make.check("exploding-gradients", make.process(slower))[2].summary


def recurrent(make, kind: str = "RNN", varies: float = 9.0, gradient: float = 900.0, late: float | None = None) -> Any:
    spread = [varies] * 5 + [varies if late is None else late] * 5
    calls = [
        {"function": "mse_loss", "site": 3, "training": True, "step": 40 * look, "input_shape": "32x1",
         "target_shape": "32x1", "varies": one, "target_varies": 0.2}
        for look, one in enumerate(spread)
    ]  # fmt: skip
    weights = [
        {"step": step, "optimizer": 0, "parameter": "weight_hh_l0", "elements": 2304, "weight_norm": 1.0,
         "update_norm": 1e-3, "grad_norm": gradient, "lr": 0.01}
        for step in (1, 100, 250, 350)
    ]  # fmt: skip
    looks = [{"step": 1, "module": "layer", "kind": kind}] * (30 if kind == "Cell" else 1)
    more = {"loss_calls": calls, "parameters": weights, "activations": looks}
    return make.check("exploding-gradients", make.process(make.steps(), more=more))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "Cell"])
def test_a_recurrence_that_explodes_from_the_first_step(make, kind: str) -> None:
    status, reason, finding = recurrent(make, kind)
    assert status == "fired", reason
    assert (finding.severity, finding.confidence, finding.first_step) == ("critical", "likely", 1)
    assert "positions of a sequence" in finding.title


def test_a_recurrence_that_settles(make) -> None:
    assert recurrent(make, late=0.3)[0] == "passed", "out of bounds at first, and trained all the same"
    assert recurrent(make, varies=0.15)[0] == "passed", "large gradients of sound predictions"
    assert recurrent(make, gradient=3.0)[0] == "passed", "targets that hardly differ"
    assert recurrent(make, "Linear")[0] == "passed"
