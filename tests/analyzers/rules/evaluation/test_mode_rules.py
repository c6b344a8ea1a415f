"""Rules about modes: statistics that validation changes, or that nothing ever set; train() that nobody calls."""

from __future__ import annotations

from typing import Any

import pytest


def evals(make: Any, **columns: Any) -> dict[str, Any]:
    return dict(make.evals()) | columns


def test_validation_that_changes_statistics(make) -> None:
    status, _, finding = make.check("batchnorm-in-validation", make.process(evals=evals(make, statistics=[30] * 4)))
    assert (status, finding.severity, finding.confidence, finding.first_step) == ("fired", "warning", "certain", 100)
    assert "in eval mode" in finding.summary
    assert "named_modules()" in finding.fix_code, "model.eval() is what the script calls already"
    whole = evals(make, statistics=[30] * 4, model_in_train=[True] * 4)
    finding = make.check("batchnorm-in-validation", make.process(evals=whole))[2]
    assert "in eval mode" not in finding.summary
    assert finding.fix_code.startswith("model.eval()")


def test_a_call_that_does_not_ask_for_the_mode(make) -> None:
    call = {"site": 90, "role": "batch-norm", "file": "m.py", "line": 27, "function": "forward"}
    process = make.process(
        evals=evals(make, statistics=[30] * 4, model_in_train=[False] * 4),
        sites=[call | {"source": "x = F.batch_norm(x, self.mean, self.var, training=True)"}],
    )
    finding = make.check("batchnorm-in-validation", process)[2]
    assert "was in eval mode, but the call in line 27 does not ask for its mode." in finding.summary
    assert "next validation" not in finding.summary, "which does not read what is stored either"
    assert finding.location.line == 27


@pytest.mark.parametrize(
    "columns",
    [
        {"statistics": [0] * 4},
        {"statistics": [30, 0, 0, 0]},  # one odd pass
        {"statistics": [30] * 4, "trained": [False] * 4},  # another model
        {"statistics": [30] * 4, "loader": [0] * 4, "losses": [0] * 4, "forwards": [1] * 4},  # measures nothing
    ],
)
def test_statistics_that_are_as_they_should_be(make, columns: dict[str, Any]) -> None:
    assert make.check("batchnorm-in-validation", make.process(evals=evals(make, **columns)))[0] in ("passed", "skipped")


SAMPLES = """
def sample(net, x):
    net.train()  # masks at random
    outputs = [net(x) for _ in range(20)]
    net.eval()
"""


@pytest.mark.parametrize("repeats", [9, 0])
def test_a_whole_model_in_train_mode_to_sample_its_dropouts(make, repeats: int) -> None:
    """With several forwards of each input, dropout is meant to drop; the normalisations are not meant to learn."""
    text = SAMPLES.strip().split("\n")
    sites = [
        {"site": at, "role": role, "file": "train.py", "line": at, "source": text[at - 1].strip()}
        | {"function": function, "excerpt": "\n".join(text), "excerpt_line": 1}
        for role, at, function in (
            ("train-mode", 2, "sample"), ("eval-mode", 4, "sample"), ("forward", 3, "<listcomp>")
        )
    ]  # fmt: skip
    columns = {"statistics": [30] * 4, "dropouts": [30] * 4, "repeats": [repeats] * 4, "forwards": [10] * 4}
    columns |= {"model_in_train": [True] * 4, "modules_in_train": [3] * 4, "modules": ["BatchNorm1d x2, Dropout"] * 4}
    process = make.process(evals=evals(make, **columns, site=[3] * 4), sites=sites)
    status, _, mode = make.check("eval-in-train-mode", process)
    assert status == ("passed" if repeats else "fired")
    finding = make.check("batchnorm-in-validation", process)[2]
    assert finding.location.line == 2
    assert ("by line 2" in finding.summary) == bool(repeats)
    assert finding.fix.startswith("Line 2 puts the model into train mode") == (not repeats)
    assert finding.fix_code.startswith("net.eval()  # in place of line 2\n") == bool(repeats)
    if mode is not None:
        assert mode.location.line == 2
        assert "still" not in mode.summary, "the function puts it there"


