"""Gradients that explode, spike or are not finite, and the healthy look-alikes that no rule may fire on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers.evidence.loss import singular_gradients

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


def test_a_deviation_of_a_batch_of_one(make) -> None:
    """The last batch of a pass of 101 holds one sample: what to change is the loader, and not the loop."""
    steps = make.steps() | {"loss": [0.7] * 100 + [float("nan")] * 300, "batch_size": [64] * 100 + [1] + [64] * 299}
    steps |= {"loader": [0] * 400, "loader_first": [at % 101 == 0 for at in range(400)], "loader_batches": [1] * 400}
    text = "std of a single value"
    event = {"kind": "nonfinite-loss", "step": 100, "name": "", "text": text, "value": 1.0, "time": 1.0}
    made = "train = DataLoader(data, batch_size=64, shuffle=True)"
    sites = [
        {"site": at, "role": role, "file": "a.py", "line": at, "function": function, "source": source}
        | {"excerpt": source, "excerpt_line": at}
        for at, role, function, source in (
            (81, "dataloader", "main", made),
            (50, "singular", "criterion", "za = (za - za.mean(0)) / za.std(0)"),
        )
    ]
    loader = {"loader": 0, "length": 101, "batch_size": 64, "drop_last": False, "made_at": 81, "dataset": "Windows"}

    def judged(**more: Any) -> Any:
        process = make.process(steps | more, events=[event], sites=sites, loaders=[loader])
        return make.check("loss-nonfinite", process)[2]

    finding = judged()
    assert "A std of a single value made it." in finding.summary
    assert "where the usual one holds 64: it is the last of 101. Line 50 takes the deviation." in finding.summary
    assert finding.location.line == 81
    assert finding.diff.added == [made.replace("True)", "True, drop_last=True)")]
    elsewhere = judged(loader_batches=[2] * 400)
    assert (elsewhere.location.line, elsewhere.diff) == (50, None), "not the last one of its pass"
    assert "drop_last" not in elsewhere.fix
    always = judged(batch_size=[1] * 400)
    assert "This batch holds" not in always.summary, "so do all others"
    assert (always.location.line, "unbiased=False" in always.fix_code) == (50, True)


def test_weights_that_a_root_of_zero_broke_a_step_before(make) -> None:
    steps = make.steps() | {"loss": [0.7] * 300 + [float("nan")] * 100}
    loss = {"kind": "nonfinite-loss", "step": 300, "name": "net.bias", "text": "", "value": 0.0, "time": 1.0}
    event = {"kind": "spoiled-weights", "step": 300, "name": "net.bias", "text": "sqrt at 0", "time": 1.0}
    text = "    d = torch.sqrt((a - b).pow(2).sum(1))"
    line = {"site": 9, "role": "singular", "file": "train.py", "line": 12, "function": "forward"}
    line |= {"source": text.strip(), "excerpt": text, "excerpt_line": 12}
    _, _, finding = make.check("loss-nonfinite", make.process(steps, events=[loss, event], sites=[line]))
    assert "The derivative of sqrt at 0 is not finite, and line 12 takes one." in finding.summary
    assert (finding.location.line, finding.diff.line) == (12, 12)
    assert finding.diff.added == ["    d = torch.sqrt((a - b).pow(2).sum(1) + 1e-8)"]
    twice = [line, line | {"site": 10, "line": 40}]
    _, _, several = make.check("loss-nonfinite", make.process(steps, events=[loss, event], sites=twice))
    assert "The derivative of sqrt at 0 is not finite, and this loss is made with it." in several.summary
    assert several.diff is None
    assert "1e-8" in several.fix_code
    for other in (
        steps | {"loss": [0.7] * 299 + [70.0] + [float("nan")] * 100},
        steps | {"lr": [0.1] * 300 + [0.9] * 100},
    ):
        _, _, blown = make.check("loss-nonfinite", make.process(other, events=[loss, event], sites=[line]))
        assert "derivative" not in blown.summary, "training blew up"


@pytest.mark.parametrize(
    ("source", "complement"),
    [
        ("neg = (1 - self.alpha) * p**2 * (1 - y) * torch.log(1 - p)", True),
        ("return -(y * p.log() + (1 - y) * (1 - p).log()).mean()", True),
        ("loss = -torch.log(1.0 - torch.sigmoid(fake)).mean()", True),
        ("loss = -torch.log1p(-p).mean()", True),
        ("return -torch.log(p).mean()", False),
        ("return -torch.log(1 - p + 1e-7).mean()", False),
        ("log_p = log_p - torch.log(1 - action**2).sum(-1)", False),  # what tanh squashed
        ("log_p = log_p - (1 - action.pow(2)).log().sum(-1)", False),
    ],
)
def test_a_log_of_what_a_clamp_cannot_keep_from_zero(make, source: str, complement: bool) -> None:
    """Next to 1 float32 has no numbers closer than 6e-8: `p.clamp(1e-9, 1 - 1e-9)` leaves a 1 as it is."""
    steps = make.steps() | {"loss": [0.7] * 300 + [float("nan")] * 100}
    event = {"kind": "nonfinite-loss", "step": 300, "name": "", "text": "log of 0", "value": 1.0, "time": 1.0}
    line = {"site": 9, "role": "nonfinite", "file": "train.py", "line": 12, "function": "nll", "source": source}
    _, _, finding = make.check("loss-nonfinite", make.process(steps, events=[event], sites=[line]))
    assert ("float32 holds 1 - 1e-8 as 1" in finding.fix) == complement
    assert ("logsigmoid" in finding.fix_code) == complement
    assert finding.location.line == 12


@pytest.mark.parametrize(
    ("above", "source", "code"),
    [
        (
            "p = torch.sigmoid(z)",
            "pos, neg = torch.log(p), torch.log(1 - p)",
            "pos, neg = torch.nn.functional.logsigmoid(z), torch.nn.functional.logsigmoid(-z)",
        ),
        ("p = z.sigmoid().clamp(0, 1)", "loss = -(1 - p).log()", "loss = -torch.nn.functional.logsigmoid(-z)"),
        ("q = p", "loss = -torch.log1p(-torch.sigmoid(a - b))", "loss = -torch.nn.functional.logsigmoid(-(a - b))"),
        ("p = torch.softmax(z, -1)", "loss = -torch.log(1 - p)", ""),
        ("p = torch.sigmoid(z); p = p * mask", "loss = -torch.log(1 - p)", ""),
        ("p = torch.sigmoid(z)", "loss = -(torch.log(1 - p) + torch.log(q))", ""),  # q may be anything
    ],
)
def test_logarithms_of_a_sigmoid_are_computed_from_its_logits(make, above: str, source: str, code: str) -> None:
    steps = make.steps() | {"loss": [0.7] * 300 + [float("nan")] * 100}
    event = {"kind": "nonfinite-loss", "step": 300, "name": "", "text": "log of 0", "value": 1.0, "time": 1.0}
    text = "\n".join(f"    {one}" for one in ("y = y.float()", *above.split("; "), source))
    line = {"site": 9, "role": "nonfinite", "file": "train.py", "line": 12, "function": "nll", "source": source}
    line |= {"excerpt": text, "excerpt_line": 13 - len(text.split("\n"))}
    _, _, finding = make.check("loss-nonfinite", make.process(steps, events=[event], sites=[line]))
    assert (finding.fix_code == code) is bool(code)
    assert ("from the logits that the sigmoid" in finding.fix) is bool(code)
    assert "float32 holds 1 - 1e-8 as 1" in finding.fix


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


@pytest.mark.parametrize(
    ("operations", "lines", "example", "where"),
    [
        (
            "log at 0 in a branch that where() hides",
            ["rate = torch.where(r > 0, torch.log(r), zero)"],
            "rate = torch.where(r > 0, torch.log(r.clamp(min=1e-6)), zero)",
            True,
        ),
        ("sqrt at 0", ["d = s.sqrt()"], "d = s.add(1e-8).sqrt()", False),
        ("log at 0", ["a = torch.log(p)", "b = torch.log(q)"], "logarithm = torch.log(p.clamp(min=1e-6))", False),
        ("division by 0, sqrt at 0", ["d = s.sqrt()"], "d = s.add(1e-8).sqrt()", False),
        (
            "a power below 1 at 0",
            ["loss = -((1 - pt) ** gamma * logpt).mean()", "error = (a - b) ** 2", "rate = base ** epoch"],
            "loss = -((1 - pt).clamp(min=1e-6) ** gamma * logpt).mean()",
            False,
        ),
        ("a power below 1 at 0", ["a = p**g", "b = q.pow(0.5)"], "power = base.clamp(min=1e-6) ** exponent", False),
        ("acos at 1", [], "angle = torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6))", False),
        (
            "",
            [],
            "torch.autograd.set_detect_anomaly(True)  # before the training begins; slow: take it out again",
            False,
        ),
    ],
)
def test_the_example_is_of_the_operation_that_broke(
    make, operations: str, lines: list[str], example: str, where: bool
) -> None:
    steps = make.steps() | {"grads_nonfinite": [0] * 250 + [3] * 150, "loss": [1.0] * 251 + [float("nan")] * 149}
    events = [{"kind": "nonfinite-gradient", "name": "w", "step": 250, "time": 12.5, "text": operations}]
    sites = [
        {"site": number, "role": "singular", "file": "a.py", "line": 20 * number, "function": "loss", "source": line}
        | {"excerpt_line": 20 * number, "excerpt": line}
        for number, line in enumerate(lines, 1)
    ]
    finding = make.check("nonfinite-gradients", make.process(steps, events=events, sites=sites))[2]
    assert finding.fix_code == example
    assert ("inside of where()" in finding.fix) == where
    assert "hides" not in finding.summary, "which branch was taken is not known"


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


def test_nonfinite_gradients_before_the_loss(make) -> None:
    steps = make.steps() | {
        "grads_nonfinite": [0] * 250 + [3] * 150,
        "loss": [1.0] * 251 + [float("nan")] * 149,
    }
    events = [{"kind": "nonfinite-gradient", "name": "head.weight", "step": 250, "time": 12.5}]
    status, _, finding = make.check("nonfinite-gradients", make.process(steps, events=events))
    assert status == "fired"
    assert finding.first_step == 251
    assert "head.weight" in finding.title
    counted = {one.name: one.value for one in finding.evidence}
    assert counted["steps with such gradients"] == 150
    looked = [0] * 250 + [3] + [None, 3, None] * 49 + [3, None]
    sampled = steps | {"grads_nonfinite": looked, "grad_norm": [None] * COUNT}
    _, _, finding = make.check("nonfinite-gradients", make.process(sampled, events=events))
    counted = {one.name: one.value for one in finding.evidence}
    assert "steps with such gradients" not in counted, "nobody looked at all of them"
    assert counted["steps whose gradients were looked at since"] == 51
    assert counted["of those looked at, steps with such gradients"] == 51


def test_a_clip_that_spreads_a_nan_tells_nothing_of_the_first(make) -> None:
    """It multiplies each gradient by a number that is made of the norm of all: which were NaN before is not known."""
    steps = make.steps() | {
        "grads_nonfinite": [8] * COUNT,
        "grad_norm": [float("nan")] * COUNT,
        "clips": [1] * COUNT,
        "loss": [1.0] + [float("nan")] * (COUNT - 1),
    }
    events = [{"kind": "nonfinite-gradient", "name": "stem.weight", "step": 0, "time": 0.1, "text": "sqrt at 0"}]
    for source, known in ((2, False), (1, True)):
        process = make.process(steps | {"grad_norm_source": [source] * COUNT}, events=events)
        finding = make.check("nonfinite-gradients", process)[2]
        assert ("stem.weight" in finding.title) is known
        assert (finding.evidence[0].name == "tensors with NaN or Inf") is known
        assert "grown without bound" not in finding.summary, "there was no step before"
        assert "sqrt at 0" in finding.summary
        assert ("stem.weight" in make.check("loss-nonfinite", process)[2].summary) is known
    later = steps | {"loss": [1.0] * COUNT, "grads_nonfinite": [0] * 9 + [8] * (COUNT - 9)}
    later |= {"grad_norm": [1e6] * 9 + [float("nan")] * (COUNT - 9), "grad_norm_source": [2] * COUNT}
    finding = make.check("nonfinite-gradients", make.process(later, events=[events[0] | {"step": 9}]))[2]
    assert "grown without bound, or one operation" in finding.summary
    assert "Between the loss and the parameters: sqrt at 0" in finding.summary


@pytest.mark.parametrize(
    ("norm", "changed", "text", "told"),
    [
        (1.5, {}, "sqrt at 0", True),
        (1.5, {"clips": [1] * COUNT, "grad_norm_source": [2] * COUNT}, "sqrt at 0", True),  # as the clip saw them
        (1.5, {"clips": [1] * COUNT, "grad_norm_source": [1] * COUNT}, "sqrt at 0", False),  # of what it left
        (1e6, {}, "sqrt at 0", False),
        (None, {}, "sqrt at 0", False),  # nobody looked
        (1.5, {}, "", False),  # nothing in the graph can have made them
    ],
)
def test_gradients_that_had_not_grown_are_not_said_to_have(make, norm, changed: dict, text: str, told: bool) -> None:
    """Then the operation is left, and a clip, which makes every gradient NaN of one, is no remedy."""
    steps = make.steps() | {"loss": [1.0] * COUNT, "grads_nonfinite": [0] * 9 + [8] * (COUNT - 9)} | changed
    steps |= {"grad_norm": [norm] * 9 + [float("nan")] * (COUNT - 9)}
    event = {"kind": "nonfinite-gradient", "name": "stem.weight", "step": 9, "time": 0.1, "text": text}
    finding = make.check("nonfinite-gradients", make.process(steps, events=[event]))[2]
    assert ("Their norm was 1.5 one step before. Between the loss and the parameters" in finding.summary) is told
    assert ("grown without bound" in finding.summary) is not told
    clipped = "clips" in changed
    assert ("Clip gradients" in finding.fix) is (not told and not clipped)


def test_nonfinite_gradients_is_silent(make) -> None:
    handled = make.steps() | {
        "grads_nonfinite": [3] + [0] * 399,
        "skipped": [True] + [False] * 399,
        "scale": [1.0] * 400,
    }
    assert make.check("nonfinite-gradients", make.process(handled))[0] == "passed"
    lost = make.steps() | {"grads_nonfinite": [0] * 250 + [3] * 150, "loss": [1.0] * 250 + [float("nan")] * 150}
    assert make.check("nonfinite-gradients", make.process(lost))[0] == "passed"


def test_gradients_of_the_step_before_a_nan_loss_that_nobody_looked_at(make) -> None:
    """They may have been NaN already, as those of sqrt(0) are: nothing is said of which broke first."""
    loss = [1.0] * 250 + [float("nan")] * 150
    norm = [1.0 if index % 50 == 0 else None for index in range(250)] + [float("nan")] * 150
    count = [0 if value else None for value in norm[:250]] + [8] * 150
    lost = make.process(make.steps() | {"loss": loss, "grad_norm": norm, "grads_nonfinite": count})
    status, reason, _ = make.check("nonfinite-gradients", lost)
    assert (status, "whether the gradients one step earlier were was not looked at" in reason) == ("skipped", True)
    summary = make.check("loss-nonfinite", lost)[2].summary
    assert "gradients of the step before were not looked at" in summary
    assert "Neither" not in summary
    watched = make.process(make.steps() | {"loss": loss, "grads_nonfinite": [0] * 250 + [8] * 150})
    assert "Neither loss nor gradient norm leapt before" in make.check("loss-nonfinite", watched)[2].summary
    first = make.steps() | {"loss": loss, "grad_norm": [1.0] * 249 + [float("nan")] * 151}
    assert "not finite first, at step 250" in make.check("loss-nonfinite", make.process(first))[2].summary


def test_a_norm_that_leaves_float32(make) -> None:
    """Its squares are added up in float32: an infinite norm is no infinite gradient yet."""
    norm = [float(value) for value in np.geomspace(1.0, 1e18, COUNT - 1)] + [float("inf")]
    grown = make.steps() | {"grad_norm": norm, "grads_nonfinite": [0] * (COUNT - 1) + [4]}
    _, _, finding = make.check("nonfinite-gradients", make.process(grown))
    assert (finding.confidence, finding.first_step) == ("likely", COUNT)
    assert "after it had grown to 1e+18" in finding.summary
    at_once = grown | {"grad_norm": [1.0] * (COUNT - 1) + [float("nan")]}
    assert make.check("nonfinite-gradients", make.process(at_once))[2].confidence == "certain"
    at_once |= {"backwards": [20] * COUNT}
    assert make.check("nonfinite-gradients", make.process(at_once))[2].confidence == "likely", "one loss of 20 is known"


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


def test_what_is_said_of_gradients_that_are_not_finite(make) -> None:
    """No more of the loss than was measured; of one bad step that the weights survived; of a norm alone."""

    def told(**columns: Any) -> Any:
        return make.check("nonfinite-gradients", make.process(make.steps() | columns))[2]

    once = told(grads_nonfinite=[0] * 250 + [3] + [0] * 149)
    assert once.confidence == "certain"
    assert "although the loss still was" in once.summary
    assert "Later losses are finite all the same" in once.summary
    assert "into the weights" not in once.summary
    for_good = told(grads_nonfinite=[0] * 250 + [3] * 150, loss=[1.0] * 251 + [math.nan] * 149)
    assert "they went into the weights. Either" in for_good.summary
    unknown = told(grads_nonfinite=[0] * 250 + [3] * 150, loss=[1.0] * 250 + [None] * 150)
    assert unknown.confidence == "likely"
    assert "The loss of that step is not known" in unknown.summary
    assert "unless the script drops them" in unknown.summary
    norm = [1.0] * 250 + [math.inf] * 150
    summed = told(grad_norm=norm, grads_nonfinite=[0] * 400)
    assert summed.title == "The gradient norm became Inf at step 251"
    assert "each gradient was a number" in summed.summary
    assert "learning rate" in summed.fix
    sampled = [0 if index % 50 == 0 else None for index in range(250)] + [3] * 150
    seldom = told(grads_nonfinite=sampled, grad_norm=[None] * 400, clips=[1] * 400)
    assert seldom.title == "Gradients became NaN or Inf at step 251", "earlier ones would have broken its loss"
    blind = told(grads_nonfinite=sampled, grad_norm=[None] * 400, loss=[None] * 400)
    assert blind.title == "Gradients became NaN or Inf by step 251"
    assert "Clip gradients" not in seldom.fix, "the script does"


@pytest.mark.parametrize(
    ("recorded", "kept"),
    [
        ("sqrt at 0, reciprocal of 0", "sqrt at 0"),
        ("division by 0, a power below 1 at 0", "a power below 1 at 0"),
        ("rsqrt at 0, log at 0 in a branch that where() hides", "log at 0 in a branch that where() hides"),
        ("division by 0, log at 0", "division by 0, log at 0"),  # which may be multiplied by 0
        ("", ""),
    ],
)
def test_operations_whose_values_are_finite_come_before_others(recorded: str, kept: str) -> None:
    assert singular_gradients.beside_a_finite_loss(recorded) == kept


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ("sqrt at 0 in a branch that where() hides, sqrt at 0", "sqrt at 0 in a branch of where() and outside of it"),
        ("sqrt at 0, log at 0 in a branch that where() hides", "sqrt at 0, log at 0 in a branch of where()"),
        ("division by 0", "division by 0"),
    ],
)
def test_an_operation_in_a_branch_and_elsewhere_is_named_once(recorded: str, told: str) -> None:
    assert singular_gradients.told(recorded) == told
