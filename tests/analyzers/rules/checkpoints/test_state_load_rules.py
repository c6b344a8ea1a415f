"""Weights that were not loaded, and weights that were not kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

HEARD = {"signals": {"state_loads": {"state": "on", "columns": ["loads.missing"]}}}
LOAD = {
    "time": 1.0,
    "step": 0,
    "module": 0,
    "name": "Net",
    "site": 3,
    "given": 40,
    "expected": 40,
    "missing": 0,
    "unexpected": 0,
    "own": 0,
}
LOST = LOAD | {"missing": 40, "unexpected": 40}
PREFIX = {"given_prefix": "module.", "expected_prefix": "", "renamed": 40}
KEPT = LOAD | {"step": 300, "own": 40, "taken_at": 200}


def judged(make: Any, rule: str, *rows: dict[str, Any], facts: dict[str, Any] = HEARD) -> Any:
    return make.check(rule, make.process(facts=facts, more={"loads": list(rows)}))


@pytest.mark.parametrize(
    ("rows", "confidence", "code"),
    [
        ([LOST | PREFIX], "certain", 'removeprefix("module.")'),
        ([LOST | {"given_prefix": "encoder.", "expected_prefix": "body.", "renamed": 40}], "certain", '"body." + name'),
        ([LOST | PREFIX | {"given": 36, "unexpected": 36, "renamed": 36}], "certain", "removeprefix"),  # without a head
        (
            [LOST | PREFIX | {"given_prefix": "", "expected_prefix": "model."}],
            "certain",
            '{"model." + name: tensor for',
        ),
        ([LOST], "likely", 'state["model"]'),
        ([LOST | {"given": 2, "unexpected": 2}], "likely", 'state["model"]'),  # {"model": ..., "epoch": ...}
        ([LOAD, LOST | {"step": 300, "module": 1}], "likely", 'state["model"]'),
        ([LOAD, LOST | {"step": 300}], "certain", None),
    ],
)
def test_weights_not_loaded(make: Any, rows: list[dict[str, Any]], confidence: str, code: str | None) -> None:
    status, _, finding = judged(make, "weights-not-loaded", *rows)
    if code is None:  # the same module found everything once
        assert status == "passed"
        return
    assert status == "fired"
    assert finding.severity == "critical"
    assert finding.confidence == confidence
    assert code in finding.fix_code
    assert finding.location.line == 60
    assert "'...'" not in finding.summary, "names with nothing before them"
    said = f"{finding.title} {finding.summary} {finding.fix_code}"
    assert "the file" not in said, "a script may leave out or rename names before it hands over the dictionary"


@pytest.mark.parametrize(("renamed", "words"), [(30, "30 of them fit the model"), (10, "explains most of it")])
def test_a_prefix_that_leaves_a_head_without_weights(make: Any, renamed: int, words: str) -> None:
    """An encoder is another model's backbone, which has a new head, and not the projector of the file."""
    row = LOST | {"given_prefix": "encoder.", "expected_prefix": "backbone.", "renamed": renamed}
    finding = judged(make, "weights-not-loaded", row)[2]
    assert finding.confidence == "likely"
    assert words in finding.summary
    assert ("No prefix explains" in finding.summary) != ('"backbone." + name' in finding.fix_code)


def test_a_prefix_that_only_some_of_the_file_has(make: Any) -> None:
    """An encoder takes its part out of the file of an autoencoder, whose decoder has other names."""
    part = PREFIX | {"given_prefix": "encoder.", "given": 60, "unexpected": 60}
    finding = judged(make, "weights-not-loaded", LOST | part)[2]
    assert "40 of them are names of the model's, but they begin with 'encoder.'" in finding.summary
    assert 'if name.startswith("encoder.")' in finding.fix_code
    assert "assert" not in finding.fix_code  # other names of the file have no place in the model, and need none
    assert "All names begin with 'module.'" in judged(make, "weights-not-loaded", LOST | PREFIX)[2].summary


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "self.actor.load_state_dict(self.learner.state_dict(), strict=False)",
            "state = self.learner.state_dict()\nstate = {name.removeprefix(| and self.actor.load_state_dict(state, ",
        ),
        ('net.load_state_dict(ckpt["weights"], strict=False)', 'state = ckpt["weights"]\n| and net.load_state_dict('),
        ("net.load_state_dict(weights, False)", "weights = {name.removeprefix(| and net.load_state_dict(weights, "),
        ("load_into(net, weights)", "state = {name.removeprefix(| and model.load_state_dict(state, "),
    ],
)
def test_a_load_in_the_words_of_its_line(make: Any, line: str, code: str) -> None:
    """A loop that copies the learner's weights into the actor again and again: it began with the first time."""
    sites = [{"site": 3, "role": "load_state_dict", "file": "train.py", "line": 9, "source": line}]
    loads = [LOST | PREFIX | {"step": step, "time": step / 4} for step in (4, 8, 512)]
    finding = make.check("weights-not-loaded", make.process(facts=HEARD, more={"loads": loads, "sites": sites}))[2]
    assert (finding.first_step, finding.first_second) == (4, 1.0)
    begins, _, loaded = code.partition("| and ")
    assert finding.fix_code.startswith(begins)
    assert f"\nresult = {loaded}" in finding.fix_code


