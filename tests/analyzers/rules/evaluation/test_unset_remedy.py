"""The line and the remedy where batch normalisations are in eval mode from the start, or are loaded without state."""

from __future__ import annotations

import pytest


def test_a_train_method_that_calls_eval(make) -> None:
    row = {"step": 1, "model": 0, "modules": 3, "of": 3, "spectral": 0, "training": True}
    sites = [
        {"site": number, "role": "eval-mode", "file": "train.py", "line": line, "function": function, "source": source}
        for number, line, function, source in ((1, 44, "train", "m.eval()"), (2, 60, "evaluate", "model.eval()"))
    ]
    process = make.process(make.steps(), sites=sites, more={"unset": [row]})
    finding = make.check("unset-running-state", process)[2]
    assert (finding.severity, finding.location.line) == ("warning", 44)
    assert finding.fix.startswith("Leave the BatchNorm layers in train mode")
    assert not finding.fix_code


@pytest.mark.parametrize("case", ["applied", "applied twice", "chosen in a loop", "by another name"])
def test_a_function_that_keeps_normalisations_in_eval_mode(make, case: str) -> None:
    row = {"step": 1, "model": 0, "modules": 3, "of": 3, "spectral": 0, "training": True}
    chooses = "m.eval()" if case == "by another name" else "if isinstance(m, nn.BatchNorm2d):\n        m.eval()"
    frozen = {"site": 1, "role": "eval-mode", "file": "train.py", "line": 12, "function": "freeze"}
    frozen |= {"source": "m.eval()", "excerpt": f"def freeze(m):\n    {chooses}"}
    frozen["excerpt_line"] = 12 - frozen["excerpt"].count("\n")
    calls = [("applied", 30), ("applied twice", 30), ("applied twice", 50)]
    applies = [
        {"site": 2 + line, "role": "train-mode", "file": "train.py", "line": line, "function": "main"}
        | {"source": "model.apply(freeze)", "excerpt": "model.apply(freeze)", "excerpt_line": line}
        for name, line in calls
        if name == case
    ]
    process = make.process(make.steps(), sites=[frozen, *applies], more={"unset": [row]})
    finding = make.check("unset-running-state", process)[2]
    assert "was called in training steps with its normalisation in eval mode, and all 3" in finding.summary
    assert "trains with BatchNorm statistics that nothing has set" in finding.title
    at = finding.location.line if finding.location is not None else None
    assert at == {"applied": 30, "by another name": None}.get(case, 12)


@pytest.mark.parametrize("case", ["made anew", "trained", "averaged", "spectral"])
def test_the_remedy_fits_the_model(make, case: str) -> None:
    """A model of an optimizer's is no copy; weights that are averaged are not overwritten; norms are no statistics."""
    row = {"step": 100, "model": 1, "modules": 1, "of": 3, "spectral": 0, "call": 1, "training": False}
    if case == "spectral":
        row |= {"modules": 0, "of": 0, "spectral": 1, "training": True}
    links = [{"optimizer": 0, "model": 1 if case == "trained" else 0}]
    average = {"site": 9, "role": "average", "file": "a.py", "line": 7, "function": "f", "source": "a.lerp_(b, 0.1)"}
    sites = [average] * (case == "averaged")
    process = make.process(make.steps(), sites=sites, more={"unset": [row], "links": links})
    finding = make.check("unset-running-state", process)[2]
    assert ("load_state_dict(model.state_dict())" in finding.fix_code) == (case == "made anew")
    assert ("zip(evaluated.buffers()" in finding.fix_code) == (case == "averaged")
    assert ("no training step has set them" in finding.summary) == (case == "trained")
    assert finding.fix.startswith("Copy the buffers") == (case == "averaged")
    assert "BatchNorm" not in finding.fix
    if case == "spectral":
        assert "1 weight of it never ran" in finding.summary
        assert "it is divided" in finding.summary
        assert finding.evidence[0].name == "weights without their spectral norm"
    else:
        assert "says little about the weights" in finding.summary, "one layer of three"
        assert "1 of its 3 batch normalisations had seen no batch and no checkpoint: it subtracts" in finding.summary


def test_an_average_is_called_by_its_name_where_its_line_knows_it(make) -> None:
    row = {"step": 100, "model": 1, "modules": 1, "of": 1, "spectral": 0, "call": 1, "training": False}
    lines = "for a, b in zip(self.ema.parameters(), self.net.parameters()):\n    a.lerp_(b, 0.1)"
    average = {"site": 9, "role": "average", "file": "a.py", "line": 8, "function": "f", "source": "a.lerp_(b, 0.1)"}
    average |= {"excerpt": lines, "excerpt_line": 7}
    for name in ("self.ema", "other"):
        models = [{"model": 1, "name": "Net", "called_as": name}, {"model": 0, "name": "Net", "called_as": "self.net"}]
        more = {"unset": [row], "links": [{"optimizer": 0, "model": 0}]}
        process = make.process(make.steps(), sites=[average], models=models, more=more)
        finding = make.check("unset-running-state", process)[2]
        assert "its only batch normalisation had seen" in finding.summary
        assert ("zip(self.ema.buffers()" in finding.fix_code) == (name == "self.ema")


