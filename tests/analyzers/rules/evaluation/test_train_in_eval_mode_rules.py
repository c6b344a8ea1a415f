"""train-in-eval-mode: what it fires on and says, and parts that rest on purpose."""

from __future__ import annotations

import json

import pytest

COUNT = 400


def test_train_in_eval_mode_after_a_validation(make) -> None:
    steps = make.steps() | {
        "model_in_train": [True] * 100 + [False] * 300,
        "modules_in_train": [3] * 100 + [0] * 300,
    }
    _, _, finding = make.check("train-in-eval-mode", make.process(steps))
    assert (finding.severity, finding.confidence, finding.first_step) == ("critical", "certain", 101)
    for kinds, drops, norms in (
        ("Dropout x7", True, False),
        ("BatchNorm1d x3, Dropout x3", True, True),
        ("BatchNorm2d x20", False, True),
        ("MultiheadAttention x2", False, False),
    ):
        models = [{"model": 0, "name": "Net", "sensitive": kinds}]
        said = make.check("train-in-eval-mode", make.process(steps, models=models))[2].summary
        assert ("Dropout is off" in said, "BatchNorm uses" in said) == (drops, norms), "only what is there"


@pytest.mark.parametrize(("later", "status"), [([1] * 300, "fired"), ([3] * 300, "passed")])
def test_a_pretrained_part_that_stays_in_eval_mode(make, later: list[int], status: str) -> None:
    """`later`: how many of three modules are in train mode after the first epoch."""
    steps = make.steps() | {"modules_in_train": [1] * 100 + later, "modules_sensitive": [3] * 400}
    text = json.dumps({"site": 2, "optimizer": 0, "modules": 2})
    event = {"kind": "pretrained-mode", "name": "BertModel", "step": 1, "time": 1.0, "text": text}
    found, _, finding = make.check("train-in-eval-mode", make.process(steps, events=[event]))
    assert found == status
    if finding is not None:
        assert (finding.severity, finding.first_step, finding.last_step) == ("warning", 1, 400)
        assert "2 modules of it that drop values" in finding.summary


def test_a_pretrained_model_that_is_all_there_is_stays_in_eval_mode(make) -> None:
    """No module is in train mode: the line that loads it is known all the same; not of a model that was switched."""
    loads = {"site": 2, "role": "pretrained", "file": "t.py", "line": 7, "function": "__init__"}
    text = "self.model = AutoModel.from_pretrained(path)"
    sites = [loads | {"source": text, "excerpt": f"        {text}", "excerpt_line": 7}]
    event = {"kind": "pretrained-mode", "name": "BertModel", "step": 1, "time": 1.0}
    event |= {"text": json.dumps({"site": 2, "optimizer": 0, "modules": 3})}
    steps = make.steps() | {"modules_in_train": [0] * 400, "modules_sensitive": [3] * 400}
    steps |= {"model_in_train": [False] * 400}
    finding = make.check("train-in-eval-mode", make.process(steps, events=[event], sites=sites))[2]
    assert (finding.confidence, finding.location.line) == ("likely", 7)
    assert finding.diff.added[-1].strip() == "self.model.train()"
    switched = steps | {"modules_in_train": [3] * 100 + [0] * 300, "model_in_train": [True] * 100 + [False] * 300}
    assert make.check("train-in-eval-mode", make.process(switched, sites=sites))[2].confidence == "certain"


@pytest.mark.parametrize(
    ("kinds", "dropout", "norm"),
    [
        ("Dropout x7", True, ""),
        ("BatchNorm1d x3, Dropout x3", True, "BatchNorm"),
        ("BatchNorm2d x20", False, "BatchNorm"),
        ("GumbelGate x2", False, ""),
    ],
)
def test_train_in_eval_mode_names_the_modules_that_are_there(make, kinds: str, dropout: bool, norm: str) -> None:
    off = {"model_in_train": [True] * 100 + [False] * 300, "modules_in_train": [3] * 100 + [0] * 300}
    models = [{"model": 0, "name": "Net", "sensitive": kinds}]
    summary = make.check("train-in-eval-mode", make.process(make.steps() | off, models=models))[2].summary
    assert ("Dropout is off" in summary) == dropout
    assert ("statistics" in summary) == bool(norm)
    assert norm in summary


