"""A statement that computes what a diagnosis misses, and drops it, is named where the script has no other one."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers import rules
from tracelyze.analyzers.script.candidates import dropped
from tracelyze.diagnosis import Finding, Location
from tracelyze.testing import SITES

SEEN = Location("train.py", 75, "loss", "return F.cross_entropy(logits, labels)")
MASKED = "labels.masked_fill(~attn, -100)"
DROPPED = {"site": 30, "role": "dropped", "file": "train.py", "line": 47, "function": "collate"}


def finding(rule: str) -> Finding:
    return Finding(rule, "warning", "certain", "title", "summary", "Do this.", "do(this)", location=SEEN)


def judged(make: Any, rule: str, *sources: str, **more: Any) -> Finding:
    rows = [
        {**DROPPED, "site": 30 + number, "line": 47 + 10 * number, "source": source, **more}
        | {"excerpt": f"    {source}\n    return labels", "excerpt_line": 47 + 10 * number}
        for number, source in enumerate(sources)
    ]
    return dropped.at_its_line(finding(rule), make.process(sites=[*SITES, *rows]))


def test_the_line_that_masks_labels_in_vain(make: Any) -> None:
    found = judged(make, "padding-in-loss", MASKED)
    assert (found.location and found.location.line, found.seen_at) == (47, SEEN)
    assert found.fix == "Line 47 changes nothing: masked_fill() returns its result, which is dropped there. Assign it."
    assert found.diff is not None
    assert found.diff.added == [f"    labels = {MASKED}"]


@pytest.mark.parametrize(
    ("rule", "sources"),
    [
        ("padding-in-loss", []),
        ("padding-in-loss", [MASKED, "targets.masked_fill(pad, -100)"]),
        ("padding-in-loss", ["scores.masked_fill(~attn, float('-inf'))"]),
        ("prompt-in-loss", [MASKED]),  # it masks padding
        ("target-in-input", [MASKED]),
        ("loss-broadcast", [MASKED]),
        ("exploding-gradients", ["x.clamp(0, 1)"]),
        ("exploding-gradients", ["a.data.mul(0.9).add(b, alpha=0.1)"]),
        ("weights-not-loaded", [MASKED]),
        ("dead-relu", [MASKED]),
    ],
)
def test_none_where_it_does_something_else_or_is_not_alone(make: Any, rule: str, sources: list[str]) -> None:
    assert judged(make, rule, *sources) == finding(rule)


def test_not_where_the_script_evaluates(make: Any) -> None:
    measured = {"site": 50, "role": "evaluation", "file": "train.py", "line": 40, "function": "collate"}
    row = {**DROPPED, "source": MASKED, "excerpt": MASKED, "excerpt_line": 47}
    process = make.process(sites=[*SITES, row, measured])
    assert dropped.at_its_line(finding("padding-in-loss"), process) == finding("padding-in-loss")


@pytest.mark.parametrize(
    ("rule", "source", "code"),
    [
        ("padding-in-loss", "torch.where(pad, -100, labels)", "labels = torch.where(pad, -100, labels)"),
        ("padding-in-loss", "batch['y'].masked_fill(pad, -100)", "batch['y'] = batch['y'].masked_fill(pad, -100)"),
        ("target-in-input", "scores.masked_fill(mask, -1e9)", "scores = scores.masked_fill(mask, -1e9)"),
        ("loss-broadcast", "pred.squeeze(-1)", "pred = pred.squeeze(-1)"),
        ("no-shuffle", "rng.permutation(order)", "order = rng.permutation(order)"),
        ("nonfinite-input", "frame.fillna(0.0)", "frame = frame.fillna(0.0)"),
        ("loss-nonfinite", "torch.clamp(p, min=1e-6)", "p = torch.clamp(p, min=1e-6)"),
        ("input-normalization", "x.sub(mean).div(std)", "x = x.sub(mean).div(std)"),
        ("padding-in-loss", "labels.view(-1).masked_fill(pad, -100)", "do(this)"),  # of another shape
        ("exploding-gradients", "p.grad.clamp(-1, 1)", "p.grad.clamp_(-1, 1)"),
        ("exploding-gradients", "w.data.clamp(-c, c)", "w.data.clamp_(-c, c)"),
        ("exploding-gradients", "torch.clamp(p.data, -c, max=c)", "p.data.clamp_(-c, max=c)"),
        ("ema-not-updated", "a.data.mul(0.9).add(b, alpha=0.1)", "a.data.mul_(0.9).add_(b, alpha=0.1)"),
        ("memory-leak", "hidden.detach()", "hidden = hidden.detach()"),
    ],
)
def test_the_result_is_assigned_or_written_in_place(make: Any, rule: str, source: str, code: str) -> None:
    found = judged(make, rule, source)
    assert found.location is not None
    assert (found.location.line, found.fix_code) == (47, code)


def test_a_loops_variable_is_changed_in_place(make: Any) -> None:
    row = {**DROPPED, "source": MASKED, "excerpt": f"for labels, n in rows:\n    {MASKED}", "excerpt_line": 46}
    found = dropped.at_its_line(finding("padding-in-loss"), make.process(sites=[*SITES, row]))
    assert found.fix_code == "labels.masked_fill_(~attn, -100)"
    assert found.fix.endswith("Change the tensor in place.")


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("model.state_dict()[name] = tensor", "model.state_dict()[name].copy_(tensor)"),
        ("model.state_dict().update(kept)", "model.load_state_dict({**model.state_dict(), **kept})"),
    ],
)
def test_what_is_written_into_a_new_state(make: Any, source: str, code: str) -> None:
    found = judged(make, "weights-not-loaded", source, role="dropped-state")
    assert found.location is not None
    assert (found.location.line, found.fix_code) == (47, code)
    assert "reaches no weights" in found.fix


def test_the_rules_are_there() -> None:
    assert {rule.id for rule in rules.RULES} >= dropped._MISSING.keys()
