"""learning-rate-too-high: curves with a rate that explains them, and curves that look like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

COUNT = 400


def quadratic(rates: list[float], curvature: float = 4.0, seed: int = 0, floor: float = 0.05) -> list[float]:
    """Losses of noisy gradient descent on a parabola: stable up to a rate of two over the curvature."""
    random = np.random.default_rng(seed)
    weight, losses = 1.0, []
    for rate in rates:
        losses.append(float(0.5 * curvature * weight**2 + floor * np.exp(random.normal(0, 0.3))))
        weight -= rate * (curvature * weight + random.normal(0, 0.05))
        if not np.isfinite(weight) or abs(weight) > 1e150:
            losses.append(float("inf"))
            break
    return losses


def run(make, rates: list[float], losses: list[float] | None = None, update: float = 0.5, **more: Any):
    """Status and finding for a training with these rates, and the losses that follow from them."""
    losses = quadratic(rates) if losses is None else losses
    count = len(losses)
    steps = {name: column[:count] for name, column in make.steps(max(count, 2)).items()}
    steps |= {"loss": losses, "lr": list(rates[:count])}
    looks = [
        {"step": step, "optimizer": 0, "elements": 64, "weight_norm": 1.0, "update_norm": update, "parameter": "w"}
        for step in (1, 2, 11)
    ]
    optimizers = [{"optimizer": 0, "name": "SGD", "device": "cpu", "dtype": "float32", "parameters": 8}]
    tables = {"parameters": looks} | more.pop("tables", {})
    process = make.process(steps, evals={}, optimizers=optimizers, more=tables, **more)
    status, _, finding = make.check("learning-rate-too-high", process)
    return status, finding


def test_a_rate_that_is_too_high_from_the_start(make) -> None:
    status, finding = run(make, [0.7] * COUNT)
    assert status == "fired"
    assert finding.first_step == 1
    assert '["lr"] *= 0.1' in finding.fix_code
    assert run(make, [0.7] * COUNT, update=0.01)[0] == "passed", "updates that small do not overshoot"


def test_a_first_update_that_happens_to_help_explains_nothing(make) -> None:
    assert run(make, [3.0] * 6, [1.90, 1.77, 12.3, 1013.0, 7.6e9, float("nan")], update=2.0)[0] == "fired"
    assert run(make, [3.0] * 6, [1.90, 1.77, 1.6, 1.5, 1013.0, float("nan")], update=2.0)[0] == "passed", "a bad batch"


def test_losses_that_multiply_before_the_weights_were_measured(make) -> None:
    rate, curvature = 0.01, 5e5  # inputs in the hundreds
    losses = [(1 - rate * curvature) ** (2 * step) for step in range(5)]
    status, finding = run(make, [rate] * 6, [*losses, float("inf")], tables={"parameters": []})
    assert status == "fired"
    assert "above 4e-06 diverges" in finding.fix, "two over the curvature"
    assert '["lr"] *= 0.0002' in finding.fix_code
    once = [1.0, 1e6, 1.1e6, 1e6, 1.2e6]  # what one batch does
    assert run(make, [rate] * 5, once, tables={"parameters": []})[0] == "passed"


def test_the_loss_that_it_grew_from_is_one_from_before(make) -> None:
    losses = [0.7 - 0.02 * step for step in range(12)] + [50.0, 1e3, 0.0, 1e6] * 20
    status, finding = run(make, [3.0] * len(losses), losses)
    assert status == "fired"
    assert finding.summary.startswith("The loss went from 0.48 to ")


@pytest.mark.parametrize("raised", [0.7, 5.0, 50.0])
def test_a_rate_that_is_raised_beyond_what_is_borne(make, raised) -> None:
    status, finding = run(make, [0.05] * 150 + [raised] * 250)
    assert status == "fired"
    assert 120 <= finding.first_step <= 151, "as the loss tells"
    assert "From step 151 on" in finding.summary
    assert "0.05" in finding.fix
    shown = next(chart for chart in finding.charts if "loss" in chart.title.lower()).lines[0].y
    lowest = next(one.value for one in finding.evidence if one.name == "lowest loss")
    assert lowest == min(shown[:151]), "as the chart draws it"
    grows = [0.01 * 1.02**index for index in range(COUNT)]
    assert run(make, grows)[0] == "fired"


def test_a_rate_that_outgrows_what_is_stable_while_the_loss_comes_down_from_its_peak(make) -> None:
    rates = [0.001 * (1 + index) for index in range(COUNT)]
    noise = np.exp(np.random.default_rng(5).normal(0, 0.1, COUNT))
    fell = np.geomspace(1.0, 0.1, 30)
    risen = np.concatenate([fell, np.full(70, 0.1), np.linspace(0.1, 0.6, 60), np.linspace(0.6, 0.25, COUNT - 160)])
    status, finding = run(make, rates, (risen * noise).tolist())
    assert status == "fired"
    assert finding.severity == "critical"
    held = np.concatenate([fell, np.full(COUNT - 30, 0.1)])
    assert run(make, rates, (held * noise).tolist())[0] == "passed", "the loss bears it"
    capped = [min(rate, 0.05) for rate in rates]
    assert run(make, capped, (risen * noise).tolist())[0] == "passed", "the rate has long been what it was"
    falling = [*rates[:300], *np.linspace(rates[299], 0.0, 100)]
    assert run(make, falling, (risen * noise).tolist())[0] == "passed", "it comes down, and the loss with it"


@pytest.mark.parametrize(
    ("factor", "last", "status"),
    [
        ("(step + 1) / warm", 1.0, "fired"),
        ("(step + 1) / warm", 0.3, "passed"),  # the loss bears it so far
        ("min(1.0, (step + 1) / warm)", 1.0, "passed"),
        ("rate_of(step)", 1.0, "passed"),  # nothing shows that it has no end
    ],
)
def test_a_warm_up_without_an_end_explains_a_loss_that_rises_less(make, factor: str, last: float, status: str) -> None:
    rates = [0.001 * (1 + index / 40) for index in range(COUNT)]
    noise = np.exp(np.random.default_rng(5).normal(0, 0.1, COUNT))
    fell = np.geomspace(1.0, 0.1, 150)
    rises = np.concatenate([fell, np.linspace(0.1, 0.1 + 0.4 * last, 100), np.full(150, 0.1 + 0.2 * last)])
    site = {"site": 7, "role": "scheduler", "file": "a.py", "line": 30, "function": "main"}
    site |= {"source": f"s = LambdaLR(opt, lambda step: {factor})"}
    schedule = {"scheduler": 0, "optimizer": 0, "name": "LambdaLR", "base_lr": 0.001, "made_at": 7, "step": 1}
    found, finding = run(make, rates, (rises * noise).tolist(), sites=[site], tables={"schedules": [schedule]})
    assert found == status
    if finding is not None:
        assert (finding.severity, finding.location.line) == ("warning", 30)
        assert "rises while the warm-up goes on" in finding.title
        assert "min(1.0, (step + 1) / warm)" in finding.fix_code


@pytest.mark.parametrize(
    "rates",
    [
        [0.05] * COUNT,
        [0.05 * min(1.0, index / 100) for index in range(COUNT)],  # warm-up
        [0.2 * (0.5 + 0.5 * np.cos(np.pi * (index % 100) / 100)) + 1e-3 for index in range(COUNT)],  # restarts
        [0.001] * 100 + [0.1] * 300,  # raised a hundredfold, and borne
        [0.45] * COUNT,  # nine tenths of the limit
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_rates_that_are_borne(make, rates, seed) -> None:
    assert run(make, rates, quadratic(rates, seed=seed))[0] == "passed"


def test_losses_that_blow_up_for_other_reasons(make) -> None:
    falling = quadratic([0.05] * COUNT)
    warm_up = [0.2 * min(1.0, index / 350) for index in range(COUNT)]
    lost = [*falling[:300], *[float("nan")] * 100]  # a batch without valid samples, in the middle of the warm-up
    assert run(make, warm_up, lost)[0] == "passed"
    later = [*falling[:200], *[0.2 * 1.05**index for index in range(200)]]  # at a constant rate
    assert run(make, [0.05] * COUNT, later)[0] == "passed"
    spike = [*falling[:200], 30.0, 20.0, *falling[202:]]
    assert run(make, [0.05] * 199 + [0.2] * 201, spike)[0] == "passed"
    start = [1e9, float("inf"), *[float("nan")] * 98]  # initial weights that are far too large
    assert run(make, [0.01] * 100, start, update=1e5)[0] == "skipped"


def test_several_optimizers_have_no_minimum(make) -> None:
    steps = make.steps()
    steps["optimizer"] = [index % 2 for index in range(COUNT)]
    assert make.check("learning-rate-too-high", make.process(steps, evals={}))[0] == "skipped"


def test_a_training_that_goes_on_with_trained_weights(make) -> None:
    """Its first loss is low: the steps of a fresh optimizer raise it, whatever the rate is."""
    losses = [0.02] + [0.05 + 0.001 * (index % 7) for index in range(COUNT - 1)]
    begins = make.steps()["time"][0]

    def status(**load: Any) -> str:
        return str(run(make, [0.01] * COUNT, losses, tables={"loads": [load]} if load else {})[0])

    assert status(time=begins - 1, step=700) == "passed"
    assert status(time=begins - 1, step=0) == "fired", "weights of another task, say"
    assert status() == "fired"


@pytest.mark.parametrize(("norms", "status"), [((1.0, 1.3, 20.0), "fired"), ((1.0, 1.3, 2.0), "passed")])
def test_large_updates_between_two_looks_show_in_the_weights(make, norms: tuple[float, ...], status: str) -> None:
    """Within a warm-up one large update is seen; what the others did is what the weights are later."""
    warm_up = [0.03 * step for step in range(10)] + [0.3] * (COUNT - 10)
    losses = [3.8, 3.8, 3.6] + [5.0] * 40 + [3.5 - 0.0004 * step for step in range(COUNT - 43)]
    looks = [
        {"step": step, "optimizer": 0, "elements": 64, "weight_norm": norm, "update_norm": update, "parameter": "w"}
        for step, norm, update in zip((1, 2, 11), norms, (0.0, 1.2, 0.1), strict=True)
    ]
    found, finding = run(make, warm_up, losses, tables={"parameters": looks})
    assert found == status
    if found == "fired":
        assert "rate of SGD, 0.3," in finding.title


def test_a_batch_that_broke_the_training_is_no_rate(make) -> None:
    random = np.random.default_rng(8)
    looks = [
        {
            "step": step,
            "optimizer": 0,
            "elements": 64,
            "weight_norm": norm,
            "update_norm": 0.03 * norm,
            "parameter": "w",
        }
        for step, norm in (
            (1, 1.0),
            (2, 1.0),
            (11, 1.0),
            (60, 90.0),
            (90, 95.0),
        )  # the 44th update is 90 times as large
    ]

    def status(losses: list[float]) -> str:
        return str(run(make, [0.05] * COUNT, losses, tables={"parameters": looks})[0])

    wrecked = [*(4e3 * np.exp(random.normal(0, 0.4, 60))), *random.normal(1.4, 0.02, COUNT - 103)]
    sound = 1.4 - 0.3 * np.arange(43) / 43 + random.normal(0, 0.02, 43)
    assert status([*sound, *wrecked]) == "passed"  # the loss fell until that batch
    assert status([*random.normal(1.4, 0.02, 43), *wrecked]) == "fired"  # nothing shows that the rate was sound
    assert status([*sound, *np.geomspace(1.1, 4e3, 12), *wrecked[:-12]]) == "fired"  # it grew from step to step


@pytest.mark.parametrize(("classes", "status"), [(1.0, "fired"), (40.0, "skipped")])
def test_a_loss_among_more_and_more_classes_rises_by_itself(make, classes: float, status: str) -> None:
    """A contrastive loss whose negatives are collected as it goes on: a guess among forty times as many loses more."""
    calls = [
        {"step": step, "function": "cross_entropy", "site": 1, "training": True,
         "input_shape": f"96x{int(96 + 96 * (classes - 1) * step / COUNT)}"}
        for step in range(0, COUNT, 20)
    ]  # fmt: skip
    steps = make.steps(COUNT) | {"loss": [2.0 + 5.0 * min(1.0, step / 100) for step in range(COUNT)]}
    process = make.process(steps, evals={}, more={"loss_calls": calls})
    assert make.check("loss-divergence", process)[0] == status


@pytest.mark.parametrize(
    ("highest", "steps", "norms", "status"),
    [
        (40.0, 60, (1.0, 1.5, 3.5, 4.5), "fired"),
        (40.0, 60, (1.0, 1.1, 1.2, 1.4), "passed"),  # one hard stretch of data: the weights are kept
        (40.0, 12, (1.0, 1.5, 3.5, 4.5), "passed"),  # a bad start of a few steps
        (6.0, 60, (1.0, 1.5, 3.5, 4.5), "passed"),  # it rises by little
    ],
)
def test_first_updates_after_which_a_loss_is_long_on_its_way_back(
    make, highest: float, steps: int, norms: tuple[float, ...], status: str
) -> None:
    """The model learns all the same: what was lost is the way back to where the loss began."""
    falls = np.geomspace(1.0, 0.2, COUNT - steps - 4)
    losses = [2.0, 1.9, 2.2, 3.0, *np.geomspace(highest, 4.5, steps), *falls]
    looks = [
        {"step": step, "optimizer": 0, "elements": 64, "weight_norm": norm, "update_norm": 0.5, "parameter": "w"}
        for step, norm in zip((1, 2, 11, 40), norms, strict=True)
    ]
    found, finding = run(make, [0.1] * COUNT, losses, tables={"parameters": looks})
    assert found == status
    if finding is not None and status == "fired":
        assert (finding.severity, finding.confidence) == ("warning", "likely")
        assert finding.title.endswith("is too high: the loss rose to 40 before it fell")
        assert f"For {steps} steps the loss was above twice that of the first step" in finding.summary


def test_first_updates_that_replace_the_weights_of_a_model_that_learns_half(make) -> None:
    random = np.random.default_rng(3)
    losses = [1.5, 3.5, 1.8, 2.9, *np.linspace(1.4, 0.9, COUNT - 4) * np.exp(random.normal(0, 0.05, COUNT - 4))]

    def weights(*norms: float) -> dict[str, Any]:
        looks = [
            {"step": step, "optimizer": 0, "elements": 64, "weight_norm": norm, "update_norm": 0.5, "parameter": "w"}
            for step, norm in zip((1, 2, 11, 40), norms, strict=True)
        ]
        return {"parameters": looks}

    replaced = weights(1.0, 1.5, 3.5, 4.5)
    status, finding = run(make, [0.1] * COUNT, losses, tables=replaced)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "possible")
    assert "of its start" in finding.title
    assert finding.cost is None, "a model that has learned half is not all lost"
    assert run(make, [0.1] * COUNT, losses, tables=weights(1.0, 1.1, 1.2, 1.4))[0] == "passed", "the weights are kept"
    learned = [loss * (0.5 if at > 50 else 1.0) for at, loss in enumerate(losses)]
    assert run(make, [0.1] * COUNT, learned, tables=replaced)[0] == "passed", "it learns more than half"
    noisy = [loss * (3.0 if at % 40 == 39 else 1.0) for at, loss in enumerate(losses)]
    assert run(make, [0.1] * COUNT, noisy, tables=replaced)[0] == "passed", "the first losses are no burst"