@pytest.mark.parametrize(
    ("evaluated", "status"),
    [
        ([100, 200, 250, 300, 350], "fired"),  # an evaluation that does not always switch back
        ([150], "passed"),  # the script goes to eval mode for reasons of its own
    ],
)
def test_train_in_eval_mode_after_some_validations(make, evaluated, status) -> None:
    mode = [not (100 <= index < 150 or 250 <= index < 300) for index in range(COUNT)]
    steps = make.steps() | {"model_in_train": mode, "modules_in_train": [3 * value for value in mode]}
    evals = make.evals(len(evaluated)) | {"after_step": evaluated}
    assert make.check("train-in-eval-mode", make.process(steps, evals=evals))[0] == status


def test_train_in_eval_mode_says_what_is_known_of_how_it_came(make) -> None:
    """A part of the steps is no "since then"; who switched it is said where a validation, or one line, is known."""
    mode = [not (100 <= index < 150 or 250 <= index < 300) for index in range(COUNT)]
    steps = make.steps() | {"model_in_train": mode, "modules_in_train": [3 * value for value in mode]}
    evals = make.evals(5) | {"after_step": [100, 200, 250, 300, 350], "time_start": [5.0, 10.0, 12.5, 15.0, 17.5]}
    partly = make.check("train-in-eval-mode", make.process(steps, evals=evals))[2]
    assert partly.title == "33% of the steps since step 101 trained in eval mode"
    assert "A validation switched it to eval mode, and it was only sometimes switched back" in partly.summary
    off = {"model_in_train": [True] * 150 + [False] * 250, "modules_in_train": [3] * 150 + [0] * 250}
    by_itself = make.check("train-in-eval-mode", make.process(make.steps() | off))[2]
    assert "It was switched to eval mode, and it was never switched back" in by_itself.summary
    evaluates = {"site": 20, "role": "eval-mode", "file": "t.py", "line": 7, "function": "fit"}
    models = [{"model": 0, "name": "Net", "called_as": "net", "sensitive": "Dropout x2"},
              {"model": 1, "name": "Net", "called_as": "teacher", "sensitive": "BatchNorm1d x2"}]  # fmt: skip
    links = [{"optimizer": 0, "model": 0, "time": 0.0, "step": 0}]
    for name, told in (("net", "Line 7 switched it"), ("teacher", "It was switched")):
        sites = [evaluates | {"source": f"{name}.eval()"}]
        process = make.process(make.steps() | off, sites=sites, models=models, more={"links": links})
        said = make.check("train-in-eval-mode", process)[2].summary
        assert told in said
        assert "BatchNorm" not in said, "which the teacher has"
    start = make.steps() | {"model_in_train": [False] * COUNT, "modules_in_train": [0] * COUNT}
    never = make.check("train-in-eval-mode", make.process(start))[2]
    assert (never.title, "validation" in never.fix) == ("The model trains in eval mode from the first step", False)