@pytest.mark.parametrize(
    "row",
    [
        LOAD,
        LOAD | {"missing": 2, "unexpected": 2},  # a new head
        LOAD | {"given": 4, "missing": 36},  # one part of a sharded file
        LOAD | {"given": 400, "unexpected": 360},  # a body out of a larger model
        LOST | {"given": 1, "unexpected": 1},
    ],
)
def test_loads_that_found_something(make: Any, row: dict[str, Any]) -> None:
    assert judged(make, "weights-not-loaded", row)[0] == "passed"


KEPT_OWN = {"module": 0, "name": "Net", "site": 3, "kept": 40, "expected": 40, "file": "net.pt", "tensors": 40,
            "inner": [], "layers": 0}  # fmt: skip
SIZES = KEPT_OWN | {"kept": 6, "inner": ["layers.0.out.weight", "layers.1.out.weight"], "layers": 2}


def merged(make: Any, *rows: dict[str, Any], **more: Any) -> Any:
    event = {"kind": "kept-weights", "time": 1.0, "step": 0, "text": json.dumps(KEPT_OWN | more)}
    loads = [LOAD | {"own": (KEPT_OWN | more)["kept"]}, *rows]
    return make.check("weights-not-loaded", make.process(facts=HEARD, more={"loads": loads, "events": [event]}))


def test_a_state_that_is_merged_with_nothing_of_a_file(make: Any) -> None:
    status, _, finding = merged(make, given_prefix="module.", expected_prefix="", renamed=40)
    assert (status, finding.severity, finding.confidence, finding.location.line) == ("fired", "critical", "certain", 60)
    assert 'removeprefix("module.")' in finding.fix_code
    assert merged(make)[2].confidence == "likely", "no change of prefix explains it"
    assert merged(make, given_prefix="net.", expected_prefix="body.", renamed=40)[2].confidence == "certain"
    status, _, finding = merged(make, **SIZES)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "layers.0.out.weight" in finding.summary


def test_states_that_are_merged_on_purpose(make: Any) -> None:
    assert merged(make, kept=2)[0] == "passed", "a new head"
    assert merged(make, kept=20)[0] == "passed", "a body out of another model"
    assert merged(make, **SIZES | {"layers": 1})[0] == "passed", "a first layer for other inputs"
    assert merged(make, tensors=1)[0] == "passed"
    assert merged(make, LOAD | {"time": 2.0})[0] == "passed", "a later load makes up for it"


def test_a_later_load_makes_up_for_it(make: Any) -> None:
    assert judged(make, "weights-not-loaded", LOST | PREFIX, LOAD)[0] == "passed"
    assert judged(make, "weights-not-loaded", LOST | PREFIX, LOAD | {"module": 1})[0] == "fired"
    best = LOAD | {"step": LOST["step"] + 100}
    assert judged(make, "weights-not-loaded", LOST | PREFIX, best)[0] == "fired", "the best of what was trained then"


def test_snapshot_aliased(make: Any) -> None:
    status, _, finding = judged(make, "snapshot-aliased", LOAD, KEPT)
    assert status == "fired"
    assert (finding.first_step, finding.last_step) == (200, 300)
    assert "100 steps" in finding.summary


