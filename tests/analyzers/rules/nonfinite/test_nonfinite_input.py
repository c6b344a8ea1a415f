"""Batches that hold what is not finite, their look-alikes, and what prepared them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.analyzers.rules.nonfinite.broken_batches import COUNT, GIVEN_UP, batch, broken_at
from tests.analyzers.sites import sites_of
from tracelyze.analyzers import diagnose


def test_a_batch_with_nan_that_breaks_the_loss(make) -> None:
    batches = [batch(index, nonfinite=index == 100) for index in range(0, 200, 4)]
    process = make.process(broken_at(make, 100), more={"batches": batches})
    status, _, finding = make.check("nonfinite-input", process)
    assert status == "fired"
    assert (finding.severity, finding.first_step) == ("critical", 101)
    assert "batch 101 of pass 1" in finding.summary
    assert finding.location.line == 30
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    own = make.process(broken_at(make, 100), loaders=[loader], more={"batches": batches})
    _, _, finding = make.check("nonfinite-input", own)
    assert (finding.location.line, finding.seen_at.line) == (60, 30), "the line that defines how a sample is read"
    everything = {finding.rule: finding for finding in diagnose(make.run(process)).findings}
    assert everything["loss-nonfinite"].caused_by == "nonfinite-input"


def test_a_loader_that_is_a_batch_ahead(make) -> None:
    batches = [batch(index, nonfinite=index == 99) for index in range(90, 110)]
    assert make.check("nonfinite-input", make.process(broken_at(make, 100), more={"batches": batches}))[0] == "fired"


@pytest.mark.parametrize(
    "batches",
    [
        [batch(100)],
        [batch(index, nonfinite=True) for index in range(0, 200, 10)],  # filled by the script, all along
        [batch(100, nonfinite=True, trained=False)],  # evaluated
        [batch(150, nonfinite=True)],  # after the loss broke
    ],
)
def test_batches_that_did_not_break_the_loss(batches: list[dict[str, Any]], make) -> None:
    process = make.process(broken_at(make, 100), more={"batches": batches})
    assert make.check("nonfinite-input", process)[0] == "passed"


def test_an_attention_mask_that_a_model_is_given_is_no_broken_batch(make) -> None:
    """In a loop without a loader, of which the mask of the first steps is looked at, and the loss breaks at once."""
    given: dict[str, Any] = {"nonfinite": True, "loader": None, "field": "1", "max": 0.0, "min": -math.inf}
    masks = [batch(index, **given) for index in range(3)]
    assert make.check("nonfinite-input", make.process(broken_at(make, 2), more={"batches": masks}))[0] == "passed"
    values = [row | {"max": 3.0, "nonfinite": row["step"] == 2} for row in masks]
    assert make.check("nonfinite-input", make.process(broken_at(make, 2), more={"batches": values}))[0] == "fired"


def test_an_input_that_the_script_makes_of_a_finite_batch(make) -> None:
    made = batch(100, loader=None, nonfinite=True, min=math.nan, max=math.nan)
    process = make.process(broken_at(make, 100), more={"batches": [batch(100), made]})
    status, _, finding = make.check("nonfinite-input", process)
    assert (status, finding.confidence, finding.first_step) == ("fired", "likely", 101)
    assert "finite batch" in finding.title
    both = make.process(broken_at(make, 100), more={"batches": [made, batch(100, nonfinite=True)]})
    assert make.check("nonfinite-input", both)[2].confidence == "certain", "the batch held it already"
    bias = made | {"min": -math.inf, "max": 2.0}
    masked = make.process(broken_at(make, 100), more={"batches": [batch(100), bias]})
    assert make.check("nonfinite-input", masked)[0] == "passed", "a bias of attention, with a mask in it"


def test_missing_values_without_harm_and_runs_without_batches(make) -> None:
    batches = [batch(index, nonfinite=True) for index in range(0, 200, 10)]
    assert make.check("nonfinite-input", make.process(more={"batches": batches}))[0] == "passed"
    assert make.check("nonfinite-input", make.process())[0] == "skipped"


def skipped(index: int, **more: Any) -> dict[str, Any]:
    return batch(index, trained=False, nonfinite=True, min=math.nan, max=math.nan, **more)


@pytest.mark.parametrize("loader", [0, None])
def test_batches_with_nan_that_the_loop_gives_up(make, loader) -> None:
    rows = [one | {"loader": loader} for step in range(0, 60, 2) for one in (skipped(step + 400), batch(step))]
    rows = [row | {"step": row["step"] % 400} for row in rows]
    process = make.process(make.steps(COUNT), more={"batches": rows}, events=GIVEN_UP)
    status, _, finding = make.check("nonfinite-input", process)
    assert (status, finding.severity, finding.confidence, finding.first_step) == ("fired", "warning", "certain", 11)
    assert "25 held NaN or Inf" in finding.summary
    everything = {finding.rule: finding for finding in diagnose(make.run(process)).findings}
    assert everything["loss-nonfinite"].caused_by == "nonfinite-input"
    one = make.process(make.steps(COUNT), more={"batches": [batch(3), skipped(10)]}, events=GIVEN_UP[:1])
    finding = make.check("nonfinite-input", one)[2]
    assert (finding.severity, finding.confidence) == ("info", "likely"), "one stray sample"


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([10, 13, 17, 24, 30], "fired"),
        ([10, 20, 30, 40, 50], "passed"),  # a validation that is called as in training
        ([10, 13], "passed"),
    ],
)
def test_batches_that_are_given_up_beside_a_loss_that_is_written_out(make, steps: list[int], status: str) -> None:
    """No loss was seen: the model was called as in training, and no backward followed."""
    count = len(steps)
    evals = make.evals(count) | {"after_step": steps, "grad_mode": [2] * count, "model_in_train": [True] * count}
    rows = [*(batch(at) for at in range(9)), *(skipped(at, batch=50 + n) for n, at in enumerate(steps))]
    answer = make.check("nonfinite-input", make.process(make.steps(COUNT), evals=evals, more={"batches": rows}))
    assert answer[0] == status
    if status == "fired":
        assert answer[2].confidence == "likely"
        assert "no number" not in answer[2].summary


@pytest.mark.parametrize(
    ("rows", "events"),
    [
        ([batch(3), skipped(10)], []),  # evaluated
        ([batch(3), skipped(10, shape="64x8")], GIVEN_UP),  # evaluated, in a loop that gives batches up
        ([batch(3), skipped(5)], GIVEN_UP),  # after another step
        ([batch(3, nonfinite=True), batch(4), skipped(10)], GIVEN_UP),  # the script copes with it
        ([batch(3), skipped(10), *(skipped(i) | {"nonfinite": False} for i in (11, 12))], GIVEN_UP),  # another cause
    ],
)
def test_nan_in_batches_that_is_not_why_losses_are_given_up(make, rows, events) -> None:
    process = make.process(make.steps(COUNT), more={"batches": rows}, events=events)
    assert make.check("nonfinite-input", process)[0] == "passed"


def test_what_is_said_of_the_losses_around_a_broken_batch(make) -> None:
    """The first of all has none before it, and the last none after it."""
    row = {"time": 0.01, "step": 0, "batch": 0, "nonfinite": True}
    first = make.check("nonfinite-input", make.process(broken_at(make, 0), more={"batches": [batch(0) | row]}))[2]
    assert "The losses before were" not in first.summary
    assert "400 losses have not been finite since, this one included." in first.summary
    last = batch(COUNT - 1, nonfinite=True)
    last = make.check("nonfinite-input", make.process(broken_at(make, COUNT - 1), more={"batches": [last]}))[2]
    assert last.summary.endswith("was not finite. The losses before were.")


@pytest.mark.parametrize(
    ("fields", "loop", "shown"),
    [
        (("0", "1"), "for x, y in loader:", "torch.isfinite(x).reshape(len(x), -1)"),
        (("0", "1"), "for batch in loader:", "dataset[at][0]"),
        (("image", "label"), "for batch in loader:", 'dataset[at]["image"]'),
        (("image", "label"), "trainer.train()", 'dataset[at]["image"]'),
        (("0",), "trainer.train()", "torch.isfinite(inputs)"),  # a tensor, or a tuple of one
    ],
)
def test_samples_are_left_out_of_what_the_loop_names(make, fields: tuple[str, ...], loop: str, shown: str) -> None:
    """A batch that is a mapping, or a tuple under one name, is no tensor; a trainer has no loop to change."""
    rows = [batch(100, field=field, nonfinite=field == fields[0]) for field in fields]
    sites = [{"site": 2, "role": "step" if "train()" in loop else "loader", "file": "t.py", "line": 30,
              "function": "main", "source": loop}]  # fmt: skip
    loaders = [{"loader": 0, "dataset": "Curves", "site": 2}]
    process = make.process(broken_at(make, 100), sites=sites, loaders=loaders, more={"batches": rows})
    assert shown in make.check("nonfinite-input", process)[2].fix_code


def prepared_by(
    sites: list[dict[str, Any]], name: str, call: str = "train", role: str = "data"
) -> list[dict[str, Any]]:
    """A line in a function, which another line calls: by default the one that makes the data."""
    source = f"{call} = {name}(x)"
    called = {"site": 8, "role": role, "file": "train.py", "line": 40, "function": "main", "source": source}
    return [sites[0] | {"function": name}, called | {"excerpt": f"    {source}", "excerpt_line": 40}]


LOGGED = """def prepared(kwh):
    # {before}
    {line}
    return logged"""


@pytest.mark.parametrize(
    ("line", "least", "code"),
    [
        ("logged = torch.log(kwh)", -math.inf, "logged = torch.log(kwh.clamp_min(1e-6))"),
        ("logged = np.log10(a * kwh)", -math.inf, "logged = np.log10(np.maximum(a * kwh, 1e-6))"),
        ("logged = (kwh.log() - mean) / std", -math.inf, "logged = (kwh.clamp_min(1e-6).log() - mean) / std"),
        ("logged = torch.log(kwh)", math.nan, ""),  # of what is below 0, or of another origin
        ("logged = torch.log(kwh + 1e-6)", -math.inf, ""),
        ("logged = kwh / total", -math.inf, ""),
        ("logged = math.log(kwh)", -math.inf, ""),  # raises an error at 0
        ("self.log('kwh', kwh)", -math.inf, ""),
    ],
)
def test_minus_infinity_in_a_batch_comes_out_of_a_logarithm(make, line: str, least: float, code: str) -> None:
    rows = [batch(index, nonfinite=index == 100, min=least if index == 100 else 0.0, max=3.0) for index in (96, 100)]
    sites = prepared_by(sites_of(LOGGED.format(before="", line=line), singular=line), "prepared")
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    own = {"site": 2, "role": "loader", "file": "t.py", "line": 30, "function": "main", "source": "for x, y in loader:"}
    read = own | {"site": 3, "role": "dataset", "line": 60, "function": "__getitem__", "source": "return self.x[i]"}
    process = make.process(broken_at(make, 100), sites=[*sites, own, read], loaders=[loader], more={"batches": rows})
    finding = make.check("nonfinite-input", process)[2]
    assert finding.location.line == (3 if code else 60)
    assert ("which is minus infinity where that is 0" in finding.fix) == bool(code)
    assert finding.fix_code.endswith(code or "x, y = x[good], y[good]")
    assert ("# right below line 30" in finding.fix_code) == (not code)
    assert ("All that is not finite in it is minus infinity" in finding.summary) == bool(code)


@pytest.mark.parametrize("called", [{}, {"call": "loss", "role": "loss"}, {"call": "z", "role": "training-call"}, None])
def test_a_spread_or_a_logarithm_in_what_a_step_calls_prepares_no_batch(make, called: dict[str, str] | None) -> None:
    """As a loss that scales its vectors does. Of a function that nothing calls it is not known."""
    rows = [batch(100, nonfinite=True, min=math.nan)]
    line = "z / z.norm(dim=1, keepdim=True)"
    sites = sites_of(SPREAD.format(std="z", line=line), singular=line)
    sites = [sites[0] | {"function": "contrast"}] if called is None else prepared_by(sites, "contrast", **called)
    own = {"site": 2, "role": "loader", "file": "t.py", "line": 30, "function": "main", "source": "for x, y in loader:"}
    read = own | {"site": 3, "role": "dataset", "line": 60, "function": "__getitem__", "source": "return self.x[i]"}
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    process = make.process(broken_at(make, 100), sites=[*sites, own, read], loaders=[loader], more={"batches": rows})
    assert make.check("nonfinite-input", process)[2].location.line == (3 if called == {} else 60)


def test_the_logarithm_of_a_model_or_of_the_loop_prepares_no_batch(make) -> None:
    row = batch(100, nonfinite=True, min=-math.inf, max=3.0)
    line = "scale = torch.log(base)"
    sites = sites_of(f"class Net(nn.Module):\n    def __init__(self, base):\n        {line}", singular=line)
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    process = make.process(broken_at(make, 100), sites=sites, loaders=[loader], more={"batches": [row]})
    assert "minus infinity" not in make.check("nonfinite-input", process)[2].fix


READ = """class Windows(Dataset):
    def __getitem__(self, i):
        window = self.series[i : i + 54]
        past = {past}
        z = (window - past.mean()) / past.std()
        return z[:48], z[48:]"""


@pytest.mark.parametrize(
    ("past", "other", "said"),
    [
        ("window[:48]", math.nan, "add an epsilon"),
        ("window[:48]", -math.inf, "an epsilon would make these values huge"),
        ("window[:48]", 0.1, ""),  # what is not finite in this field is its largest value alone, or came otherwise
        ("self", math.nan, ""),  # of all samples
    ],
)
def test_a_sample_that_is_read_is_divided_by_its_own_spread(make, past: str, other: float, said: str) -> None:
    rows = [batch(100, nonfinite=True, min=one, max=one, field=str(at)) for at, one in enumerate((math.nan, other))]
    sites = sites_of(READ.format(past=past), singular="z = (window", dataset="def __getitem__")
    sites = [row | {"function": "__getitem__", "site": row["site"] + 10} for row in sites]
    own = {"site": 2, "role": "loader", "file": "t.py", "line": 30, "function": "main", "source": "for x, y in loader:"}
    loader = {"loader": 0, "dataset": "Windows", "site": 2, "read_by": 12}
    process = make.process(broken_at(make, 100), sites=[*sites, own], loaders=[loader], more={"batches": rows})
    finding = make.check("nonfinite-input", process)[2]
    assert ("divides by each sample's own std" in finding.fix) is bool(said)
    assert said in finding.fix
    assert ("(past.std() + 1e-6)" in finding.fix_code) is ("add" in said)


def test_steps_between_two_broken_batches_that_the_weights_survived_are_not_lost(make) -> None:
    losses = make.steps(COUNT)
    losses |= {"loss": [math.nan if index == 100 or index >= 300 else one for index, one in enumerate(losses["loss"])]}
    process = make.process(losses, more={"batches": [batch(100, nonfinite=True)]})
    assert make.check("nonfinite-input", process)[2].cost.share == pytest.approx(0.25, abs=0.02)


SPREAD = """def standardised(x):
    std = {std}
    return {line}"""


@pytest.mark.parametrize(
    ("std", "line", "said"),
    [
        (
            "x.std(axis=1, keepdims=True)",
            "(x - mean) / std",
            "sample's own std, which is 0 where all values that it is taken of are eq",
        ),
        ("x", "x / x.sum(-1, keepdim=True)", "sample's own sum, which is 0 where all values that it is taken of are 0"),
        ("x.std(axis=0, keepdims=True)", "(x - mean) / std", ""),  # of each column, and so of all samples
        ("x.std()", "(x - mean) / std", ""),
        ("x.std(axis=1, keepdims=True)", "(x - mean) / (std + 1e-6)", ""),
        ("x.std(axis=1, keepdims=True)", "np.sqrt(x) / std", ""),  # which of the two is not known
    ],
)
def test_a_few_samples_that_are_nan_were_divided_by_a_spread_of_their_own(make, std: str, line: str, said: str) -> None:
    rows = [batch(index, nonfinite=index == 100, min=math.nan if index == 100 else 0.0) for index in (96, 100)]
    sites = prepared_by(sites_of(SPREAD.format(std=std, line=line), **{"singular-array": line}), "standardised")
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    own = {"site": 2, "role": "loader", "file": "t.py", "line": 30, "function": "main", "source": "for x, y in loader:"}
    read = own | {"site": 3, "role": "dataset", "line": 60, "function": "__getitem__", "source": "return self.x[i]"}
    process = make.process(broken_at(make, 100), sites=[*sites, own, read], loaders=[loader], more={"batches": rows})
    finding = make.check("nonfinite-input", process)[2]
    assert finding.location.line == (3 if said else 60)
    assert said in finding.fix
    assert ("+ 1e-6)" in finding.fix_code) == bool(said)
