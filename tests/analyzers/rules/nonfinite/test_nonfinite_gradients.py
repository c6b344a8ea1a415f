"""Gradients and losses that are not finite, what made them so, and the healthy look-alikes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.script.loss import singular_gradients

COUNT = 400


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
