"""Healthy trainings that look like a fault: each rule passes them, or says that it cannot tell."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.rule import Rule
from tracelyze.analyzers.rules import RULES

COUNT = 400


def every(period: int, value: Any, other: Any) -> list[Any]:
    return [value if index % period == 0 else other for index in range(COUNT)]


def test_gradients_from_autograd_grad_are_no_repeated_step(make) -> None:
    norms = make.steps(COUNT)["grad_norm"]
    steps = make.steps(COUNT) | {"backwards": every(2, 1, 0)}
    assert make.check("step-without-backward", make.process(steps))[0] == "passed", "other gradients at every step"
    stale = steps | {"grad_norm": [norms[index - index % 2] for index in range(COUNT)]}
    assert make.check("step-without-backward", make.process(stale))[0] == "fired"
    clipped = stale | {"clip_max_norm": [0.5] * COUNT}
    clipped["grad_norm"] = [2.0 if index % 2 == 0 else 0.5 for index in range(COUNT)]
    assert make.check("step-without-backward", make.process(clipped))[0] == "fired", "the same gradients, clipped"
    unknown = steps | {"grad_norm": [None] * COUNT}
    assert make.check("step-without-backward", make.process(unknown))[0] == "skipped"
    none = unknown | {"grads_none": every(2, 0, 8)}
    _, _, finding = make.check("step-without-backward", make.process(none))
    assert finding.confidence == "certain"
    assert "cleared" not in finding.summary, "that they were cleared was not seen"


ACCUMULATION = {
    "backwards": [4] * COUNT,
    "loader_batches": [4] * COUNT,
    "microbatches": [4] * COUNT,
    "loss_divisor": [1] * COUNT,
}


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"grads_changes": [0] * COUNT}, "fired"),
        ({"grads_changes": [1] * COUNT, "clips": [1] * COUNT}, "fired"),  # the clip
        ({"grads_changes": [1] * COUNT}, "passed"),  # p.grad /= 4
        ({"grads_changes": [2] * COUNT, "clips": [1] * COUNT}, "passed"),
        ({"grads_changes": [-1] * COUNT}, "passed"),  # p.grad = p.grad / 4
    ],
)
def test_gradients_that_are_divided_before_the_step(make, columns, status) -> None:
    assert make.check("unscaled-accumulation", make.process(make.steps(COUNT) | ACCUMULATION | columns))[0] == status


def given_up(make, samples: int) -> dict[str, Any]:
    """Training forwards that no backward followed, of a loop without a loader: one here, one there."""
    columns = make.evals(20, 20)
    count = 20
    return columns | {
        "forwards": [1] * count,
        "samples": [samples] * count,
        "grad_mode": [2] * count,
        "losses": [1] * count,
        "model_in_train": [True] * count,
        "modules_in_train": [3] * count,
        "modules": ["Dropout x3"] * count,
        "dropouts": [3] * count,
        "loader": [None] * count,
    }


def test_batches_that_a_loop_without_a_loader_gives_up(make) -> None:
    steps = make.steps(COUNT) | {"loader": [None] * COUNT, "loader_batches": [None] * COUNT}
    for rule in ("eval-with-grad", "eval-in-train-mode"):
        assert make.check(rule, make.process(steps, evals=given_up(make, 32)))[0] == "skipped"
    assert make.check("eval-in-train-mode", make.process(steps, evals=given_up(make, 500)))[0] == "fired"


def test_attention_in_train_mode_that_drops_nothing(make) -> None:
    evals = make.evals() | {"model_in_train": [True] * 4, "modules_in_train": [2] * 4}
    healthy = evals | {"modules": ["LlamaAttention x2"] * 4, "dropouts": [0] * 4}
    assert make.check("eval-in-train-mode", make.process(evals=healthy))[0] == "passed"
    for kinds, dropped in (("LlamaAttention x2", 8), ("BatchNorm1d", 0), ("LSTM", 0)):
        faulty = evals | {"modules": [kinds] * 4, "dropouts": [dropped] * 4}
        assert make.check("eval-in-train-mode", make.process(evals=faulty))[0] == "fired"


def falling(to: float, count: int = COUNT) -> Any:
    random = np.random.default_rng(1)
    return to + 2 * np.exp(-np.arange(count) / 40) + random.normal(0, 0.02, count)


def test_a_loss_whose_objective_changes_at_a_step_does_not_diverge(make) -> None:
    loss = falling(0.5)
    loss[200:] += 1.5
    steps = make.steps(COUNT) | {"loss": loss.tolist()}
    status, reason, _ = make.check("loss-divergence", make.process(steps))
    assert status == "passed"
    assert "jumped at step 201" in reason
    norms = np.array(steps["grad_norm"])
    norms[199] *= 50
    blown = steps | {"grad_norm": norms.tolist()}
    assert make.check("loss-divergence", make.process(blown))[0] == "fired", "a large update explains the jump"
    faster = steps | {"lr": [0.01] * 199 + [0.2] * (COUNT - 199)}
    assert make.check("loss-divergence", make.process(faster))[0] == "fired", "so does a larger rate"


def test_a_term_whose_weight_grows_by_plan_is_no_divergence(make) -> None:
    weight = np.linspace(0, 3, COUNT)
    fit = falling(0.5)
    steps = make.steps(COUNT) | {"loss": (fit + weight).tolist()}

    def calls(values: Any) -> list[dict[str, Any]]:
        return [
            {"step": index, "function": "mse_loss", "site": 1, "training": True, "value": float(values[index])}
            for index in range(0, COUNT, 10)
        ]

    healthy = make.process(steps, more={"loss_calls": calls(fit)})
    assert make.check("loss-divergence", healthy)[0] == "passed"
    whole = make.process(steps, more={"loss_calls": calls(fit + weight)})
    assert make.check("loss-divergence", whole)[0] == "fired", "what its loss function says rose"
    assert make.check("loss-divergence", make.process(steps))[0] == "fired"


def test_a_warm_up_longer_than_the_run_does_not_pass(make) -> None:
    rate = [1e-3 * (index + 1) / 4000 for index in range(COUNT)]
    row = {"scheduler": 0, "optimizer": 0, "name": "LambdaLR", "steps": COUNT, "base_lr": 1e-3, "lowest_lr": 0.0,
           "highest_lr": rate[-1], "shares_parameters": True, "inner": False}  # fmt: skip
    process = make.process(make.steps(COUNT) | {"lr": rate}, more={"schedules": [row]})
    status, reason, _ = make.check("learning-rate-schedule", process)
    assert status == "fired"
    assert "longer than the training" in reason
    line = {"site": 1, "role": "constant", "file": "a.py", "line": 7, "source": "warmup = 4_000", "name": "warmup"}
    line |= {"value": "4_000", "own_name": "warmup", "excerpt": "warmup = 4_000", "excerpt_line": 7}
    made = {"site": 2, "role": "scheduler", "file": "a.py", "line": 9, "source": "sched = LambdaLR(opt, rising)"}
    sites, schedules = [line, made], [row | {"made_at": 2}]
    told = make.process(make.steps(COUNT) | {"lr": rate}, sites=sites, more={"schedules": schedules})
    finding = make.check("learning-rate-schedule", told)[2]
    assert (finding.location.line, finding.diff.added) == (7, [f"warmup = {COUNT // 20}"])
    whole = [1e-3 * min(1.0, (index + 1) / 100) for index in range(COUNT)]
    healthy = make.process(make.steps(COUNT) | {"lr": whole}, more={"schedules": [row | {"highest_lr": 1e-3}]})
    assert make.check("learning-rate-schedule", healthy)[0] == "passed"


def test_what_too_few_calls_show_is_not_passed(make) -> None:
    """Of right-padded rows few calls show what a position sees."""
    rows = [
        {"step": index, "function": "cross_entropy", "site": 1, "training": True, "ids_equal": 0.0,
         "ids_compared": 100, "sees_later": 0.0 if index == 0 else None}
        for index in range(20)
    ]  # fmt: skip
    assert make.check("target-in-input", make.process(more={"loss_calls": rows}))[0] == "skipped"
    seen = [row | {"sees_later": 0.0} for row in rows]
    assert make.check("target-in-input", make.process(more={"loss_calls": seen}))[0] == "passed"


@pytest.mark.parametrize("kind", ["trainer_state", "comet", "clearml"])
def test_a_log_of_the_trainer_does_not_say_that_its_losses_were_finite(make, kind) -> None:
    """It holds the mean of other losses in place of NaN (logging_nan_inf_filter)."""
    log = {"source": {"kind": kind}}
    evals = {"after_step": [100, 200, 300, 400], "loss": [1.0, float("nan"), float("nan"), float("nan")]}
    recorded = make.evals() | {"loss": evals["loss"]}
    assert make.check("validation-nonfinite", make.process(evals=recorded))[2].confidence == "certain"
    _, _, finding = make.check("validation-nonfinite", make.process(evals=evals, facts=log))
    assert finding.confidence == "likely"
    assert "training losses are finite" not in finding.title
    for kind, said in (("BatchNorm2d x3", True), ("Dropout x2", False)):  # a cause that the model has
        models = [{"model": 0, "name": "Net", "parameters": 4, "elements": 899, "sensitive": kind}]
        told = make.check("validation-nonfinite", make.process(evals=recorded, models=models))[2]
        assert ("BatchNorm variance" in told.summary) == said
    norms = make.steps(COUNT)["grad_norm"]
    norms[150:] = [float("nan")] * (COUNT - 150)
    broken = make.steps(COUNT) | {"grad_norm": norms}
    assert make.check("validation-nonfinite", make.process(broken, evals=evals, facts=log))[0] == "passed"
    _, _, finding = make.check("nonfinite-gradients", make.process(broken, evals={}, facts=log))
    assert finding.confidence == "likely"
    assert "although the loss still was" not in finding.summary
    assert make.check("nonfinite-gradients", make.process(broken))[2].confidence == "certain"


LOG_ERROR = "error = F.mse_loss(torch.log1p(out), torch.log1p(count))"


@pytest.mark.parametrize(
    ("source", "function", "named"),
    [
        (LOG_ERROR, "validate", True),
        (LOG_ERROR.replace("out)", "scaled)"), "validate", True),
        ("error = (out + 1).log().sub(count.log()).abs().mean()", "validate", True),
        (LOG_ERROR.replace("out)", "out.clamp(min=0))").replace("count)", "count.clamp(min=0))"), "validate", False),
        ("error = F.mse_loss(out, count)", "validate", False),
        ("return math.log(total / n)", "validate", False),  # raises an error, and is no NaN
        (LOG_ERROR, "prepare", False),
    ],
)
def test_the_logarithm_that_an_evaluation_takes_is_named(make, source: str, function: str, named: bool) -> None:
    """Where it is the only one of the function that evaluates, and bounds nothing itself."""
    bounded = "torch.log1p(out.clamp_min(0)), torch.log1p(count)"
    at = {"file": "train.py", "function": "validate", "source": "out = model(x)", "line": 20, "site": 1}
    taken = {"file": "train.py", "function": function, "source": source, "line": 21, "site": 2, "role": "singular"}
    evals = make.evals() | {"loss": [1.0, *[float("nan")] * (len(make.evals()["loss"]) - 1)]}
    evals["site"] = [1] * len(evals["loss"])
    finding = make.check("validation-nonfinite", make.process(evals=evals, sites=[at, taken]))[2]
    assert ("Line 21 takes the log" in finding.summary) == named
    assert finding.location.line == (21 if named else 20)
    assert ("min()" in finding.fix_code or bounded in finding.fix_code) == named
    assert (bounded in finding.fix_code) == (named and source == LOG_ERROR), "what the model predicts, and no other"
    assert finding.fix.startswith("Look at what line 21" if named else "Check the inputs")


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_whoever_may_be_certain_says_what_was_excluded(rule: Rule) -> None:
    """By the text of the rule's module, and of the modules that make findings for it."""
    module = sys.modules[rule.check.__module__]
    text = inspect.getsource(module)
    made_by = [one for name, one in vars(module).items() if inspect.ismodule(one) and f"{name}.finding(" in text]
    from_there = any('"certain"' in inspect.getsource(one) for one in made_by) and "confidence=" not in text
    if '"certain"' in text or from_there:
        assert rule.excluded or "excluded=[" in text, "the rule says it, or its finding does"
        assert all(one.endswith(".") for one in rule.excluded)