VALIDATES = """
def adapt(model):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.train()

def evaluate(loader):
    model.train()
    model.eval()
    model.body.train()
    outputs = model(images)
    model.train()
"""


def validated(make: Any, *lines: int) -> Any:
    """A validation in eval mode that changes statistics, with these lines of the text that say train()."""
    text = VALIDATES.strip().split("\n")
    sites = [
        {"site": 10 + at, "role": role, "file": "train.py", "line": at, "source": text[at - 1].strip()}
        | {"function": "adapt" if at < 6 else "evaluate", "excerpt": "\n".join(text), "excerpt_line": 1}
        for role, numbers in (("train-mode", lines), ("eval-mode", (8,)), ("forward", (10,)))
        for at in numbers
    ]
    process = make.process(evals=evals(make, statistics=[30] * 4, site=[20] * 4), sites=sites)
    return make.check("batchnorm-in-validation", process)[2]


@pytest.mark.parametrize(("lines", "place"), [((7, 9, 11), 9), ((4, 7, 11), 4), ((7, 11), 10), ((), 10)])
def test_the_line_that_puts_a_part_back_into_train_mode(make, lines: tuple[int, ...], place: int) -> None:
    """Between eval() and the pass, or in a function that looks for layers; else the line is the call of the model."""
    finding = validated(make, *lines)
    assert finding.location.line == place
    named = f"line {place} puts part of it back into train mode" in finding.summary
    assert named is (place != 10)
    assert (finding.diff.added if finding.diff else None) == (
        {9: ["    model.body.eval()"], 4: ["            m.eval()"]}.get(place)
    )


def test_statistics_without_a_column(make) -> None:
    assert make.check("batchnorm-in-validation", make.process())[0] == "skipped"


def looks(*rows: tuple[int, int, bool]) -> dict[str, Any]:
    """Step, normalisations that are not set, and whether autograd was recording."""
    return {
        "unset": [
            {"step": step, "model": 0, "modules": modules, "of": 3, "call": index, "training": training}
            for index, (step, modules, training) in enumerate(rows, 1)
        ]
    }


def test_spectral_norms_that_nothing_estimated(make) -> None:
    def answer(*steps: int) -> Any:
        rows = [{"step": step, "model": 0, "modules": 0, "of": 0, "spectral": 2, "training": False} for step in steps]
        return make.check("unset-running-state", make.process(more={"unset": rows}))

    status, _, finding = answer(100)
    assert (status, finding.severity) == ("fired", "critical")
    assert "2 weights of it never ran forward in train mode" in finding.summary
    assert answer(0)[2].severity == "info"
    assert "before the first step" in answer(0)[2].summary


def test_statistics_that_nothing_set(make) -> None:
    def answer(*rows: tuple[int, int, bool]) -> Any:
        return make.check("unset-running-state", make.process(more=looks(*rows)))

    status, _, finding = answer((100, 3, False))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "certain")
    assert answer((0, 3, False), (100, 0, False))[0] == "passed", "a sanity pass"
    assert answer((0, 3, True), (100, 3, False))[2].severity == "warning", "trained in the same mode"
    said = answer((0, 3, True), (100, 3, False))[2].summary
    assert said.startswith("From step 1 on Net was called in training steps with its normalisation in eval mode")
    assert "Training and evaluation agree in that" in said
    assert answer((150, 3, False))[2].severity == "info", "no pass that measures"
    assert "No measurement with it" in answer((150, 3, False))[2].summary
    assert answer((100, 0, False))[0] == "passed", "loaded, or trained"
    assert make.check("unset-running-state", make.process())[0] == "skipped"