@pytest.mark.parametrize(
    "row",
    [
        KEPT | {"own": 0},  # a copy
        KEPT | {"own": 39},  # a dictionary of which one tensor was replaced
        KEPT | {"taken_at": 300},  # changed in place, and loaded at once
        KEPT | {"taken_at": None},  # never handed out
        KEPT | {"missing": 1},
        LOAD | {"own": 40, "taken_at": 0},  # before training
    ],
)
def test_loads_of_something_else(make: Any, row: dict[str, Any]) -> None:
    assert judged(make, "snapshot-aliased", row)[0] == "passed"


SHARED = LOAD | {"own": 40, "taken_at": 100, "step": 100, "from_other": True, "module": 1}


def test_a_target_network_that_is_the_model(make: Any) -> None:
    again = SHARED | {"taken_at": 200, "step": 200}
    status, _, finding = judged(make, "snapshot-aliased", SHARED | {"taken_at": 0, "step": 0}, SHARED, again)
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert "deepcopy" in finding.fix_code
    assert (finding.first_step, finding.last_step) == (100, 200)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("target.load_state_dict(target.state_dict())", "fired"),
        ("self.nets['q2'].load_state_dict( self.nets['q2'].state_dict(), strict=True)", "fired"),
        ("target.load_state_dict(online.state_dict())", "passed"),  # two names of one module
        ("average.load_state_dict(state)", "passed"),  # averaged in place, and put back
        ("self.target.load_state_dict(target.state_dict())", "passed"),
    ],
)
def test_a_target_network_that_is_given_its_own_weights(make: Any, line: str, status: str) -> None:
    rows = [SHARED | {"taken_at": step, "step": step, "from_other": False} for step in (100, 200, 300)]
    sites = [{"site": 3, "role": "load_state_dict", "file": "train.py", "line": 9, "source": line}]
    process = make.process(facts=HEARD, more={"loads": rows}, sites=sites)
    seen, _, finding = make.check("snapshot-aliased", process)
    assert seen == status
    if finding:
        assert (finding.severity, finding.confidence, finding.location.line) == ("warning", "certain", 9)
        assert "its own weights: 3 loads" in finding.title
        assert finding.fix_code == f"{line[: line.index('.load')]}.load_state_dict(model.state_dict())"


@pytest.mark.parametrize(
    "change",
    [
        {"from_other": False},  # averaged in place, and put back
        {"from_other": None},
        {"own": 39},
        {"own": 0},  # a target with tensors of its own
        {"step": 0, "taken_at": 0},  # both are made from one before training
    ],
)
def test_loads_into_models_of_their_own(make: Any, change: dict[str, Any]) -> None:
    rows = [SHARED | {"taken_at": step, "step": step} | change for step in (100, 200, 300)]
    assert judged(make, "snapshot-aliased", *rows)[0] == "passed"
    assert judged(make, "snapshot-aliased", SHARED)[0] == "passed", "a single load"


@pytest.mark.parametrize("rule", ["weights-not-loaded", "snapshot-aliased"])
def test_without_loads_there_is_nothing_to_say(make: Any, rule: str) -> None:
    assert judged(make, rule)[0] == "skipped", "it does not apply"
    assert judged(make, rule, facts={})[0] == "skipped"


USED = {"use": "save", "site": 3, "taken_at": 200, "taken_site": 4, "takes": 5, "again": False, "looked_at": 8,
        "changed": 8}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "fired"),
        ({"use": "load"}, "fired"),
        ({"again": True}, "fired"),
        ({"takes": 1}, "fired"),
        ({"takes": 1, "again": True}, "passed"),  # the live weights, taken once and saved ever after
        ({"taken_at": 300}, "passed"),
        ({"taken_at": 0}, "passed"),
    ],
)
def test_kept_weights_that_are_saved_later(make: Any, change: dict[str, Any], status: str) -> None:
    event = {"kind": "kept-state", "time": 1.0, "step": 300, "name": "best.pt", "text": json.dumps(USED | change)}
    seen, _, finding = make.check("snapshot-aliased", make.process(facts=HEARD, more={"events": [event]}))
    assert seen == status
    if finding:
        assert (finding.severity, finding.confidence) == ("info" if "takes" in change else "critical", "likely")
        assert (finding.first_step, finding.last_step) == (200, 300)


IN_LOOP = {"site": 4, "role": "best", "file": "train.py", "line": 9, "source": "best_model = model", "function": "main"}
AFTER = IN_LOOP | {"site": 5, "role": "best-used", "line": 20, "source": "print(evaluate(best_model))"}
VALIDATED = [{"after_step": step, "forwards": 1} for step in (100, 200)]


