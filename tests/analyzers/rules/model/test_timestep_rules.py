"""narrow-timesteps: what it fires on, and trainings that cover a part of the schedule on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import applied

RULE = "narrow-timesteps"


def looks(make: Any, low: float, high: float, distinct: float, **more: Any) -> Any:
    row = {"argument": "t", "source": "schedule", "range": 1000, "distinct": distinct, "low": low, "high": high}
    row |= {"lowest": low, "highest": high, **more}
    rows = [row | {"step": 1 + 10 * n, "values": 64 * (n + 1)} for n in range(12)]
    return make.process(more={"timesteps": rows})


def test_the_first_timesteps_alone(make: Any) -> None:
    status, _, finding = make.check(RULE, looks(make, 0, 99, 100))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "Only the first 100 of 1,000" in finding.title
    _, _, finding = make.check(RULE, looks(make, 0, 99, 100, source="embedding"))
    assert (finding.severity, finding.confidence) == ("info", "possible")
    _, _, finding = make.check(RULE, looks(make, 0, 99, 100, source="schedule beside the model"))
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    assert "The variable t never exceeded 99" in finding.summary


def given(trained: bool, highest: float, **more: Any) -> dict[str, Any]:
    row = {"step": 50, "loader": None, "epoch": 0, "batch": 50, "trained": trained, "field": "1", "dtype": "int64"}
    return row | {"shape": "64", "min": 0.0, "max": highest, "nonfinite": False} | more


LABELS = {"field": "2", "dtype": "int64"}


@pytest.mark.parametrize(
    ("rows", "severity"),
    [
        ([given(True, 98.0), given(False, 999.0)], "warning"),
        ([given(True, 98.0), given(False, 999.0), given(True, 300.0, **LABELS)], "warning"),
        ([given(True, 98.0), given(False, 99.0)], "info"),
        ([given(True, 98.0), given(False, 5000.0)], "info"),  # no timestep of this table
        ([given(True, 900.0), given(False, 999.0)], "info"),  # another argument
        ([given(True, 9.0, **LABELS), given(True, 98.0), given(False, 999.0, **LABELS)], "info"),  # which one?
        ([given(True, 98.0, dtype="float32"), given(False, 999.0, dtype="float32")], "info"),
    ],
)
def test_a_model_that_is_sampled_from_where_it_was_not_trained(make: Any, rows: Any, severity: str) -> None:
    """The table of timesteps may merely be larger than it has to be: not where an evaluation goes beyond."""
    timesteps = list(looks(make, 0, 99, 100, source="embedding").tables["timesteps"].records())
    finding = make.check(RULE, make.process(more={"timesteps": timesteps, "batches": rows}))[2]
    assert finding.severity == severity
    assert ("evaluated at timestep 999" in finding.summary) == (severity == "warning")


def test_a_number_of_timesteps_counts_where_an_evaluation_goes_beyond(make: Any) -> None:
    timesteps = list(looks(make, 0, 99, 100, source="number").tables["timesteps"].records())
    for highest, status in ((999.0, "fired"), (99.0, "passed")):
        rows = [given(True, 98.0), given(False, highest)]
        found, _, finding = make.check(RULE, make.process(more={"timesteps": timesteps, "batches": rows}))
        assert found == status
        assert finding is None or "beside its number of timesteps, 1,000: 10% of it" in finding.summary


def test_what_covers_the_schedule_or_a_part_on_purpose(make: Any) -> None:
    assert make.check(RULE, looks(make, 0, 997, 500))[0] == "passed"
    assert make.check(RULE, looks(make, 249, 999, 4))[0] == "passed", "distilled to four steps"
    assert make.check(RULE, looks(make, 999, 999, 1))[0] == "passed", "distilled to one step"
    assert make.check(RULE, looks(make, 0, 140, 8))[0] == "passed", "few steps"
    assert make.check(RULE, looks(make, 800, 999, 200))[0] == "passed", "an expert for much noise"
    process = looks(make, 0, 240, 200)
    rows = [row | {"high": 20.0 * n} for n, row in enumerate(process.tables["timesteps"].records())]
    assert make.check(RULE, make.process(more={"timesteps": rows}))[0] == "passed", "a curriculum that has just begun"


def test_without_timesteps(make: Any) -> None:
    assert make.check(RULE, make.process())[0] == "skipped"
    few = list(looks(make, 0, 99, 100).tables["timesteps"].records())[:3]
    assert make.check(RULE, make.process(more={"timesteps": few}))[0] == "skipped"


SCRIPT = """\
def samples(n):
    {sample}

def losses(model, x, t):
    {inner}
    return F.mse_loss(model(x, t), x)

def train(model, batch_size):
    x, y = samples(batch_size)
    {outer}
    losses(model, x, t).backward()