def test_a_model_that_is_validated_before_its_own_training(make) -> None:
    """A teacher was trained before; the sanity pass of the student comes after steps of the process, not of its own."""

    def answer(*links: tuple[int, int]) -> Any:
        more = looks((100, 3, False), (150, 0, False))
        return make.check("unset-running-state", make.process(more=more | {
            "links": [{"step": step, "optimizer": number, "model": 0} for number, step in links],
        }))  # fmt: skip

    assert answer((1, 101))[0] == "passed"
    assert answer((0, 1))[2].severity == "critical", "a training of its own went before"
    assert answer((0, 1), (1, 101))[2].severity == "critical"


@pytest.mark.parametrize(
    ("passes", "columns", "severity"),
    [
        (8, {}, "critical"),
        (2, {}, "info"),  # too few to be a measurement
        (8, {"grad_mode": [2] * 8}, "info"),  # a pass of training
        (8, {"model": [2] * 8}, "info"),  # of another architecture: random features, perhaps
    ],
)
def test_an_average_without_buffers_that_one_call_evaluates(make, passes: int, columns: Any, severity: str) -> None:
    """The whole validation set in one forward, and a loss or an accuracy that the script writes out."""
    pattern = {"model": 1, "trained": False, "forwards": 1, "losses": 0, "grad_mode": 0}
    measured = make.evals(passes, 40) | {name: [value] * passes for name, value in pattern.items()} | columns
    number = measured["model"][0]
    kinds = [(0, 899), (1, 899), (2, 77)]
    models = [{"model": model, "name": "Net", "parameters": 4, "elements": size} for model, size in kinds]
    unset = [
        {"step": step, "model": number, "modules": 2, "of": 2, "call": 1, "training": False}
        for step in measured["after_step"]
    ]
    more = {"unset": unset, "links": [{"optimizer": 0, "model": 0}]}
    status, _, finding = make.check("unset-running-state", make.process(evals=measured, models=models, more=more))
    assert (status, finding.severity) == ("fired", severity)


@pytest.mark.parametrize(("changed", "lines", "named"), [(1.0, 1, True), (1.0, 2, False), (0.0, 1, False)])
def test_the_line_that_averages_weights_and_no_buffers(make, changed: float, lines: int, named: bool) -> None:
    """A copy whose weights move with those of the trained model; of several such lines none is named."""
    measured = make.evals(4, 40) | {name: [value] * 4 for name, value in {"model": 1, "losses": 1}.items()}
    unset = [
        {"step": step, "model": 1, "modules": 2, "of": 2, "call": 1, "training": False}
        for step in measured["after_step"]
    ]
    copies = [{"step": row["step"], "model": 1, "of": 0, "changed": changed, "moved": changed} for row in unset]
    sites = [
        {"site": 7 + at, "role": "average", "file": "a.py", "line": 74 + at, "function": f"update{at}",
         "source": "mine.lerp_(live, 1 - d)"}
        for at in range(lines)
    ]  # fmt: skip
    more = {"unset": unset, "copies": copies, "links": [{"optimizer": 0, "model": 0}]}
    _, _, finding = make.check("unset-running-state", make.process(evals=measured, sites=sites, more=more))
    assert ("Line 74 makes its weights follow another model's" in finding.summary) == named
    assert (finding.location is not None and finding.location.line == 74) == named


@pytest.mark.parametrize(("every", "model", "severity"), [(1, 1, "warning"), (100, 1, "critical"), (1, 0, "critical")])
def test_a_network_that_serves_the_training_of_another(make, every: int, model: int, severity: str) -> None:
    """Features of a network that no optimizer holds, computed without autograd in each step beside a loss."""
    steps = [every * number for number in range(4)]
    unset = [{"step": step, "model": model, "modules": 2, "of": 2, "call": 1, "training": False} for step in steps]
    passes = {"after_step": steps, "model": [model] * 4, "losses": [1] * 4, "forwards": [1] * 4}
    more = {"unset": unset, "links": [{"optimizer": 0, "model": 0}]}
    status, _, finding = make.check("unset-running-state", make.process(evals=make.evals() | passes, more=more))
    assert (status, finding.severity) == ("fired", severity)
    assert ("serves training" in finding.title) is ("No optimizer holds" in finding.summary) is (severity == "warning")
    assert "trained in the same mode" not in finding.summary


