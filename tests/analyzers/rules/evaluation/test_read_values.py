"""validation-nonfinite, of losses that the script writes out and reads back."""

from __future__ import annotations

import math

import pytest

RULE = "validation-nonfinite"


def written(make, values, source="total += batch_loss.item()", steps=None, optimizers=None, **change):
    evals = make.evals() | {"losses": [0] * 4, "loss": [None] * 4, "reads": [5] * 4, "read_sum": values}
    sites = [{"site": 7, "role": "read-evaluated", "file": "train.py", "line": 40, "function": "evaluate",
              "source": source}]  # fmt: skip
    evals |= {"read_site": [7] * 4} | change
    return make.process(steps, evals=evals, optimizers=optimizers, more={"sites": sites})


@pytest.mark.parametrize(
    ("values", "source", "severity"),
    [
        ([1.0, math.nan, math.nan, math.nan], "total += batch_loss.item()", "critical"),
        ([1.0, math.inf, 1.0, 1.0], "val_loss = float(loss)", "critical"),
        ([math.nan] * 4, "score = ratio.item()", "warning"),
    ],
)
def test_a_written_loss_that_is_no_number(make, values, source, severity) -> None:
    status, _, finding = make.check(RULE, written(make, values, source))
    assert (status, finding.severity, finding.confidence) == ("fired", severity, "likely")
    assert finding.location.line == 40


@pytest.mark.parametrize(("samples", "line", "single"), [(257, 40, True), (256, 40, False), (257, 30, True)])
def test_what_a_framework_reads_is_computed_where_the_model_is_called(make, samples, line, single) -> None:
    sites = [
        {"site": 7, "role": "read-evaluated", "file": "train.py", "line": 40, "function": "fit", "source": "t.fit()"},
        {"site": 8, "role": "forward", "file": "train.py", "line": 12, "function": "validation_step", "source": "x"},
        {"site": 9, "role": "backward", "file": "train.py", "line": line, "function": "fit", "source": "trainer.fit()"},
    ]
    change = {"read_sum": [math.nan] * 4, "read_site": [7] * 4, "site": [8] * 4, "samples": [samples] * 4}
    evals = make.evals() | {"losses": [0] * 4, "loss": [None] * 4, "reads": [5] * 4, "loader": [0] * 4} | change
    loaders = [{"loader": 0, "batch_size": 32}]
    forwards = {"forwards": [-(-samples // 32)] * 4}
    process = make.process(evals=evals | forwards, more={"sites": sites, "loaders": loaders})
    finding = make.check(RULE, process)[2]
    assert finding.location.line == (12 if line == 40 else 40)
    assert ("single sample" in finding.summary) is single
    assert ("unbiased" in finding.fix_code) is single


@pytest.mark.parametrize(
    ("values", "source", "status"),
    [
        ([1.0] * 4, "total += batch_loss.item()", "passed"),
        ([math.inf] * 4, "psnr = 10 * torch.log10(1 / mean).item()", "skipped"),  # of pictures that are equal
        ([None] * 4, "total += batch_loss.item()", "skipped"),
    ],
)
def test_values_that_may_be_as_they_are(make, values, source, status) -> None:
    reads = [0 if value is None else 5 for value in values]
    assert make.check(RULE, written(make, values, source, reads=reads))[0] == status


def test_before_the_first_step_no_training_loss_is_known(make) -> None:
    finding = make.check(RULE, written(make, [math.nan] * 4, after_step=[0, 100, 200, 300]))[2]
    assert "first in the validation after step 0. Behind it may be" in finding.summary
    assert "training" not in finding.title


def test_of_two_optimizers_the_losses_before_a_validation_are_those_of_earlier_steps(make) -> None:
    """Each makes every second step: the losses of the longer one break behind step 150, not at its 150th."""
    steps = make.steps() | {"optimizer": [index % 2 for index in range(400)], "step": list(range(1, 401))}
    steps |= {"loss": [0.7] * 150 + [math.nan] * 250}
    both = [{"optimizer": 0, "name": "Adam"}, {"optimizer": 1, "name": "Adam"}]
    process = written(make, [math.nan] * 4, steps=steps, optimizers=both)
    status, _, finding = make.check(RULE, process)
    assert status == "fired"
    assert "The training loss was finite before it and after it" in finding.summary


@pytest.mark.parametrize("finite", [0, 30])
def test_training_is_no_number_either(make, finite: int) -> None:
    """From the first step on, or before the first validation, after step 100."""
    steps = make.steps() | {"loss": [0.7] * finite + [math.nan] * (400 - finite)}
    assert make.check(RULE, written(make, [math.nan] * 4, steps=steps))[0] != "fired"


FORWARD = """    def forward(self, h, padding):
        scores = self.score(h).masked_fill(padding.unsqueeze(-1), float("-inf"))
        share = scores.softmax(dim=1)"""


@pytest.mark.parametrize(
    ("text", "more", "named"),
    [
        (FORWARD, [], True),
        (FORWARD.replace('float("-inf")', "-torch.inf"), [], True),
        (FORWARD.replace('float("-inf")', "-1e9"), [], False),
        (FORWARD.replace("padding.unsqueeze(-1)", "self.later[:t, :t]"), [], False),  # causal: no row is masked whole
        (FORWARD, [("singular", "validate", 38)], False),  # it divides before the value is read
        (FORWARD, [("singular", "evaluate", 44)], True),  # behind that
        (FORWARD, [("singular", "main", 60), ("singular", "__init__", 8)], True),  # training divides, and is finite
    ],
)
def test_a_softmax_over_nothing_but_padding(make, text: str, more: list, named: bool) -> None:
    place = {"file": "train.py", "function": "forward", "excerpt": text, "excerpt_line": 20}
    sites = [
        {
            "site": 7,
            "role": "read-evaluated",
            "file": "train.py",
            "line": 40,
            "function": "evaluate",
            "source": "loss.item()",
        },
        {
            "site": 8,
            "role": "backward",
            "file": "train.py",
            "line": 61,
            "function": "main",
            "source": "loss.backward()",
        },
        place | {"site": 9, "role": "softmax", "line": 22, "source": text.split("\n")[2].strip()},
    ]
    for number, (role, function, line) in enumerate(more):
        sites.append({"site": 20 + number, "role": role, "file": "train.py", "line": line, "function": function})
    evals = make.evals() | {"losses": [0] * 4, "loss": [None] * 4, "reads": [5] * 4, "read_sum": [math.nan] * 4}
    process = make.process(evals=evals | {"read_site": [7] * 4}, more={"sites": sites})
    finding = make.check(RULE, process)[2]
    assert finding.location.line == (21 if named else 40)
    assert ("line 21 fills padding with -inf" in finding.summary) == named
    assert ("a logarithm of 0" in finding.summary) != named
    assert (finding.fix_code == "share = scores.softmax(dim=1).nan_to_num(0.0)") == named
