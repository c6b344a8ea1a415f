"""Rules about the size of updates: too small, too large, frozen by a clip, and what only looks like it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

COUNT = 400
RATE_LINES = "opt = Adam(net.parameters(), lr={base})\nsched = LambdaLR(opt, rate_at)"
SAMPLED_STEPS = [1, 2, 11, 16, 24, 36, 54, 81, 121, 181, 271, 391]


def looks(update: float, gradient: float = 0.1, rate: float = 0.01, **more: Any) -> list[dict[str, Any]]:
    """Looks at two tensors whose updates are this share of their weights."""
    return [
        {
            "time": 0.05 * step,
            "step": step,
            "optimizer": 0,
            "parameter": name,
            "elements": 256,
            "lr": rate,
            "weight_norm": 2.0,
            "update_norm": 2 * update,
            "grad_norm": 2 * gradient,
            "grad_finite": True,
        }
        | more
        for step in SAMPLED_STEPS
        for name in ("a.weight", "b.weight")
    ]


def flat(make: Any, level: float = 1.61, **more: Any) -> dict[str, Any]:
    noise = np.random.default_rng(0).normal(0, 0.02, COUNT)
    return dict(make.steps()) | {"loss": (level + noise).tolist()} | more


def ratio(make: Any, steps: Any, parameters: Any, **more: Any) -> Any:
    return make.check("update-ratio", make.process(steps, more={"parameters": parameters} | more))


def test_updates_that_lead_nowhere(make) -> None:
    status, _, finding = ratio(make, flat(make), looks(1e-6))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "too small" in finding.title
    assert "a typical weight tensor by at most" in finding.title, "a median over the tensors bounds no other one"
    assert "1e-06" in finding.summary


@pytest.mark.parametrize(
    ("update", "gradient", "change"),
    [
        (1e-3, 0.1, {}),  # sound updates, a loss at its floor
        (1e-6, 1e-6, {}),  # gradients that are small themselves: a minimum, or they vanish
        (1e-6, 0.1, {"loss": np.linspace(2.0, 1.5, COUNT).tolist()}),  # the loss falls all the same
        (1e-6, 0.1, {"loss": [-1.0] * COUNT}),  # a likelihood, whose level says nothing
        (1e-6, 0.1, {"lr": np.linspace(1e-9, 1e-5, COUNT).tolist()}),  # stopped in its warm-up
        (1e-6, 0.1, {"lr": [0.0] * COUNT}),  # another rule's
    ],
)
def test_small_updates_with_a_reason(make, update: float, gradient: float, change: dict[str, Any]) -> None:
    assert ratio(make, flat(make, **change), looks(update, gradient))[0] == "passed"


@pytest.mark.parametrize(
    ("base", "factor", "name", "squared"),
    [
        (5e-4, 5e-4, "LambdaLR", True),
        (5e-4, 2e-4, "LambdaLR", False),  # small, and another number
        (1e-3, 1.0, "LambdaLR", False),
        (1.0, 1e-6, "LambdaLR", False),  # the function returns the rate, and may
        (5e-4, 5e-4, "CosineAnnealingLR", False),
    ],
)
def test_a_rate_in_place_of_a_factor(make, base: float, factor: float, name: str, squared: bool) -> None:
    """What the optimizer was made with is not what its steps use: that number is not to be replaced by a rate."""
    lines = {"file": "t.py", "function": "fit", "excerpt_line": 8, "excerpt": RATE_LINES.format(base=base)}
    sites = [
        lines | {"site": 60, "role": "optimizer", "line": 8, "source": f"opt = Adam(net.parameters(), lr={base})"},
        lines | {"site": 61, "role": "schedule", "line": 9, "source": "sched = LambdaLR(opt, rate_at)"},
    ]
    schedule = {"scheduler": 0, "name": name, "optimizer": 0, "inner": False, "steps": COUNT, "step": COUNT}
    schedule |= {"base_lr": base, "highest_lr": base * factor, "made_at": 61, "site": 61}
    process = make.process(
        flat(make, lr=[base * factor] * COUNT),
        optimizers=[{"optimizer": 0, "name": "Adam", "made_at": 60, "options": json.dumps({"lr": base})}],
        sites=sites,
        more={"parameters": looks(1e-6), "schedules": [schedule]},
    )
    _, _, finding = make.check("update-ratio", process)
    assert ("where a factor was due" in finding.summary, finding.location.line) == (squared, 9 if squared else 8)
    edit = finding.diff.added[0] if finding.diff else None
    if squared:
        assert edit == finding.fix_code == 'sched = LambdaLR(opt, lambda step: rate_at(step) / opt.defaults["lr"])'
    elif factor == 1:
        assert edit == "opt = Adam(net.parameters(), lr=0.01)"
    else:
        assert edit is None
        assert 'group["lr"] *= 1e+03' in finding.fix_code


@pytest.mark.parametrize(("name", "rate", "said"), [("SGD", 5e-5, True), ("AdamW", 5e-5, False), ("SGD", 0.01, False)])
def test_a_rate_that_falls_is_raised_from_where_it_begins(make, name: str, rate: float, said: bool) -> None:
    """The number in the script is the highest rate, whatever the schedule makes of it in the middle of the run."""
    optimizers = [{"optimizer": 0, "name": name, "options": json.dumps({"lr": rate})}]
    falling = flat(make, lr=np.linspace(rate, 0.0, COUNT).tolist())
    process = make.process(falling, optimizers=optimizers, more={"parameters": looks(1e-5)})
    _, _, finding = make.check("update-ratio", process)
    assert f"at a median learning rate of {rate / 2:.2g}" in finding.summary
    factor = 10 if rate == 0.01 else 100
    raised = 'group["lr"] *= 10' if factor == 10 else 'group["lr"] *= 1e+02'
    assert (raised in finding.fix_code, finding.fix_code == "") == (not said, said)
    assert ("rates that are usual for Adam" in finding.summary, "AdamW" in finding.fix) == (said, said)
    assert (finding.setting.instead == "") == said, "how far to raise it is not known"
    assert ("100-fold, and from there tenfold" in finding.fix) == (factor == 100 and not said)


def test_sgd_at_a_rate_of_adam_is_given_no_number(make) -> None:
    """Its rate is to be found by trying: the size of its updates does not tell it."""
    line = "opt = SGD(net.parameters(), lr=2e-05)"
    site = {"site": 60, "role": "optimizer", "file": "t.py", "line": 8, "function": "fit", "source": line}
    site |= {"excerpt_line": 8, "excerpt": line}

    def found(name: str) -> Any:
        made = [{"optimizer": 0, "name": name, "made_at": 60, "options": json.dumps({"lr": 2e-5})}]
        steps = flat(make, lr=[2e-5] * COUNT)
        return make.check(
            "update-ratio", make.process(steps, optimizers=made, sites=[site], more={"parameters": looks(3e-6)})
        )[2]

    assert (found("SGD").diff, found("SGD").fix_code, found("SGD").location.line) == (None, "", 8)
    assert "tenfold each time" in found("SGD").fix
    site["source"] = site["excerpt"] = line.replace("SGD", "Adam")
    assert found("Adam").diff.added == ["opt = Adam(net.parameters(), lr=0.0067)"]
    assert "330-fold, and from there tenfold each time" in found("Adam").fix


def test_a_trained_model_that_is_adjusted(make) -> None:
    calls = [{"step": 1, "function": "mse_loss", "training": True, "varies": 0.9, "target_varies": 1.0}]
    assert ratio(make, flat(make), looks(1e-6), loss_calls=calls)[0] == "passed"
    untrained = [calls[0] | {"varies": 0.1}]
    assert ratio(make, flat(make), looks(1e-6), loss_calls=untrained)[0] == "fired"


def test_updates_that_undo_each_other(make) -> None:
    status, _, finding = ratio(make, flat(make), looks(0.1))
    assert (status, finding.first_step) == ("fired", COUNT // 2 + 1)
    assert ratio(make, make.steps(), looks(0.1))[0] == "passed", "it learns"
    warm = [row | {"update_norm": 1.0} if row["step"] < 30 else row for row in looks(1e-3)]
    assert ratio(make, flat(make), warm)[0] == "passed", "first steps of a warm-up"


def test_runs_that_are_too_short_or_act(make) -> None:
    assert ratio(make, make.steps(), [])[0] == "skipped"
    assert ratio(make, {name: values[:30] for name, values in make.steps().items()}, looks(1e-6))[0] == "skipped"
    two = flat(make, optimizer=[index % 2 for index in range(COUNT)])
    assert ratio(make, two, looks(1e-6))[0] == "skipped"


def clipped(make: Any, parameters: Any, **change: Any) -> Any:
    steps = flat(make, clips=[1] * COUNT, clip_max_norm=[0.001] * COUNT, grad_norm=[50.0] * COUNT) | change
    return make.check("clipping-freezes-updates", make.process(steps, more={"parameters": parameters}))


def test_a_clip_that_leaves_nothing(make) -> None:
    status, _, finding = clipped(make, looks(1e-7, gradient=1e-5))
    assert (status, finding.severity) == ("fired", "warning")
    assert "norm 50" in finding.title


@pytest.mark.parametrize(("update", "norm", "limit"), [(1e-7, 50.0, "1)"), (1e-5, 50.0, "0.1)"), (1e-7, 0.2, "0.2)")])
def test_a_clip_is_raised_and_no_rate(make, update: float, norm: float, limit: str) -> None:
    """A rate a thousand times as high would blow up wherever a gradient passes the clip."""
    _, _, finding = clipped(make, looks(update, gradient=100 * update), grad_norm=[norm] * COUNT)
    assert finding.fix_code.endswith(f"max_norm={limit}")
    assert "lr=" not in finding.fix_code
    assert "leave the learning rate" in finding.fix
    given = finding.fix_code.rpartition("=")[2].strip(")")
    assert f"Raise the limit of the clip to {given}" in finding.fix, "the words and the code name one number"
    assert ("further, up to the usual gradient norm" in finding.fix) == (float(given) < norm)
    assert "most of the usual gradient" not in finding.verify, "what the clip leaves then may be little all the same"
    assert "a typical weight tensor by at most" in finding.summary


@pytest.mark.parametrize(
    ("limit", "norm", "wanted"),
    [
        ("max_norm=args.lr * args.clip", 0.5, "max_norm=args.clip)"),
        ("cfg['clip'] * learning_rate", 0.5, "params, cfg['clip'])"),
        ("max_norm=args.lr * args.clip", 500.0, ""),  # a limit of 1 leaves less than a hundredth as well
        ("max_norm=args.scale * args.clip", 0.5, ""),
        ("max_norm=args.clip", 0.5, ""),
    ],
)
def test_a_limit_that_is_a_product_with_the_rate(make, limit: str, norm: float, wanted: str) -> None:
    source = f"clip_grad_norm_(params, {limit})"
    site = {"site": 60, "role": "clip", "file": "train.py", "line": 60, "function": "main", "source": source}
    steps = flat(make, clips=[1] * COUNT, clip_max_norm=[0.001] * COUNT, grad_norm=[norm] * COUNT, lr=[0.001] * COUNT)
    parameters = looks(1e-7, gradient=1e-5)
    finding = make.check(
        "clipping-freezes-updates", make.process(steps, sites=[site], more={"parameters": parameters})
    )[2]
    assert ("Leave the learning rate out" in finding.fix) == bool(wanted)
    assert finding.fix_code.endswith(wanted)


def test_a_limit_that_is_too_small_is_not_told_from_norms_that_are_too_large(make) -> None:
    _, _, large = clipped(make, looks(1e-7, gradient=1e-5))
    assert "why the gradient norms are so large" in large.fix
    _, _, ordinary = clipped(make, looks(1e-5, gradient=1e-3), grad_norm=[0.24] * COUNT)
    assert "why the gradient norms" not in ordinary.fix
    assert "the limit is too small" in ordinary.fix
    assert ordinary.fix_code.endswith("max_norm=0.24)"), "steps are then ten times the usual at most"
    scaled = {"grad_norm": [8.0] * COUNT, "clipped_scaled": [1] * COUNT}
    assert "the limit is too small" not in clipped(make, looks(1e-7, gradient=1e-5), **scaled)[2].fix, "norms of what?"


def test_clips_that_freeze_nothing(make) -> None:
    assert clipped(make, looks(1e-3, gradient=1e-5))[0] == "passed", "the weights move"
    assert clipped(make, looks(1e-6, gradient=1e-8))[0] == "passed", "Adam does not go by the size of a gradient"
    assert clipped(make, looks(1e-7, gradient=1e-5), grad_norm=[0.002] * COUNT)[0] == "passed", "half of it is left"
    assert clipped(make, looks(1e-7, gradient=1e-5), loss=make.steps()["loss"])[0] == "passed", "the loss falls"
    noise = np.random.default_rng(0).normal(1, 0.2, COUNT)
    noise[: COUNT // 10] *= 1.06  # within what a fifth of spread does to a median of forty
    assert clipped(make, looks(1e-7, gradient=1e-5), loss=(2.0 * noise).tolist())[0] == "fired"
    assert clipped(make, looks(1e-7), clips=[0] * COUNT)[0] == "skipped"


def rate(make: Any, loss: Any, updates: list[float], count: int = COUNT) -> Any:
    rows = [row | {"update_norm": 2 * updates[SAMPLED_STEPS.index(row["step"])]} for row in looks(0.0)]
    steps = {name: values[:count] for name, values in make.steps().items()} | {"loss": list(loss)}
    process = make.process(steps, more={"parameters": [row for row in rows if row["step"] <= count]})
    return make.check("learning-rate-too-high", process)


def test_a_loss_at_the_level_of_a_guess_after_huge_updates(make) -> None:
    guess = [1.51, 3.0, *(1.33 + np.random.default_rng(0).normal(0, 0.05, COUNT - 2)).tolist()]
    status, _, finding = rate(make, guess, [0.7, 1.2, 0.1, 0.04] + [0.0] * 8)
    assert status == "fired"
    assert "stays near its start" in finding.title
    assert rate(make, guess, [0.13, 0.09, 0.04, 0.02] + [0.01] * 8)[0] == "passed", "data that say nothing"
    assert rate(make, guess, [0.9, 0.09, 0.04, 0.02] + [0.01] * 8)[0] == "passed", "layers that begin at zero"
    falling = np.linspace(1.5, 0.4, COUNT)
    assert rate(make, falling, [0.7, 1.2, 0.1, 0.04] + [0.0] * 8)[0] == "passed", "it learns"


def test_a_loss_that_fell_first_and_blew_up(make) -> None:
    loss = [*np.linspace(9.5, 5.0, 40), *(5.0 * 1.4 ** np.arange(30))]
    status, _, finding = rate(make, loss, [0.25, 0.38, 0.19, 0.26, 0.3, 0.3, 0.4] + [0.0] * 5, 70)
    assert status == "fired"
    assert "before it had settled" in finding.title
    sound = [1e-3] * 6 + [5.0] * 6
    assert rate(make, loss, sound, 70)[0] == "passed", "a bad batch, or something else"


def test_a_loss_that_began_to_fall_and_came_back_to_its_start(make) -> None:
    noise = np.random.default_rng(4).normal(0, 0.05, COUNT)
    fell = np.concatenate([np.linspace(2.3, 1.0, 16), np.linspace(1.1, 2.05, 24), np.full(COUNT - 40, 2.05)]) + noise
    status, _, finding = rate(make, fell, [0.11, 0.12, 0.2, 0.1] + [0.0] * 8)
    assert status == "fired"
    assert "stays near its start" in finding.title
    assert rate(make, fell, [0.02, 0.03, 0.02, 0.01] + [0.0] * 8)[0] == "passed", "by something else than its updates"
    late = np.concatenate([np.linspace(2.3, 1.0, 300), np.full(COUNT - 300, 2.1)])
    assert rate(make, late, [0.11, 0.12, 0.2, 0.1] + [0.0] * 8)[0] == "passed", "it was sound for most of the run"


def test_a_burst_that_a_model_never_gets_over(make) -> None:
    after = 1.1 + np.random.default_rng(4).normal(0, 0.1, COUNT - 6)
    burst = [1.4, 7.5, 66.0, 79.0, 34.0, 16.0, *after.tolist()]
    assert rate(make, burst, [9.0, 0.7, 0.06, 0.03] + [0.0] * 8)[0] == "fired"
    over = [*burst[:6], *np.linspace(1.4, 0.3, COUNT - 6).tolist()]
    assert rate(make, over, [9.0, 0.7, 0.06, 0.03] + [0.0] * 8)[0] == "passed", "it learns after all"


def decaying(make: Any, left: float, decay: float = 5.0, name: str = "AdamW", **steps: Any) -> Any:
    """Weights that come to this share of their first norm, at a rate of 0.01."""
    rows = looks(1e-3)
    for at, row in enumerate(rows):
        row["weight_norm"] *= 1 + (left - 1) * at / (len(rows) - 1)
    options = f'{{"lr": 0.01, "weight_decay": {decay}, "decoupled_weight_decay": {str(name == "AdamW").lower()}}}'
    made = [{"optimizer": 0, "name": name, "groups": 1, "options": options, "device": "cpu"}]
    return ratio(make, flat(make, **{"lr": [0.01] * COUNT} | steps), rows, optimizers=made)


def test_decay_that_takes_the_weights_away(make) -> None:
    status, _, finding = decaying(make, left=0.02)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert finding.title == "Weight decay takes 5% off the weights at every step"
    assert "weight_decay=0.01" in finding.fix_code
    assert "1e-4" in decaying(make, left=0.02, name="SGD")[2].fix_code


def test_decay_that_is_usual_or_does_no_harm(make) -> None:
    assert decaying(make, left=0.02, decay=0.1)[0] == "passed"
    assert decaying(make, left=0.02, name="Adam")[0] == "passed", "Adam divides what it adds to the gradient"
    assert decaying(make, left=0.6)[0] == "passed"
    assert decaying(make, left=0.02, loss=np.linspace(2.0, 0.2, COUNT).tolist())[0] == "passed"