def event(kind: str, step: int, **more: Any) -> dict[str, Any]:
    return {"time": 0.0, "step": step, "kind": kind, "name": "Net", "file": "train.py", "line": 7} | more


def test_a_train_method_that_nobody_calls(make) -> None:
    def answer(*events: dict[str, Any]) -> Any:
        return make.check("train-override-bypassed", make.process(events=list(events)))

    status, _, finding = answer(event("train-not-called", 0))
    assert (status, finding.severity, finding.seen_at.line) == ("fired", "warning", 7)
    assert "whole run" in finding.title
    assert "first 100 steps" in answer(event("train-not-called", 0), event("train-called", 100))[2].title
    by_eval = answer(event("train-not-called", 0), event("train-called", 100, value=1.0))[2]
    assert "Then model.eval() called it" in by_eval.summary
    assert "trainer.fit()" in by_eval.fix
    other = answer(event("train-not-called", 44), event("train-called", 69))[2]  # behind a model that trained before
    assert ("first 25 steps" in other.title, other.first_step) == (True, 45)
    assert answer(event("train-not-called", 44), event("train-called", 47))[0] == "passed"
    assert answer(event("train-not-called", 0), event("train-called", 2))[0] == "passed", "just in time"
    statistics = answer(event("train-not-called", 0, value=2.0))[2]
    assert "running statistics went on changing" in statistics.summary
    assert "model.eval() called it" not in statistics.summary
    assert "all its parts were in train mode" in answer(event("train-not-called", 0, value=4.0))[2].summary
    assert answer(event("exit", 0))[0] == "skipped", "no such module"


def test_train_is_to_be_called_above_the_loop(make) -> None:
    def site(number: int, role: str, line: int, function: str = "fit") -> dict[str, Any]:
        return {
            "site": number,
            "role": role,
            "file": "loop.py",
            "line": line,
            "function": function,
            "source": "for x in y:",
        }

    def place(*sites: dict[str, Any]) -> Any:
        process = make.process(events=[event("train-not-called", 0)], sites=list(sites))
        return make.check("train-override-bypassed", process)[2]

    loops = [site(1, "epochs", 20), site(2, "loop", 22), site(3, "backward", 25)]
    finding = place(*loops)
    assert (finding.location.line, finding.seen_at.line) == (20, 7)
    assert "before the first step" in finding.fix
    fit = {"source": "trainer.fit(model, train, val)"}
    called = place(site(1, "loader", 92) | fit, site(3, "backward", 92) | fit)
    assert called.fix.startswith("Call model.train() above line 92")
    assert "above that line" in called.fix_code, "a framework's loop, which nothing can be put into"
    assert place(site(1, "epochs", 20, "main"), *loops[1:]).location.line == 22
    assert place(loops[2]).location.line == 7, "the override, where no loop is known"
    earlier = [site(5, "loop", 12, "pretrain"), site(4, "backward", 15, "pretrain")]
    steps, first = make.steps(), [index < 100 for index in range(400)]
    steps |= {"optimizer": [0 if one else 1 for one in first], "step": [*range(1, 101), *range(1, 301)]}
    optimizers = [{"optimizer": 0, "backward_site": 4}, {"optimizer": 1, "backward_site": 3}]
    process = make.process(
        steps, optimizers=optimizers, events=[event("train-not-called", 100)], sites=[*earlier, *loops[1:]]
    )
    finding = make.check("train-override-bypassed", process)[2]
    assert (finding.location.line, finding.first_step) == (22, 1), "of the training that it is called in"
    assert finding.title.endswith("is not called for training (training 2 of 2)")


