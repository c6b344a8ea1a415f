"""Rules about what a policy's loss does beside weighing log-probabilities: its entropy, advantages and ratios."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.script.editing.remade import signs
from tracelyze.diagnosis import Location

ENTROPY, ADVANTAGE, RATIO = "entropy-collapse", "advantage-not-detached", "ratio-always-one"
SAMPLER, CUT_OFF = "sampler-mismatch", "completions-truncated"
FALLING, STEADY = np.geomspace(1.6, 0.2, 20), np.linspace(1.6, 1.2, 20)


def process(make: Any, losses: list[dict[str, Any]], rows: list[dict[str, Any]] | None = None) -> Any:
    facts = [{"undetached": False, "both_signs": True, **one} for one in losses]
    events = [{"kind": "policy-loss", "step": 5 * n, "text": json.dumps(one)} for n, one in enumerate(facts)]
    events += [{"kind": "policy-rows", "step": n, "text": json.dumps(one)} for n, one in enumerate(rows or [])]
    return make.process(more={"events": events})


def entropies(values: Any, punished: int, **more: bool) -> list[dict[str, Any]]:
    return [{"entropy": float(one), "most": 1.609, "punished": punished, **more} for one in values]


def test_entropy_that_the_loss_punishes(make: Any) -> None:
    status, _, finding = make.check(ENTROPY, process(make, entropies(FALLING, 1)))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "0.22" in finding.title
    assert "(median of the last 3 looks, at steps " in finding.summary, "the last looks are not the end of the run"


@pytest.mark.parametrize(
    ("losses", "status"),
    [
        (entropies(FALLING, -1), "skipped"),  # a bonus; the reward is not known
        (entropies(STEADY, 1), "passed"),  # a wrong sign without harm
        (entropies(FALLING, 1, both_signs=False), "passed"),  # a classifier that is to be sure, with weighed samples
        ([*entropies(FALLING[:10], 1), *entropies(FALLING[10:], -1)], "passed"),
        (entropies(FALLING[::4], 1), "skipped"),
        ([{}] * 20, "skipped"),
    ],
)
def test_entropy_that_it_does_not(make: Any, losses: list[dict[str, Any]], status: str) -> None:
    assert make.check(ENTROPY, process(make, losses))[0] == status


@pytest.mark.parametrize(
    ("made", "added"),
    [
        ("loss = policy + c.value * value + c.ent * entropy", "loss = policy + c.value * value - c.ent * entropy"),
        ("loss = (policy if p else 0.0) + beta * dist.entropy().mean() + 0.5 * value",
         "loss = (policy if p else 0.0) - beta * dist.entropy().mean() + 0.5 * value"),
        ("loss += 0.01 * torch.stack(entropies).mean()", "loss -= 0.01 * torch.stack(entropies).mean()"),
        ("loss = policy - bonus * entropy.mean()", None),  # a weight below zero
        ("loss = policy + bonus * -entropy", None),
        ("loss = policy + 0.5 * center + 0.1 * agent", None),
    ],
)  # fmt: skip
def test_the_line_that_adds_the_entropy(make: Any, made: str, added: str | None) -> None:
    text = f"        {made}\n        loss.backward()"
    site = {"site": 7, "role": "backward", "file": "t.py", "line": 12, "function": "main", "source": "loss.backward()"}
    site |= {"excerpt": text, "excerpt_line": 11}
    optimizers = [{"optimizer": 0, "name": "Adam", "backward_site": 7}]
    found = signs.entropy_subtracted(
        make.process(sites=[site], optimizers=optimizers), Location("t.py", 12, "main", "loss.backward()")
    )
    assert ([one.strip() for one in found[1].added] if found else None) == ([added] if added else None)
    assert found is None or found[0].line == 11


def test_advantages_that_are_not_detached(make: Any) -> None:
    status, _, finding = make.check(ADVANTAGE, process(make, [{"undetached": True}] * 20))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")


def test_advantages_that_are(make: Any) -> None:
    assert make.check(ADVANTAGE, process(make, [{}] * 20))[0] == "passed"
    assert make.check(ADVANTAGE, process(make, [{"undetached": True}, {}] * 10))[0] == "passed"
    assert make.check(ADVANTAGE, process(make, [{"undetached": True}] * 5))[0] == "skipped"
    assert make.check(ADVANTAGE, make.process())[0] == "skipped"


def trained(acted: str, reused: float, distinct: float = 1.0) -> list[dict[str, Any]]:
    """Steps on rows: `x` after the policy acted, `.` without."""
    return [{"acted": one == "x", "reused": 0.0 if one == "x" else reused, "distinct": distinct} for one in acted]


ONES, MOVING = [{"ratio_one": True}] * 20, [{"ratio_one": n % 4 == 0} for n in range(20)]


def test_ratios_that_are_always_one(make: Any) -> None:
    for losses in (ONES, [*ONES, {"ratio_one": False}, {}]):
        status, _, finding = make.check(RATIO, process(make, losses, trained("x...x...x...", 1.0)))
        assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
        assert "9 steps" in finding.summary


@pytest.mark.parametrize(
    ("losses", "rows", "status"),
    [
        (MOVING, trained("x...x...", 1.0), "passed"),
        (ONES, trained("xxxxxxxx", 1.0), "passed"),  # one update for each rollout
        (ONES, trained("x...x...", 0.1), "passed"),  # several, each on samples of its own
        (ONES, trained("x...x...", 1.0, distinct=0.3), "passed"),  # a small world: states come again
        ([*ONES[:10], *MOVING], trained("x...x...", 1.0), "passed"),  # a critic that is trained first
        (ONES, trained("........", 1.0), "skipped"),  # prompts of a data set, or another program acts
        (ONES, [], "skipped"),
        (ONES[:5], trained("x...x...", 1.0), "skipped"),
        ([{}] * 20, trained("x...x...", 1.0), "skipped"),
    ],
)
def test_ratios_that_are_one_for_good_reason(make: Any, losses: Any, rows: Any, status: str) -> None:
    assert make.check(RATIO, process(make, losses, rows))[0] == status
    assert make.check(RATIO, make.process())[0] == "skipped"


def acted(distances: list[float], **more: Any) -> dict[str, Any]:
    """Looks after a policy acted; by name, what is the same in all of them, or a list."""
    usual = {"model": 0, "own": True, "dropouts": [0, 0], "both_signs": 1.0, "reused": 0.0, "met": 0.5}
    rows = [usual | {"apart": one, "as_trained": False, "same": True, "state": 3.5} for one in distances]
    for name, values in more.items():
        for row, value in zip(rows, values if isinstance(values, list) else [values] * len(rows), strict=True):
            row[name] = value
    return {"events": [{"kind": "policy-acted", "step": 16 * n, "text": json.dumps(one)} for n, one in enumerate(rows)]}


FAR, STALE = [0.12, 0.09, 0.2, 0.11, 0.3, 0.08] * 2, {"own": False, "same": False}


def test_a_copy_that_takes_the_weights_without_their_adapters(make: Any) -> None:
    """A server that samples loads plain weights, into which nobody merged what the adapters have learned."""
    load = {"name": "GPT2LMHeadModel", "site": 2, "given": 29, "expected": 29, "missing": 0, "unexpected": 0}
    line = {"site": 2, "role": "load_state_dict", "file": "a.py", "line": 54, "function": "push_weights"}
    sites = [line | {"source": "self.model.load_state_dict(state)"}]
    more = acted(FAR, **STALE, adapters=True, detached=True, largest=20.0)
    models = [{"model": 0, "name": "GPT2LMHeadModel"}, {"model": 1, "name": "PeftModel"}]
    tables = {"loads": [load | {"step": 2 * at} for at in range(12)], "models": models}
    finding = make.check(SAMPLER, make.process(more=more | tables, sites=sites))[2]
    assert finding.title.startswith("The copy that acts never takes over the policy's adapters: ")
    assert (finding.location.line, "policy.merge_adapter()" in finding.fix_code) == (54, True)
    own = make.check(SAMPLER, make.process(more=more | {"loads": tables["loads"]}, sites=sites))[2]
    assert "peft" not in own.fix_code
    merged = acted(
        FAR, own=False, same=False, adapters=True, detached=True, largest=20.0, state=[float(n) for n in range(12)]
    )
    assert make.check(SAMPLER, make.process(more=merged | tables, sites=sites))[0] == "passed", "its weights do change"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "temperature"),
        ({"own": False}, "temperature"),  # a copy with the policy's weights
        ({"dropouts": [[0, 3]] * 12}, "Dropout"),
        (STALE, "never takes over"),
        ({"met": None, "reused": None}, "temperature"),
        ({"model": [0, 1] * 6}, "temperature"),  # two policies
        ({"detached": True, "largest": 4.0}, "temperature"),
    ],
)
def test_a_policy_that_is_far_from_the_one_that_acted(make: Any, more: dict[str, Any], words: str) -> None:
    status, _, finding = make.check(SAMPLER, make.process(more=acted(FAR, **more)))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert words in finding.title + finding.summary


@pytest.mark.parametrize(
    ("distances", "more", "status"),
    [
        ([1e-7] * 12, {}, "passed"),
        ([0.02] * 12, {}, "passed"),  # kernels of another precision
        ([0.0, 0.0, *FAR[2:]], {}, "passed"),  # some of the looks found a later step
        ([1e-4, 0.02, *[0.3] * 10], STALE, "fired"),  # close at first
        (FAR[:5], {}, "skipped"),
        (FAR, {"both_signs": 0.0}, "skipped"),  # no advantages: something else is weighed
        (FAR, {"reused": [0.0, *[0.4] * 11]}, "passed"),  # a replay
        (FAR, {"met": 0.0}, "passed"),  # a queue
        (FAR, {"as_trained": True, "met": 0.1}, "skipped"),  # values of what follows, beside each loss
        (FAR, STALE | {"state": [float(n // 4) for n in range(12)]}, "passed"),  # refreshed now and then
        ([float("nan")] * 12, {}, "skipped"),
        (FAR, {"detached": True, "largest": 1.2}, "passed"),  # actions at random now and then
        (FAR, {"detached": True, "largest": 9.0, "met": [0.0, 0.0, 0.1] * 4}, "passed"),  # a large replay
    ],
)
def test_a_policy_that_is_not(make: Any, distances: list[float], more: dict[str, Any], status: str) -> None:
    assert make.check(SAMPLER, make.process(more=acted(distances, **more)))[0] == status


def written(shares: list[float], line: bool = True, **more: Any) -> Any:
    """Losses of completions of which these shares are not masked at their end; whether the script looks for an end."""
    usual = {"undetached": False, "both_signs": True, "rows": 64.0, "length": 32.0, "last_same": 0.2}
    facts = [usual | {"full": one, "last": float(n % 7)} | more for n, one in enumerate(shares)]
    events = [{"kind": "policy-loss", "step": 5 * n, "text": json.dumps(one)} for n, one in enumerate(facts)]
    site = {"site": 70, "role": "ends", "file": "/home/me/grpo.py", "line": 31, "function": "rewards"}
    sites = [site | {"source": "ended = (ids == tokenizer.eos_token_id).cumsum(1)"}] if line else []
    return {"events": events, "sites": sites}


def test_completions_that_the_loss_masks_nowhere(make: Any) -> None:
    for shares in ([1.0] * 12, [0.98, 0.92, 1.0] * 5):
        status, _, finding = make.check(CUT_OFF, make.process(more=written(shares)))
        assert (status, finding.severity, finding.confidence) == ("fired", "info", "likely")
        assert finding.location.line == 31


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (written([0.5] * 12), "passed"),
        (written([1.0] * 6 + [0.4] * 8), "passed"),  # it learns to end
        (written([0.5] * 6 + [1.0] * 8), "passed"),  # it learns not to: the reward may ask for it
        (written([1.0] * 8), "skipped"),
        (written([1.0] * 12, line=False), "skipped"),  # a task of fixed length
        (written([1.0] * 12, last_same=1.0, last=2.0), "skipped"),  # all end at the last place
        (written([float("nan")] * 12), "skipped"),  # nothing is masked
    ],
)
def test_completions_that_it_masks(make: Any, more: Any, status: str) -> None:
    assert make.check(CUT_OFF, make.process(more=more))[0] == status


def test_completions_that_are_trained_on_one_by_one(make: Any) -> None:
    """Each batch is as long as its longest: that all are full says nothing below the greatest length."""
    more = written([1.0] * 16)
    for row, length in zip(more["events"], [9.0, 14.0, 32.0, 21.0] * 4, strict=True):
        row["text"] = json.dumps(json.loads(row["text"]) | {"length": length, "rows": 1.0})
    assert make.check(CUT_OFF, make.process(more=more))[0] == "passed"