def kept_by_name(make: Any, *sites: dict[str, Any], optimizers: int = 1, evals: Any = VALIDATED) -> Any:
    rows = [{"optimizer": number, "name": "Adam"} for number in range(optimizers)]
    process = make.process(facts=HEARD, more={"evals": evals}, sites=list(sites), optimizers=rows)
    return make.check("snapshot-aliased", process)


@pytest.mark.parametrize("source", ["best_model = model", "best_acc, self.best_model = acc, self.model"])
def test_a_best_model_that_is_the_model(make: Any, source: str) -> None:
    status, _, finding = kept_by_name(make, IN_LOOP | {"source": source}, AFTER)
    assert (status, finding.severity, finding.confidence, finding.location.line) == ("fired", "warning", "likely", 9)


@pytest.mark.parametrize(
    ("source", "edited"),
    [
        ("best_weights = [p.data for p in model.parameters()]", "p.data.clone()"),
        ("self.best = {name: p for name, p in self.net.named_parameters()}", "p.detach().clone()"),
        ("best = [p.data.clone() for p in model.parameters()]", None),
        ("best = [p.grad for p in model.parameters()]", None),
        ("best = [score(p.data) for p in model.parameters()]", None),
        ("best = [p.data for p in candidates]", None),
    ],
)
def test_best_weights_that_are_the_model_s_own_tensors(make: Any, source: str, edited: str | None) -> None:
    """They are put back one by one, by no load_state_dict."""
    kept = IN_LOOP | {"source": source, "excerpt": f"            {source}", "excerpt_line": 9}
    used = AFTER | {"source": f"for p, b in zip(model.parameters(), {source.partition(' =')[0]}):"}
    status, _, finding = kept_by_name(make, kept, used)
    assert status == ("fired" if edited else "passed")
    if finding:
        assert "holds the model's own tensors" in finding.title
        assert edited in finding.diff.added[0]
        assert finding.location.line == 9


def test_best_models_that_are_others(make: Any) -> None:
    copied = IN_LOOP | {"site": 6, "line": 11, "source": "best_model = copy.deepcopy(model)"}
    asked = AFTER | {"source": "if best_model is None:"}
    assert kept_by_name(make, copied, AFTER)[0] == "passed"
    assert kept_by_name(make, IN_LOOP, copied, AFTER)[0] == "passed", "of two ways, one copies"
    assert kept_by_name(make, IN_LOOP)[0] == "passed", "nobody uses it"
    loaded = AFTER | {"site": 7, "source": "best_model.load_state_dict(torch.load(path))"}
    assert kept_by_name(make, IN_LOOP, AFTER, loaded)[0] == "passed"
    assert kept_by_name(make, IN_LOOP, asked)[0] == "passed"
    assert kept_by_name(make, IN_LOOP, AFTER, optimizers=2)[0] == "passed", "a search"
    assert kept_by_name(make, IN_LOOP, AFTER, evals=VALIDATED[:0])[0] == "passed"
    assert kept_by_name(make, IN_LOOP | {"source": "best_model = average"}, AFTER)[0] == "passed"
    assert kept_by_name(make, IN_LOOP | {"source": "best_loss = loss"}, AFTER)[0] == "passed"


@pytest.mark.parametrize(("undone", "status"), [(10, "fired"), (6, "fired"), (3, "passed")])
def test_a_load_that_the_next_step_undoes(make, undone: int, status: str) -> None:
    row = {"name": "Net", "site": 3, "step": 250, "steps": 1, "changed": 10, "undone": undone}
    event = {"kind": "undone-load", "name": "Net", "text": json.dumps(row), "time": 5.0, "step": 251}
    site = {"site": 3, "role": "load_state_dict", "file": "a.py", "line": 12, "function": "load"}
    sites = [site | {"source": "model.load_state_dict(state)"}]
    loads = [{"time": 4.0, "step": 250, "module": 0, "name": "Net", "site": 3, "given": 20, "expected": 20,
              "missing": 0, "unexpected": 0, "own": 0}]  # fmt: skip
    process = make.process(facts=HEARD, events=[event], sites=sites, more={"loads": loads})
    found = make.check("weights-not-loaded", process)
    assert found[0] == status
    if status == "fired":
        assert (found[2].location.line, found[2].first_step, found[2].confidence) == (12, 251, "certain")
        assert ("all of them" in found[2].summary) == (undone == 10)