FIT = """\
def fit(net, epochs):
    net.train()
    for epoch in range(epochs):
        one_epoch(net)
        validate(net)"""
EPOCH = """\
def one_epoch(net):
    for x, y in loader:
        loss = criterion(net(x), y)
        loss.backward()"""


@pytest.mark.parametrize(
    ("fit", "place"),
    [
        (FIT, 2),
        (FIT.replace("one_epoch(net)", "other_epoch(net)"), 23),  # what the loop calls is not known to train
        (FIT.replace("    net.train()", "    if warm:\n        net.train()"), 23),
    ],
)
def test_train_is_called_once_in_front_of_the_epochs_that_call_the_training(make, fit: str, place: int) -> None:
    def site(number: int, role: str, text: str, first: int, part: str) -> dict[str, Any]:
        at, source = next((at, line) for at, line in enumerate(text.split("\n"), first) if part in line)
        name = text.partition("def ")[2].partition("(")[0]
        return {"site": number, "role": role, "file": "loop.py", "line": at, "function": name,
                "source": source.strip(), "excerpt": text, "excerpt_line": first}  # fmt: skip

    sites = [
        site(1, "epochs", fit, 1, "for epoch"),
        site(2, "train-mode", fit, 1, "train()"),
        site(3, "training-call", EPOCH, 21, "net(x)"),
        site(4, "forward", EPOCH, 21, "net(x)"),
        site(5, "backward", EPOCH, 21, "backward"),
    ]
    count = len(make.steps()["loss"])
    modes = {"model_in_train": [1.0] * 50 + [0.0] * (count - 50), "modules_sensitive": [4.0] * count}
    columns = make.steps() | modes | {"modules_in_train": [4.0] * 50 + [0.0] * (count - 50)}
    finding = make.check("train-in-eval-mode", make.process(columns, sites=sites))[2]
    assert finding.location.line == place
    if place == 2:
        assert finding.diff.added == ["    for epoch in range(epochs):", "        net.train()"]


def test_forward_past_the_hooks(make) -> None:
    def answer(*events: dict[str, Any]) -> Any:
        return make.check("direct-forward-call", make.process(events=list(events)))

    assert answer(event("direct-forward", 0, value=0.0))[2].severity == "info"
    two = answer(event("direct-forward", 0, value=2.0))[2]
    assert (two.severity, two.title.partition(": ")[2]) == ("warning", "its 2 hooks do not run in these calls")
    one = answer(event("direct-forward", 63, value=1.0))[2]  # a validation: the training calls the model
    assert one.title.endswith("its hook does not run in these calls")
    assert "Its hook runs only where the module itself is called." in one.summary
    assert two.summary.endswith("Its 2 hooks run only where the module itself is called.")
    own = answer(event("direct-forward", 0, value=1.0) | {"text": "penalty (line 43)"})[2]
    assert own.summary.endswith("skips its hook, penalty (line 43): it runs only where the module itself is called.")
    assert answer(event("exit", 0))[0] == "passed"


@pytest.mark.parametrize(
    ("function", "named"), [("on_validation_start", True), ("on_eval_begin", True), ("on_train_epoch_start", False)]
)
def test_a_hook_that_undoes_what_the_framework_does_before_a_validation(make, function: str, named: bool) -> None:
    lines = f"def {function}(self):\n    self.net.train()"
    hook = {"site": 7, "role": "train-mode", "file": "lit.py", "line": 14, "function": function}
    hook |= {"source": "self.net.train()", "excerpt": lines, "excerpt_line": 13}
    forward = {"site": 3, "role": "forward", "file": "lit.py", "line": 17, "function": "validation_step"}
    sites = [hook, forward | {"source": "out = self.net(x)", "excerpt": "    out = self.net(x)", "excerpt_line": 17}]
    columns = {"model_in_train": [True] * 4, "modules_in_train": [3] * 4, "modules": ["Dropout"] * 4}
    process = make.process(evals=evals(make, **columns, dropouts=[30] * 4), sites=sites)
    finding = make.check("eval-in-train-mode", process)[2]
    assert (finding.location.line == 14) == ("take it out" in finding.fix) == named