"""


def found(make: Any, calls: str = "losses", **lines: str) -> Any:
    """The finding of a script with these lines in its functions, and its text. `calls`: where the model is called."""
    source = SCRIPT.format(**{"sample": "pass", "inner": "pass", "outer": "pass", **lines})
    rows, function = [], ""
    for number, text in enumerate(source.splitlines(), 1):
        function = text[4 : text.index("(")] if text.startswith("def") else function
        roles = [
            role for role, sign in ROLES.items() if sign in text and (role != "training-call" or function == calls)
        ]
        for role in roles:
            place = {"site": len(rows) + 1, "role": role, "file": "train.py", "line": number, "function": function}
            rows.append(place | {"source": text.strip(), "excerpt": source, "excerpt_line": 1})
    timesteps = list(looks(make, 0, 99, 100).tables["timesteps"].records())
    return make.check(RULE, make.process(sites=rows, more={"timesteps": timesteps}))[2], source


ROLES = {"draw": "randint", "training-call": "model(", "backward": ".backward()", "step": ".backward()"}
DRAWN = "t = torch.randint(0, 100, (len(x),))"


HANDED = "x, t, noise = noise.samples(x)"


def test_a_draw_that_another_function_hands_to_the_one_that_calls_the_model(make: Any) -> None:
    finding, source = found(make, sample="t = torch.randint(0, 100, (n,))", inner=HANDED)
    assert "t = torch.randint(0, 1000, (n,))" in applied(source, finding.diff)
    finding, _ = found(make, sample="t = torch.randint(0, steps, (n,))", inner=HANDED)
    assert (finding.diff, finding.fix_code) == (None, "t = torch.randint(0, 1000, (n,))"), "a name may hold it"
    finding, _ = found(make, sample="t = torch.randint(0, steps, (n,))", inner="x, y, noise = noise.samples(x)")
    assert finding.diff is None


@pytest.mark.parametrize(
    ("taken", "returned", "edited"),
    [
        ("t = schedule.samples(len(x))", "return torch.randint(0, 100, (n,)).to(device)", True),
        ("y = schedule.samples(len(x))", "return torch.randint(0, steps, (n,))", False),  # labels
        ("t = schedule.others(len(x))", "return torch.randint(0, steps, (n,))", False),
        ("t = schedule.samples(len(x))", "return table[torch.randint(0, steps, (n,))]", False),
        ("t = schedule.samples(len(x))", "return torch.randint(0, 9, (n,))", False),  # not what was seen
    ],
)
def test_a_function_that_does_nothing_but_draw(make: Any, taken: str, returned: str, edited: bool) -> None:
    finding, source = found(make, sample=returned, inner=taken)
    assert (finding.diff is not None) == edited
    if edited:
        assert "return torch.randint(0, 1000, (n,)).to(device)" in applied(source, finding.diff)


@pytest.mark.parametrize(
    ("outer", "constants", "argv", "end"),
    [
        ("table = make(cfg.train_steps)", {"train_steps": "1000"}, [], "cfg.train_steps"),
        ("table = make(T)", {"T": "1000", "k": "9"}, [], "T"),
        ("table = make(cfg.train_steps)", {"train_steps": "1000"}, ["--train-steps", "1000"], None),  # not by the line
        ("table = make(T, cfg.width)", {"T": "1000", "width": "1000"}, [], None),  # which of both?
        ("table = make(other)", {"T": "1000"}, [], None),  # not in the function
        ("T = 500; table = make(T)", {"T": "1000"}, [], None),
    ],
)
def test_the_scripts_own_name_for_the_length_of_the_schedule(
    make: Any, outer: str, constants: dict[str, str], argv: list[str], end: str | None
) -> None:
    source = f"def train(cfg):\n    {outer}\n    t = torch.randint(0, cfg.few, (n,))\n    model(x, t).backward()\n"
    place = {"file": "train.py", "function": "train", "excerpt": source, "excerpt_line": 1}
    lines = source.splitlines()
    rows = [
        place | {"site": at, "role": role, "line": at, "source": lines[at - 1].strip()}
        for at, role in ((3, "draw"), (4, "backward"))
    ]
    rows += [
        {"site": 10 + at, "role": "constant", "file": "train.py", "line": 20 + at, "function": "parse", "source": "x"}
        | {"name": name, "own_name": name, "value": value}
        for at, (name, value) in enumerate(constants.items())
    ]
    timesteps = list(looks(make, 0, 99, 100).tables["timesteps"].records())
    process = make.process(sites=rows, more={"timesteps": timesteps}, facts={"argv": ["train.py", *argv]})
    finding = make.check(RULE, process)[2]
    assert finding.fix_code == f"t = torch.randint(0, {end or 1000}, (n,))"
    assert (finding.diff is not None) is (end is not None)
    assert finding.last_step is None, "the last look is not the end"


@pytest.mark.parametrize("lines", [{"inner": DRAWN}, {"outer": DRAWN}, {"inner": DRAWN, "sample": "y = randint(9)"}])
def test_the_draw_that_goes_into_the_model_is_edited(make: Any, lines: dict[str, str]) -> None:
    finding, source = found(make, **lines)
    assert finding.location
    assert f"Line {finding.location.line} draws them." in finding.summary
    assert "t = torch.randint(0, 1000, (len(x),))" in applied(source, finding.diff)
    assert finding.location.source == DRAWN


@pytest.mark.parametrize(
    "lines",
    [
        {"sample": "y = torch.randint(0, 100, (n,))"},  # of the data, drawn elsewhere
        {"sample": "t = torch.randint(0, 100, (n,))"},
        {"outer": "t = torch.randint(0, 10, (len(x),))"},  # not what was seen
        {"outer": "y = torch.randint(0, classes, (len(x),))"},  # nor called so
        {"outer": "t = torch.randint(0, 1000, (len(x),)) // 10"},  # drawn from the whole schedule
        {"outer": DRAWN + " if first else torch.randint(0, 1000, (len(x),))"},
    ],
)
def test_a_draw_that_may_be_another_is_left_alone(make: Any, lines: dict[str, str]) -> None:
    finding, _ = found(make, **lines)
    assert finding.diff is None
    assert "draws" not in finding.summary