@pytest.mark.parametrize(
    ("load", "lacks"),
    [
        ({}, True),
        ({"name": "Other"}, False),  # a load of another model
        ({"missing": 0}, False),
        ({"missing": 2}, False),  # a head
        ({"unexpected": 6}, False),  # names that do not match are another diagnosis
        ({"step": 300}, False),  # it came later
    ],
)
def test_a_load_that_lacks_what_normalisations_keep(make, load, lacks: bool) -> None:
    row = {"step": 200, "model": 1, "modules": 3, "of": 3, "spectral": 0, "call": 1, "training": False}
    read = {"step": 200, "time": 9.0, "module": 0, "name": "Net", "given": 8, "expected": 14, "missing": 6, "site": 9}
    site = {"site": 9, "role": "load_state_dict", "file": "test.py", "line": 7, "function": "main", "source": "load()"}
    more = {"unset": [row], "loads": [read | {"unexpected": 0} | load]}
    models = [{"model": 1, "name": "Net", "parameters": 4, "elements": 899}]
    process = make.process(make.steps(), sites=[site], models=models, more=more)
    finding = make.check("unset-running-state", process)[2]
    place = finding.location
    assert (place is not None and (place.file, place.line) == ("test.py", 7)) is lacks
    assert ("named_parameters()" in finding.fix_code) is lacks


@pytest.mark.parametrize(
    ("loop", "named"),
    [
        ("for kept, new in zip(self.teacher.parameters(), student.parameters()):", True),
        ("for kept, new in zip(self.critic.parameters(), student.parameters()):", False),  # another model
        ("for kept, new in zip(self.teacher.buffers(), student.buffers()):", False),
        ("for kept, new in pairs:", False),
    ],
)
def test_a_teacher_whose_parameters_alone_are_averaged(make, loop: str, named: bool) -> None:
    """It serves the training and is never measured: the loop that leaves its buffers out is the line to change."""
    unset = {"model": 1, "modules": 4, "of": 4, "spectral": 0, "training": False}
    rows = [unset | {"step": step, "call": step + 1} for step in range(9)]
    text = ["def update(self, student):", f"    {loop}", "        kept.lerp_(new, 0.1)", ""]
    site = {"site": 9, "role": "average", "file": "a.py", "line": 7, "function": "update", "source": text[2].strip()}
    sites = [site | {"excerpt": "\n".join(text), "excerpt_line": 5}]
    models = [{"model": at, "name": "Net", "called_as": name} for at, name in enumerate(("student", "self.teacher"))]
    more = {"unset": rows, "links": [{"optimizer": 0, "model": 0}]}
    process = make.process(make.steps(), sites=sites, models=models, more=more)
    finding = make.check("unset-running-state", process)[2]
    assert ("Line 6 gives `self.teacher` the averaged parameters of `student`" in finding.summary) is named
    assert (finding.location is not None and finding.location.line == 6) is named
    assert ("zip(self.teacher.buffers(), student.buffers())" in finding.fix_code) is named
    assert ("of-targets" in finding.traits) is named, "then it explains a loss that runs away"


@pytest.mark.parametrize(
    ("loop", "mixes", "edited"),
    [
        ("for e, p in zip(self.module.parameters(), model.parameters()):", "e.mul_(0.9).add_(p, alpha=0.1)", True),
        ("for e, p in zip(self.module.parameters(), model.parameters()):", "e.data.mul_(0.9).add_(p.data)", True),
        ("for p, e in zip(model.parameters(), self.module.parameters()):", "e.mul_(0.9).add_(p, alpha=0.1)", False),
    ],
)
def test_an_average_that_is_measured_under_another_name(make, loop: str, mixes: str, edited: bool) -> None:
    """A function measures it as `net`: what the loop changes is the average, since this model is known to be one."""
    unset = {"step": 200, "model": 1, "modules": 3, "of": 3, "spectral": 0, "call": 1, "training": False}
    text = ["def update(self, model):", f"    {loop}", f"        {mixes}", ""]
    site = {"site": 9, "role": "average", "file": "a.py", "line": 7, "function": "update", "source": mixes}
    sites = [site | {"excerpt": "\n".join(text), "excerpt_line": 5}]
    models = [{"model": at, "name": "Net", "called_as": "net"} for at in range(2)]
    copies = [{"model": 1, "changed": 1, "step": step, "of": 0} for step in (100, 200)]
    more = {"unset": [unset], "links": [{"optimizer": 0, "model": 0}], "copies": copies}
    finding = make.check("unset-running-state", make.process(make.steps(), sites=sites, models=models, more=more))[2]
    assert "Line 7 makes its weights follow another model's" in finding.summary
    added = finding.diff.added if finding.diff else []
    copied = ["    for kept, current in zip(self.module.buffers(), model.buffers()):", "        kept.copy_(current)"]
    assert added == copied * edited
    assert not edited or finding.diff.line == 8
