"""reference-is-policy: a model compared with itself, and everything else that is called twice on one input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.engine import diagnose

RULE, LN_2 = "reference-is-policy", math.log(2)
OWN = {"model": 0, "reference": 1, "same": False, "shared": 0.0, "equal": 0.0, "adapters_off": False}


def process(make: Any, loss: float | list[float] | None = LN_2, calls: Any = (), **columns: Any) -> Any:
    rows = [{**OWN, "step": 10 * n, **columns} for n in range(12)]
    steps = make.steps()
    if loss is not None:
        steps |= {"loss": loss if isinstance(loss, list) else [loss * (1 + 1e-5 * (n % 3)) for n in range(400)]}
    return make.process(steps, more={"references": rows, "loss_calls": list(calls)})


@pytest.mark.parametrize("columns", [{"same": True}, {"shared": 1.0, "equal": 1.0}, {"equal": 1.0}])
def test_a_model_that_is_compared_with_itself(make: Any, columns: dict[str, Any]) -> None:
    status, reason, finding = make.check(RULE, process(make, **columns))
    assert status == "fired", reason
    assert (finding.severity, finding.confidence) == ("critical", "certain")
    assert make.check(RULE, process(make, loss=2.5, **columns))[2].confidence == "likely", "another preference loss"


@pytest.mark.parametrize(("loss", "expected"), [(0.499, "passed"), (LN_2, "fired")])
def test_the_loss_of_a_policy_that_acts_may_be_constant(make: Any, loss: float, expected: str) -> None:
    acted = {"kind": "policy-acted", "step": 10, "text": "{}"}
    rows = [{**OWN, "step": 10 * n, "same": True} for n in range(12)]
    more = {"references": rows, "loss_calls": []}
    run = make.process(make.steps() | {"loss": [loss] * 400}, events=[acted], more=more)
    assert make.check(RULE, run)[0] == expected


@pytest.mark.parametrize(
    ("source", "edited"),
    [
        (
            "ref.load_state_dict(policy.state_dict(), assign=True)",
            "ref.load_state_dict({name: tensor.clone() for name, tensor in policy.state_dict().items()}, assign=True)",
        ),
        ("ref.load_state_dict(states, assign=True)", None),
        ("ref.load_state_dict(policy.state_dict())", None),
    ],
)
def test_a_reference_that_is_given_the_tensors_themselves(make: Any, source: str, edited: str | None) -> None:
    place = {"file": "a.py", "function": "dpo", "excerpt_line": 7, "excerpt": f"    ref = LM()\n    {source}"}
    sites = [
        {"site": 1, "role": "reference", "line": 7, "source": "ref = LM()", **place},
        {"site": 2, "role": "load_state_dict", "line": 8, "source": source, **place},
    ]
    load = {"time": 0.1, "step": 0, "module": 0, "name": "LM", "site": 2, "given": 28, "expected": 28, "missing": 0}
    load |= {"unexpected": 0, "own": 0, "from_other": True}
    rows = [{**OWN, "step": 10 * n, "shared": 1.0, "equal": 1.0} for n in range(12)]
    more = {"references": rows, "loss_calls": [], "loads": [load]}
    facts = {"signals": {"state_loads": {"state": "on", "columns": ["loads.missing"]}}}
    alike = make.process(make.steps() | {"loss": [LN_2] * 400}, sites=sites, more=more, facts=facts)
    finding = make.check(RULE, alike)[2]
    assert finding.location.line == (8 if "assign" in source else 7)
    assert (finding.diff and [line.strip() for line in finding.diff.added]) == (edited and [edited])
    assert "ref = copy.deepcopy(" in finding.fix_code or "assign" in source
    aliased = make.check("snapshot-aliased", alike)
    assert ("another model's tensors" in str(aliased)) == ("assign" in source)


@pytest.mark.parametrize(
    ("source", "copied"),
    [
        ("self.reference = self.snapshot(policy)", "self.reference = copy.deepcopy(policy)"),
        ("ref = agent.policy", "ref = copy.deepcopy(agent.policy)"),
        ("ref = policy.eval()", "ref = copy.deepcopy(policy)"),
        ("ref = LM(config)", "ref = copy.deepcopy(model)"),
        ("ref = mixed(policy, critic)", "ref = copy.deepcopy(model)"),
        ("ref = agent.get_base_model()", "ref = copy.deepcopy(agent)"),
    ],
)
def test_the_copy_is_of_what_the_script_trains(make: Any, source: str, copied: str) -> None:
    place = {"file": "a.py", "function": "dpo", "excerpt_line": 1, "excerpt": "def dpo():"}
    made = "opt = AdamW([*policy.parameters(), *critic.parameters()])"
    sites = [
        {"site": 1, "role": "reference", "line": 2, "source": source, **place},
        {"site": 2, "role": "optimizer", "line": 3, "source": made, **place},
        {"site": 3, "role": "optimizer", "line": 9, "source": "opt = AdamW(model.parameters())", **place},
    ]
    rows = [{**OWN, "step": 10 * n, "same": True} for n in range(12)]
    steps = make.steps() | {"loss": [LN_2] * 400}
    shared = make.process(steps, sites=sites, more={"references": rows, "loss_calls": []})
    assert f"{copied}.eval().requires_grad_(False)" in make.check(RULE, shared)[2].fix_code


@pytest.mark.parametrize(
    ("kept", "also", "line"),
    [
        ("self.reference = reference", "", 2),
        ("self.policy, self.reference = policy, reference", "", 2),
        ("self.policy, self.ref = policy, reference", "", None),  # another name: it may be made there
        ("self.reference = reference", "ref = LM()", None),
    ],
)
def test_what_keeps_a_reference_makes_none(make: Any, kept: str, also: str, line: int | None) -> None:
    place = {"file": "a.py", "excerpt_line": 1, "excerpt": "def dpo():"}
    sites = [
        {"site": 1, "role": "reference", "line": 2, "source": "reference = load()", "function": "dpo", **place},
        {"site": 2, "role": "reference", "line": 90, "source": kept, "function": "__init__", **place},
        {"site": 3, "role": "reference" if also else "loader", "line": 50, "source": also, "function": "a", **place},
    ]
    rows = [{**OWN, "step": 10 * n, "same": True} for n in range(12)]
    run = make.process(make.steps() | {"loss": [LN_2] * 400}, sites=sites, more={"references": rows, "loss_calls": []})
    location = make.check(RULE, run)[2].location
    assert (location and location.line) == line


def test_what_asks_a_reference_makes_none(make: Any) -> None:
    """The policy and its shallow copy are called in one line of a helper."""
    place = {"file": "a.py", "excerpt_line": 2, "excerpt": "        self.reference = copy.copy(policy)"}
    asked = "reference = score(self.reference, chosen) - score(self.reference, rejected)"
    called = {"line": 50, "function": "score", "file": "a.py", "source": "logp = model(ids).log_softmax(-1)"}
    sites = [
        {"site": 1, "role": "reference", "line": 2, "source": place["excerpt"].strip(), "function": "a", **place},
        {"site": 2, "role": "reference", "line": 90, "source": asked, "function": "margins", "file": "a.py"},
        {"site": 3, "role": "compared", **called},
        {"site": 4, "role": "training-call", **called},
    ]
    rows = [{**OWN, "step": 10 * n, "shared": 1.0, "equal": 1.0, "site": 3} for n in range(12)]
    for known, line in ((sites, 2), (sites[2:], 50)):
        more = {"references": rows, "loss_calls": []}
        run = make.process(make.steps() | {"loss": [LN_2] * 400}, sites=known, more=more)
        finding = make.check(RULE, run)[2]
        assert finding.location.line == line
        assert (finding.diff is not None) == (line == 2)
    assert "line 50 calls both models: hand it reference where the reference is computed" in finding.fix_code


def test_preferences_after_a_training_of_another_kind(make: Any) -> None:
    learned = np.linspace(3, 1, 200).tolist()
    rows = [{**OWN, "step": step, "same": True} for step in range(201, 400, 20)]
    loss = learned + [LN_2] * 200
    one = make.process(make.steps() | {"loss": loss}, more={"references": rows, "loss_calls": []})
    finding = make.check(RULE, one)[2]
    assert (finding.first_step, finding.last_step, finding.confidence) == (201, 400, "certain")
    assert "from step 201 to the last" in finding.summary

    steps = make.steps() | {"loss": loss, "optimizer": [0] * 200 + [1] * 200, "step": [*range(1, 201)] * 2}
    links = [{"time": 0.1, "step": 1, "optimizer": n, "model": 0} for n in (0, 1)]
    optimizers = [{"optimizer": n, "name": name} for n, name in enumerate(("AdamW", "SGD"))]
    more = {"references": rows, "loss_calls": [], "links": links}
    (finding,) = diagnose(make.run(make.process(steps, optimizers=optimizers, more=more)), select=[RULE]).findings
    assert (finding.first_step, finding.last_step, finding.trainings) == (1, 200, ["training 2 of 2"])
    assert finding.title.endswith("(training 2 of 2)")


@pytest.mark.parametrize(
    ("source", "edited"),
    [
        ("ref = copy.copy(policy)", "ref = copy.deepcopy(policy).eval().requires_grad_(False)"),
        ("ref = copy.copy(self.policy).eval()", "ref = copy.deepcopy(self.policy).eval()"),
        ("ref = copy(policy)", None),  # whose deepcopy the script may not have imported
        ("ref = policy", None),
    ],
)
def test_a_copy_of_the_outermost_object_alone_is_made_a_whole_one(make: Any, source: str, edited: str | None) -> None:
    site = {"site": 1, "role": "reference", "file": "a.py", "line": 8, "function": "dpo", "source": source}
    sites = [site | {"excerpt": f"    policy = LM()\n    {source}", "excerpt_line": 7}]
    rows = [{**OWN, "step": 10 * n, "shared": 1.0, "equal": 1.0} for n in range(12)]
    shared = make.process(
        make.steps() | {"loss": [LN_2] * 400}, sites=sites, more={"references": rows, "loss_calls": []}
    )
    finding = make.check(RULE, shared)[2]
    assert finding.location.line == 8
    assert (finding.diff and [line.strip() for line in finding.diff.added]) == (edited and [edited])
    assert ("copy.copy() in line 8 makes a new object" in finding.summary) == (edited is not None)
    assert ("Copy all of the model" in finding.fix) == (edited is not None)


def test_few_measurements_say_nothing(make: Any) -> None:
    rows = [{**OWN, "step": step, "same": True} for step in (5, 50, 300)]
    steps = make.steps() | {"loss": [LN_2] * 400}
    status, reason, _ = make.check(RULE, make.process(steps, more={"references": rows, "loss_calls": []}))
    assert (status, "weights of its own" in reason) == ("skipped", False)


def test_dropout_tells_the_two_calls_apart(make: Any) -> None:
    noise = np.random.default_rng(0).normal(1, 0.02, 400)
    status, _, finding = make.check(RULE, process(make, loss=(LN_2 * noise).tolist(), same=True))
    assert (status, finding.confidence) == ("fired", "likely")
    assert "Dropout alone tells them apart" in finding.summary
    classifies = [{"step": n, "function": "binary_cross_entropy", "site": 1, "training": True} for n in range(6)]
    stuck = process(make, loss=(LN_2 * noise).tolist(), calls=classifies, same=True)
    assert make.check(RULE, stuck)[0] == "passed", "two classes, and an accuracy without autograd"
    learns = process(make, loss=(LN_2 * noise * np.linspace(1, 0.9, 400)).tolist(), same=True)
    assert make.check(RULE, learns)[0] == "passed"


def test_a_divergence_from_itself(make: Any) -> None:
    calls = [{"step": n, "function": "kl_div", "site": 1, "training": True, "value": 1e-9} for n in range(6)]
    status, _, finding = make.check(RULE, process(make, loss=None, calls=calls, same=True))
    assert (status, finding.confidence) == ("fired", "certain")
    calls = [row | {"value": 0.02} for row in calls]
    assert make.check(RULE, process(make, loss=None, calls=calls, same=True))[0] == "passed"


@pytest.mark.parametrize(
    ("columns", "loss"),
    [
        ({}, LN_2),  # a frozen copy, and a loss that does not learn
        ({"same": True, "adapters_off": True}, math.log(2)),
        ({"shared": 1.0, "equal": 1.0, "adapters_off": True}, LN_2),  # the network inside the adapters
        ({"same": True}, None),  # log-probabilities of sampling, pseudo labels: the loss changes
        ({"same": True}, [1e-9 * (-1) ** n for n in range(400)]),  # mu = 1: the loss reads 0
        ({"equal": 0.4}, math.log(2)),
    ],
)
def test_the_look_alike_is_not(make: Any, columns: dict[str, Any], loss: Any) -> None:
    assert make.check(RULE, process(make, loss=loss, **columns))[0] == "passed"


def test_what_cannot_be_told_is_skipped(make: Any) -> None:
    assert make.check(RULE, make.process())[0] == "skipped"
    assert make.check(RULE, make.process(more={"references": [{**OWN, "step": 0, "same": True}]}))[0] == "skipped"


def test_a_reference_that_is_written_over_in_every_step(make: Any) -> None:
    """A copy of its own, into which the trained weights are loaded again and again: the line that loads is to go."""
    loads = [{"step": step, "site": 9, "from_other": True} for step in range(20)]
    rows = [{**OWN, "step": 10 * n, "equal": 1.0} for n in range(12)]
    line = {"site": 9, "role": "load_state_dict", "file": "train.py", "line": 44, "function": "f", "source": "r.load()"}

    def found(loads: Any) -> Any:
        steps = make.steps() | {"loss": [LN_2] * 400}
        return make.check(RULE, make.process(steps, more={"references": rows, "loads": loads}, sites=[line]))[2]

    finding = found(loads)
    assert finding.title.startswith("The reference equals the trained model: ")
    assert finding.location.line == 44
    assert finding.fix_code == f"{finding.location.source}  # once, in front of the loop, and not in it"
    assert "belongs in front of the loop" in finding.fix
    once = found(loads[:1])
    assert "Keep a copy of the model from before training" in once.fix, (
        "loaded before training, and written over some other way"
    )