def test_a_last_pass_that_is_repeated_counts_with_the_others(make) -> None:
    """Several forwards of each input are meant to sample; here single passes drop as well, and so all do."""
    columns = {"dropouts": [20] * 4, "repeats": [0, 0, 9, 9], "forwards": [10] * 4}
    finding = make.check("eval-in-train-mode", make.process(evals=make.evals() | columns))[2]
    assert "in 4 of 4 validation passes" in finding.summary
    columns["repeats"] = [0, 9, 9, 9]
    assert make.check("eval-in-train-mode", make.process(evals=make.evals() | columns))[0] == "passed"


DROPS = "self.drops = [nn.Dropout(p) for _ in range(3)]"


@pytest.mark.parametrize(
    ("lines", "title", "place", "added"),
    [
        ([("unregistered", 12, DROPS)], "in a list or dictionary", 12, f"nn.ModuleList({DROPS.partition(' = ')[2]})"),
        ([("unregistered", 12, 'self.drops = {"a": nn.Dropout(p)}')], "in a list", 12, "nn.ModuleDict({"),
        ([("unregistered", 12, "self.drops.append(nn.Dropout(p))")], "in a list", 12, ""),
        ([("made-anew", 22, "x = nn.Dropout(0.1)(x)")], "forward makes it anew", 22, ""),
        ([("dropout", 22, "x = F.dropout(x, 0.1)")], "Functional dropout", 22, "self.training"),
        ([("unregistered", 12, "self.teachers = [Teacher()]")], "although the model is in eval mode", None, ""),
        ([("unregistered", 12, DROPS), ("dropout", 22, "x = F.dropout(x, 0.1)")], "although the model is", None, ""),
        ([], "although the model is in eval mode", None, ""),
    ],
)
def test_what_drops_in_eval_mode(make, lines, title: str, place: int | None, added: str) -> None:
    text = {"file": "train.py", "function": "forward"}
    sites = [
        {"site": 20 + at, "role": role, "line": line, "source": source, **text}
        | {"excerpt": f"        {source}", "excerpt_line": line}
        for at, (role, line, source) in enumerate(lines)
    ]
    process = make.process(evals=make.evals() | {"dropouts": [20] * 4}, sites=sites)
    _, _, finding = make.check("eval-in-train-mode", process)
    assert title in finding.title
    assert (f"Line {place} " in finding.summary) == (place is not None)
    assert (finding.diff is not None and added in finding.diff.added[0]) == bool(added)


@pytest.mark.parametrize(
    ("filled", "place", "said"),
    [
        ("self.drops = [self.drop(p) for p in rates]", 12, "Line 12 puts Dropout modules into a Python list"),
        ("self.drops = fill(rates)", 22, "Line 22 makes Dropout modules for a Python list"),
    ],
)
def test_dropout_that_a_function_makes_for_a_list(make, filled: str, place: int, said: str) -> None:
    text = {"file": "train.py", "excerpt_line": 11}
    made = {"site": 1, "role": "unregistered", "line": 22, "function": "drop", "source": "return nn.Dropout(p)"}
    made |= {"file": "train.py", "excerpt": "        return nn.Dropout(p)", "excerpt_line": 22}
    head = {"site": 2, "role": "module", "line": 11, "function": "__init__", "source": "self.head = nn.Linear(8, 2)"}
    head |= text | {"excerpt": f"        self.head = nn.Linear(8, 2)\n        {filled}"}
    process = make.process(evals=make.evals() | {"dropouts": [20] * 4}, sites=[made, head])
    finding = make.check("eval-in-train-mode", process)[2]
    assert finding.location.line == place
    assert said in finding.summary
    assert (finding.diff is not None) == (place == 12)