@pytest.mark.parametrize(
    ("fit", "evaluates", "model"),
    [
        ("trainer.fit(net, datamodule=data)", "describe", "net"),
        ("trainer.fit(datamodule=data, model=self.net)", "describe", "self.net"),
        ("trainer.fit(make(), data)", "describe", None),
        ("trainer.fit(net, data)", "on_train_start", None),  # within fit(), which a call before it does not reach
        ("fabric_loop(net, data)", "describe", None),
    ],
)
def test_a_mode_that_fit_finds_is_switched_before_it(make, fit: str, evaluates: str, model: str | None) -> None:
    """Lightning calls no train(), and a validation puts back what it found: the step is not the place."""
    lines = ["def main():", "    trainer = Trainer(max_epochs=2)", f"    {fit}"]
    calls = {"file": "t.py", "function": "main", "line": 90, "source": fit, "excerpt": "\n".join(lines)}
    sites = [
        {"site": 20 + at, "role": role, "excerpt_line": 88, **calls} for at, role in enumerate(("step", "backward"))
    ]
    text = "loss = F.cross_entropy(self(x), y)"
    within = {"file": "t.py", "function": "training_step", "line": 40, "source": text}
    within |= {"excerpt": f"        x, y = batch\n        {text}", "excerpt_line": 39}
    sites += [{"site": 30 + at, "role": role, **within} for at, role in enumerate(("forward", "training-call"))]
    sites += [
        {"site": 40, "role": "eval-mode", "file": "t.py", "line": 70, "function": evaluates, "source": "net.eval()"}
    ]
    off = {"model_in_train": [False] * 400, "modules_in_train": [0] * 400}
    finding = make.check("train-in-eval-mode", make.process(make.steps() | off, sites=sites))[2]
    assert ("before fit()" in finding.fix) is (model is not None)
    assert finding.location.line == (90 if model else 40)
    if model:
        assert finding.diff.added == [f"    {model}.train()"]
        assert (finding.diff.line, finding.diff.removed) == (90, [])


DISTILLED = """def distill(teacher, student, train, valid):
    opt = torch.optim.Adam(student.parameters())
    student.train()  # with dropout
    for epoch in range(9):
        for x, y in train:
            target = teacher(x)
            loss = loss_of(student(x), target, y)
            loss.backward()
        evaluate(student, valid)"""


@pytest.mark.parametrize("case", ["too late", "early", "not put back", "of another"])
def test_train_in_eval_mode_names_the_line_that_keeps_the_mode_too_late(make, case: str) -> None:
    """Read behind eval() it is eval mode, which is put back."""
    lines = ["model.eval()", "was = model.training", "yield", "model.train(was)"]
    if case == "early":
        lines[:2] = lines[1::-1]
    if case == "of another":
        lines[1] = "was = teacher.training"
    at = {"file": "t.py", "function": "judging", "excerpt": "\n".join(f"    {one}" for one in lines), "excerpt_line": 4}
    sites = [
        {"site": 20, "role": "eval-mode", "line": 4 + lines.index("model.eval()"), "source": "model.eval()", **at},
        {"site": 21, "role": "train-mode", "line": 7, "source": "model.train(was)", **at},
    ]
    off = {"model_in_train": [True] * 100 + [False] * 300, "modules_in_train": [3] * 100 + [0] * 300}
    sites = sites[:1] if case == "not put back" else sites
    finding = make.check("train-in-eval-mode", make.process(make.steps() | off, sites=sites))[2]
    if case == "too late":
        assert finding.location.line == 5
        assert "before line 5 reads the mode that line 7 restores" in finding.summary
        assert [one.strip() for one in finding.diff.added] == ["was = model.training", "model.eval()"]
    else:
        assert "restores" not in finding.summary
        assert "never switched back" in finding.summary


@pytest.mark.parametrize("case", ["once", "in the loop", "another model"])
def test_train_in_eval_mode_names_the_call_that_is_made_once(make, case: str) -> None:
    """Before the loop over epochs: the line and the edit move it. A teacher's forward in the loop is no training."""
    text = DISTILLED
    if case == "in the loop":
        text = text.replace("    student.train()  # with dropout\n    for epoch in range(9):",
                            "    for epoch in range(9):\n        student.train() if epoch == 0 else None")  # fmt: skip
    if case == "another model":
        text = text.replace("student.train()", "teacher.train()")
    roles = {4: "epochs", 6: "forward", 7: "forward", 8: "backward"}
    places = [*roles.items(), (7, "training-call")]
    lines = text.split("\n")
    excerpt = {"file": "t.py", "function": "distill", "excerpt": text, "excerpt_line": 1}
    sites = [
        {"site": 20 + at, "role": role, "line": line, "source": lines[line - 1].strip(), **excerpt}
        for at, (line, role) in enumerate(places)
    ]
    if case == "in the loop":
        sites[0] |= {"line": 3, "source": "for epoch in range(9):"}
    off = {"model_in_train": [True] * 100 + [False] * 300, "modules_in_train": [3] * 100 + [0] * 300}
    finding = make.check("train-in-eval-mode", make.process(make.steps() | off, sites=sites))[2]
    assert finding.location.line == (3 if case == "once" else 7), "the student is called there, not the teacher"
    assert ("student.train() inside the epoch loop" in finding.fix) == (case == "once")
    if case == "once":
        assert finding.diff.removed == ["    student.train()  # with dropout", "    for epoch in range(9):"]
        assert finding.diff.added == ["    for epoch in range(9):", "        student.train()  # with dropout"]
        assert finding.fix_code == "for epoch in range(9):\n    student.train()  # with dropout"


def test_train_in_eval_mode_from_the_start_may_be_meant(make) -> None:
    steps = make.steps() | {"model_in_train": [False] * COUNT, "modules_in_train": [0] * COUNT}
    _, _, finding = make.check("train-in-eval-mode", make.process(steps))
    assert (finding.severity, finding.confidence) == ("warning", "possible")
    frozen = [{"model": 0, "name": "ResNet", "sensitive": "BatchNorm2d x20"}]
    assert make.check("train-in-eval-mode", make.process(steps, models=frozen))[0] == "passed"
    partly = steps | {"modules_in_train": [1] * COUNT}
    assert make.check("train-in-eval-mode", make.process(partly))[0] == "passed"


def test_train_in_eval_mode_since_an_evaluation_before_the_first_step(make) -> None:
    steps = make.steps() | {"model_in_train": [False] * COUNT, "modules_in_train": [0] * COUNT}
    evals = make.evals(count=8)
    early = {name: [values[0], *values[:-1]] for name, values in evals.items()}
    early |= {
        "time_start": [-1.0, *list(evals["time_start"])[:-1]],
        "trained": [True] * 8,
        "model_in_train": [False] * 8,
    }
    models = [{"model": 0, "name": "Net", "sensitive": "BatchNorm1d x3, Dropout x1"}]
    unset = {"step": 0, "model": 0, "modules": 3, "of": 3, "spectral": 0, "call": 1, "training": False}
    links = [{"time": 0.1, "step": 1, "optimizer": 0, "model": 0}]
    process = make.process(steps, evals=early, models=models, more={"unset": [unset], "links": links})
    finding = make.check("train-in-eval-mode", process)[2]
    assert (finding.severity, finding.confidence) == ("critical", "likely"), "nothing of it is pretrained"
    assert "It was evaluated in eval mode before the first step, and not switched back." in finding.summary
    assert "from_pretrained" not in finding.summary
    assert "the mean 0 and variance 1 that it began with" in finding.summary
    assert "one call before the first step holds until the next evaluation" in finding.fix
    loaded = [{"step": 0, "name": "Net", "given": 9, "missing": 0, "unexpected": 0}]
    process = make.process(steps, evals=early, models=models, more={"unset": [unset], "links": links, "loads": loaded})
    assert make.check("train-in-eval-mode", process)[2].confidence == "possible"


def test_a_part_at_rest_from_the_first_step_on_loses_nothing_by_a_validation(make) -> None:
    """Only a new head trains, which has no mode; a validation that forgets train() then changes nothing."""
    frozen = [{"model": 0, "name": "ResNet", "sensitive": "BatchNorm2d x20"}]
    modes = {"model_in_train": [index < 40 for index in range(COUNT)]}
    resting = make.steps() | modes | {"modules_in_train": [0] * COUNT}
    assert make.check("train-in-eval-mode", make.process(resting, models=frozen))[0] == "passed"
    trained = make.steps() | modes | {"modules_in_train": [20 * (index < 40) for index in range(COUNT)]}
    assert make.check("train-in-eval-mode", make.process(trained, models=frozen))[2].confidence == "certain"
