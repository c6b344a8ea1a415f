"""Accumulation, classes and lengths where batches come from slices, generators or a framework's own loader."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.computed.optimization.style import acts
from tracelyze.analyzers.rules.data.batch_dimension_mismatch import lone_rows
from tracelyze.analyzers.script.editing import own_expressions
from tracelyze.diagnosis import Exit
from tracelyze.testing import SITES

COUNT = 400
BY_HAND = {"loader": [None] * COUNT, "loader_batches": [None] * COUNT}
FOUR = BY_HAND | {"backwards": [4] * COUNT, "microbatches": [4] * COUNT}


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        ("clip-per-microbatch", {"clips": [4] * COUNT, "clip_max_norm": [1.0] * COUNT}),
        ("unscaled-accumulation", {"loss_divisor": [1.0] * COUNT}),
        ("discarded-microbatches", {"grads_discarded": [8] * COUNT, "grads_cleared": [0] * COUNT}),
        (
            "irregular-accumulation",
            {
                "loss_divisor": [4.0] * COUNT,
                "backwards": [7 if index % 10 == 0 else 4 for index in range(COUNT)],
                "microbatches": [7 if index % 10 == 0 else 4 for index in range(COUNT)],
                "grads_discarded": [0] * COUNT,
            },
        ),
    ],
)
def test_accumulation_without_a_loader(rule: str, columns: dict[str, Any], make) -> None:
    assert make.check(rule, make.process(make.steps() | FOUR | columns))[0] == "fired"
    one = {"microbatches": [1] * COUNT}  # several losses of one batch, or several passes over it
    assert make.check(rule, make.process(make.steps() | FOUR | columns | one))[0] == "skipped"
    tasks = [  # a loss of its own for each of several inputs
        {"site": 1, "role": "backward", "file": "t.py", "line": 41, "source": "loss_a.backward()"},
        {"site": 2, "role": "backward", "file": "t.py", "line": 44, "source": "loss_b.backward()"},
    ]
    assert make.check(rule, make.process(make.steps() | FOUR | columns, sites=tasks))[0] == "skipped"


def passes(count: int, forwards: int, samples: int, loader: int | None = None) -> dict[str, Any]:
    at = np.linspace(0, COUNT, count).astype(int).tolist()
    return {
        "after_step": at,
        "trained": [True] * count,
        "forwards": [forwards] * count,
        "losses": [0] * count,
        "samples": [samples] * count,
        "loader": [loader] * count,
    }


def test_a_model_that_acts_is_told_from_one_that_is_measured(make) -> None:
    steps = make.steps()  # batches of 32
    assert acts(make.process(steps, evals=passes(400, 1, 1))), "an action before every step"
    assert acts(make.process(steps, evals=passes(20, 128, 128 * 8))), "rollouts of eight environments"
    classes = {"loss_calls": [{"function": "cross_entropy", "training": True, "site": 1}]}
    assert not acts(make.process(steps, evals=passes(400, 1, 1), more=classes)), "a loss over classes, sample by sample"
    assert not acts(make.process(steps, evals=passes(200, 1, 32))), "the accuracy of the batch"
    assert not acts(make.process(steps, evals=passes(20, 10, 1000))), "the accuracy of a test set, in slices"
    assert not acts(make.process(steps, evals=passes(20, 128, 128, loader=1))), "a test set, sample by sample"


def targets(**row: Any) -> list[dict[str, Any]]:
    return [
        {"step": index, "loader": 0, "epoch": 0, "batch": index, "trained": True, "field": "1", "dtype": "int64",
         "shape": "32"} | row
        for index in range(20)
    ]  # fmt: skip


def test_one_class_that_is_nearly_all(make) -> None:
    rows = targets(classes='{"0": 31, "1": 1}')
    status, _, finding = make.check("class-imbalance", make.process(more={"batches": rows}))
    assert (status, finding.severity, finding.confidence) == ("fired", "info", "certain")
    binary = {"loss_calls": [{"function": "binary_cross_entropy_with_logits", "training": True, "site": 1}]}
    rows = targets(dtype="float32", mean=1 / 32, zeros=31 / 32, min=0.0, max=1.0)
    assert make.check("class-imbalance", make.process(more=binary | {"batches": rows}))[0] == "fired"
    assert make.check("class-imbalance", make.process(more={"batches": rows}))[0] == "skipped", "numbers, no classes"


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ({"function": "cross_entropy", "target_shape": "32", "target_integer": True}, "fired"),
        ({"function": "cross_entropy", "target_shape": "32x10", "target_integer": False}, "fired"),  # smoothed
        ({"function": "cross_entropy", "target_shape": None}, "fired"),  # older recordings
        ({"function": "cross_entropy", "target_shape": "1536", "target_integer": True}, "skipped"),  # tokens; lengths
        ({"function": "cross_entropy", "target_shape": "32x48", "target_integer": True}, "skipped"),
        ({"function": "mse_loss", "target_shape": "32", "target_integer": False}, "skipped"),  # numbers of samples
    ],
)
def test_integers_that_no_loss_takes_for_classes(make, call: dict[str, Any], status: str) -> None:
    rows = targets(classes='{"7": 31, "1": 1}')
    calls = [{"training": True, "site": 1, "step": 1, **call}]
    assert make.check("class-imbalance", make.process(more={"batches": rows, "loss_calls": calls}))[0] == status


def test_classes_that_are_uneven_as_usual(make) -> None:
    uneven = targets(classes='{"0": 24, "1": 6, "2": 2}')
    assert make.check("class-imbalance", make.process(more={"batches": uneven}))[0] == "passed"
    one = targets(classes='{"0": 32}')
    assert make.check("class-imbalance", make.process(more={"batches": one}))[0] == "skipped"
    assert make.check("class-imbalance", make.process())[0] == "skipped"


def lengths(**row: Any) -> list[dict[str, Any]]:
    """Looks at batches of padded sequences, with a field for their lengths."""
    return [
        look
        for one in targets(field="2", classes='{"3": 2, "7": 30}', **row)
        for look in (one | {"field": "0", "shape": "32x7", "classes": None}, one)
    ]


def test_lengths_of_sequences_are_no_classes(make) -> None:
    tags = {"function": "cross_entropy", "training": True, "site": 1, "input_shape": "224x5", "target_shape": "224",
            "target_integer": True, "target_lowest": 0.0, "target_highest": 4.0}  # fmt: skip
    squares = {"function": "mse_loss", "training": True, "site": 1, "input_shape": "32", "target_shape": "32",
               "target_integer": False}  # fmt: skip
    two = tags | {"input_shape": "32x9", "target_shape": "32", "target_highest": 1.0}
    for call in (tags, squares, two, two | {"input_shape": "32x2", "target_lowest": None}, None):
        calls = {"loss_calls": [call | {"step": step} for step in (0, 5)]} if call else {}
        status, reason, _ = make.check("class-imbalance", make.process(more={"batches": lengths(), **calls}))
        assert status == "skipped", (call, reason)
    labels = targets(classes='{"0": 31, "1": 1}')
    calls = {"loss_calls": [two | {"step": step} for step in (0, 5)]}
    _, _, finding = make.check("class-imbalance", make.process(more={"batches": lengths() + labels, **calls}))
    assert "of class 0" in finding.summary


def called(share: float, pure: list[int], mixed: int) -> dict[str, Any]:
    """Calls of cross_entropy: batches of one class each, and others in which one of two classes makes up `share`."""
    row = {"function": "cross_entropy", "training": True, "site": 1, "target_shape": "50", "target_integer": True}
    one = [row | {"target_lowest": kind, "target_highest": kind, "target_varies": 0.0} for kind in pure]
    both = row | {"target_lowest": 0, "target_highest": 1, "target_varies": (2 * share * (1 - share)) ** 0.5}
    return {"loss_calls": [{"step": at} | call for at, call in enumerate([*one, *[both] * mixed])]}


@pytest.mark.parametrize(
    ("calls", "status"),
    [
        (called(0.96, [0] * 6, 12), "fired"),
        (called(0.6, [0] * 3, 12), "passed"),
        (called(0.96, [0] * 3 + [1] * 3, 12), "skipped"),  # in the order of the classes
        (called(0.96, [], 12), "skipped"),  # which of the two it is was not seen
        (called(0.96, [0] * 12, 0), "skipped"),  # one class: something else than classes
        (called(0.96, [0] * 3, 0), "skipped"),
    ],
)
def test_one_class_that_is_nearly_all_at_the_loss_alone(make, calls: dict[str, Any], status: str) -> None:
    """Batches that the loop cuts out of tensors: no field holds the targets, and the loss is given them."""
    found = make.check("class-imbalance", make.process(more=calls))
    assert found[0] == status
    if status == "fired":
        assert (found[2].confidence, "class 0" in found[2].summary) == ("likely", True)
        assert "CrossEntropyLoss(weight=" in found[2].fix_code, "no loader is known whose sampler could do it"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "0"),
        ({"answer": 1, "answer_same": 0.03}, "0"),  # the first sample is one of the few that get the other answer
        ({"answer": 1}, "1"),
        ({"input_shape": "100x5", "answer": 4}, "4"),
        ({"value": 0.64}, ""),  # up to nine of ten answers may be wrong
        ({"answer_same": 0.3, "input_shape": "100x5"}, ""),
        ({"answer": None, "answer_same": None}, ""),
        ({"reduction": "sum"}, ""),
        ({"ignored": 0.2}, ""),
        ({"target_varies": 0.0}, ""),  # one class: something else than classes
        ({"target_shape": "800", "input_shape": "800x2"}, ""),  # the first 64 of so many may be of the other class
    ],
)
def test_the_frequent_class_of_large_batches_by_what_is_answered(make, change: dict[str, Any], told: str) -> None:
    """None holds one class alone. The model answers it to all, and is right with most: the loss says so."""
    first = {"function": "cross_entropy", "training": True, "site": 1, "target_integer": True, "reduction": "mean",
             "input_shape": "100x2", "target_shape": "100", "target_lowest": 0, "target_highest": 1, "ignored": 0.0,
             "target_varies": 0.25, "answer": 1, "answer_same": 0.7, "value": 0.9}  # fmt: skip
    late = first | {"answer": 0, "answer_same": 1.0, "value": 0.12} | change
    calls = [first | {"step": at} for at in range(20)] + [late | {"step": at} for at in (150, 210, 300, 390)]
    status, _, finding = make.check("class-imbalance", make.process(more={"loss_calls": calls}))
    assert status == ("fired" if told else "skipped")
    assert not told or (finding.confidence, f"at least 94% are of class {told}" in finding.summary) == ("likely", True)
    calls[-1] |= {"answer": 1 - int(told or 0), "answer_same": 1.0}
    assert make.check("class-imbalance", make.process(more={"loss_calls": calls}))[0] == "skipped", "no longer the same"


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        ([1.0, 1.0, 0.0], True),
        ([0.0], False),  # one class: something else than classes
        ([1.0, 0.5, 0.3], False),  # fractions are no classes
        ([1.0, 0.97, 0.0], False),
        ([1.0] * 20, False),  # uneven as usual
        ([2.0, 1.0], False),
    ],
)
def test_zeros_and_ones_that_a_binary_loss_is_given_without_a_loader(make, targets: list[float], told: bool) -> None:
    given = np.array(targets + [0.0] * (64 - len(targets)))
    call = {"function": "binary_cross_entropy_with_logits", "training": True, "site": 1, "target_integer": False,
            "reduction": "mean", "input_shape": "64x1", "target_shape": "64x1", "target_lowest": given.min(),
            "target_highest": given.max(), "ignored": None, "target_varies": float(given.astype("float32").std()),
            "answer": 0, "answer_same": 1.0, "value": 0.15}  # fmt: skip
    process = make.process(more={"loss_calls": [call | {"step": at} for at in (0, 9, 140, 150, 210, 300, 390)]})
    status, _, finding = make.check("class-imbalance", process)
    assert (status == "fired") == told
    assert not told or ("of class 0" in finding.summary and "pos_weight" in finding.fix_code)


def test_classes_that_the_loss_weighs_are_not_to_be_weighed_again(make) -> None:
    rows = targets(classes='{"0": 31, "1": 1}')
    for source, advised in (("loss = F.cross_entropy(z, y, weight=w)", False), ("loss = criterion(z, y)", True)):
        site = {"site": 1, "role": "loss", "file": "train.py", "line": 9, "function": "main", "source": source}
        finding = make.check("class-imbalance", make.process(sites=[site], more={"batches": rows}))[2]
        assert ("weight the classes" in finding.fix) == advised


def fields(rows: str, prints: bool = True, **more: str) -> list[dict[str, Any]]:
    shapes = {"x": "16x8", "site": rows, "y": "16x1"} | more
    return [
        {"step": index, "loader": 0, "epoch": 0, "batch": index, "trained": True, "field": name, "shape": shape,
         "print": f"{name}{index if prints else 0}"}
        for index in range(6)
        for name, shape in shapes.items()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sample"), [("w", {"w": [1.0, 2.0]}), ("1", (0, [1.0, 2.0])), ("w.a", {"w": {"a": 3}})]
)
def test_an_example_stacks_the_field_of_tuples_and_of_mappings(make, name: str, sample: Any) -> None:
    torch = pytest.importorskip("torch")
    rows = [row | {"field": name if row["field"] == "site" else row["field"]} for row in fields("1x4")]
    finding = make.check("batch-dimension-mismatch", make.process(more={"batches": rows}))[2]
    made: dict[str, Any] = {"torch": torch, "samples": [sample] * 5, "batch": {"w": {}}}
    exec(finding.fix_code, made)
    field = made.get("field", made["batch"]["w"])
    assert len(field["a"] if type(field) is dict else field) == 5


def test_a_field_with_one_row_for_all_samples(make) -> None:
    rule = "batch-dimension-mismatch"
    status, _, finding = make.check(rule, make.process(more={"batches": fields("1x4")}))
    assert (status, finding.confidence) == ("fired", "possible")
    assert "site" in finding.title
    assert make.check(rule, make.process(more={"batches": fields("16x4")}))[0] == "passed"
    assert make.check(rule, make.process(more={"batches": fields("1x4", prints=False)}))[0] == "passed", "shared by all"
    assert make.check(rule, make.process(more={"batches": fields("1")}))[0] == "passed", "a scalar"
    one = {"loaders": [{"loader": 0, "batch_size": 16}]}
    status, _, finding = make.check(rule, make.process(more={"batches": fields("1", y="16"), **one}))
    assert (status, finding.severity) == ("fired", "info"), "it may be meant for the whole batch"
    assert make.check(rule, make.process(more={"batches": fields("1", prints=False), **one}))[0] == "passed"
    single = fields("1", x="1x16x8", y="16")  # a sequence, and a target for each of its steps
    assert (
        make.check(rule, make.process(more={"batches": single, "loaders": [{"loader": 0, "batch_size": 1}]}))[0]
        != "fired"
    )
    packed = fields("1x4", x="512x8", y="31x1")  # rows of different kinds: packed sequences
    assert make.check(rule, make.process(more={"batches": packed}))[0] == "passed"
    assert make.check(rule, make.process())[0] == "skipped"


def scheduled(make: Any, name: str = "OneCycleLR", horizon: int = 2000, end: Exit | None = None, **more: Any) -> Any:
    row = {"step": COUNT, "scheduler": 0, "name": name, "optimizer": 0, "inner": False, "steps": COUNT,
           "optimizer_steps": COUNT, "horizon": horizon, "base_lr": 0.01} | more  # fmt: skip
    return make.check("stops-short", make.process(end=end, more={"schedules": [row]}))


def test_a_training_that_ends_before_its_schedule(make) -> None:
    status, _, finding = scheduled(make)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert finding.title == "The training ended after 20% of its schedule"
    assert "epochs * len(loader))" in finding.fix_code
    row = {"scheduler": 0, "name": "OneCycleLR", "optimizer": 0, "inner": False, "steps": COUNT, "horizon": 2000}
    accumulated = make.process(make.steps() | {"backwards": [4] * COUNT}, more={"schedules": [row]})
    code = make.check("stops-short", accumulated)[2].fix_code
    assert "epochs * (len(loader) // 4))" in code, "a schedule counts the steps of the optimizer"


def test_schedules_that_are_gone_through_or_longer_on_purpose(make) -> None:
    assert scheduled(make, horizon=COUNT)[0] == "passed"
    assert scheduled(make, horizon=450)[0] == "passed"
    status, reason, _ = scheduled(make, "CosineAnnealingLR")
    assert status == "skipped", "may be longer on purpose"
    assert reason.startswith(f"CosineAnnealingLR is made for 2,000 steps and came to {COUNT}; ")
    assert scheduled(make, end=Exit("killed", None))[0] == "skipped"
    assert scheduled(make, steps=20)[0] == "skipped", "its length counts epochs"
    evals = make.evals(6) | {"loss": [0.9, 0.7, 0.5, 0.6, 0.65, 0.7], "after_step": [60, 120, 180, 240, 300, 360]}
    row = {"scheduler": 0, "name": "OneCycleLR", "optimizer": 0, "inner": False, "steps": COUNT, "horizon": 2000}
    early = make.process(evals=evals, more={"schedules": [row]})
    assert make.check("stops-short", early)[0] == "passed", "validation had stopped to improve"
    assert make.check("stops-short", make.process())[0] == "skipped"


def looped(
    make: Any, planned: int, passes: int, last: int = COUNT, reads: str = "for batch in loader:", **more: Any
) -> tuple[str, Any]:
    """A loop written for `planned` epochs, `passes` passes over a loader of COUNT / passes batches, the last one fed to
    step `last`."""
    length = COUNT // passes
    steps = make.steps() | {
        "loader": [0] * COUNT,
        "loader_first": [step % length == 0 for step in range(COUNT)],
        "loader_batches": [int(step < last) for step in range(COUNT)],
    }
    events = [{"time": 1.0, "step": 1, "kind": "epochs-planned", "name": "fit", "value": float(planned)}]
    loaders = [{"loader": 0, "length": length, "iterable": False, "site": 77}]
    site = {"site": 77, "role": "loader", "file": "train.py", "line": 8, "function": "fit", "source": reads}
    more.setdefault("sites", [*SITES, site])
    more.setdefault("evals", make.evals(3) | {"loss": [0.9, 0.7, 0.8]})
    status, _, finding = make.check("stops-short", make.process(steps, loaders=loaders, events=events, **more))
    return status, finding


def test_a_loop_over_epochs_that_is_left_in_its_first(make) -> None:
    status, finding = looped(make, 30, 1)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert finding.title == "The loop ended after 1 epoch of 30"
    assert looped(make, 30, 5)[0] == "skipped", "five whole epochs: a target may have been reached"
    assert looped(make, 3, 1)[0] == "skipped", "a trial"
    assert looped(make, 1, 1)[0] == "skipped", "it was written for one"
    assert looped(make, 30, 1, last=COUNT // 2)[0] == "skipped", "batches that are kept and come again"
    assert looped(make, 30, 1, reads="batches = iter(loader)")[0] == "skipped", "epochs of some batches each"


def test_a_loop_without_a_loader_that_is_left_in_its_first_epoch(make) -> None:
    def left(batches: int, planned: int = 30) -> str:
        kinds = {"epochs-planned": planned, "batches-planned": batches}
        events = [{"time": 1.0, "step": 1, "kind": kind, "name": "fit", "value": float(n)} for kind, n in kinds.items()]
        steps = make.steps() | {"loader": [None] * COUNT}
        return str(make.check("stops-short", make.process(steps, events=events))[0])

    assert left(COUNT) == "fired"
    assert left(COUNT, planned=3) == "skipped", "a trial"
    assert left(COUNT // 2) == "skipped", "two whole epochs: a target may have been reached"
    assert left(COUNT + 1) == "skipped", "the epoch is not whole: steps are counted"


@pytest.mark.parametrize(("after", "went_on"), [([400] * 6, True), ([400], False), ([100, 200, 300], False)])
@pytest.mark.parametrize("kept", ["batches = (move(one) for one in loader)", "for one in loader:"])
def test_a_generator_that_all_epochs_share(make, after: list[int], went_on: bool, kept: str) -> None:
    """The loop may have gone on, with nothing to give: validations after the last step say so."""
    evals = make.evals(len(after)) | {"after_step": after}
    loader = {"site": 77, "role": "loader", "file": "train.py", "line": 3, "function": "noisy", "source": kept}
    maker = loader | {"site": 78, "role": "batches", "line": 2}
    sites = [*SITES, loader, *([] if "batches" in kept else [maker])]
    status, finding = looped(make, 8, 1, reads=kept, sites=sites, evals=evals)
    assert (status, finding.severity, finding.confidence, finding.location.line) == ("fired", "warning", "likely", 3)
    assert ("had no batch" in finding.title) is went_on
    assert "It was left" not in finding.summary
    assert ("or a return or a break left it" in finding.summary) is not went_on


def test_a_loop_that_is_left_while_each_validation_is_the_best(make) -> None:
    evals = make.evals(5) | {"after_step": [80, 160, 240, 320, 400]}
    status, finding = looped(make, 30, 5, evals=evals | {"loss": [0.9, 0.8, 0.7, 0.6, 0.5]})
    assert (status, finding.severity) == ("fired", "info"), "or a target was reached"
    assert looped(make, 30, 5, evals=evals | {"loss": [0.9, 0.8, 0.7, 0.75, 0.8]})[0] == "skipped", "early stopping"


def test_a_loop_that_is_left_by_a_count_that_nothing_sets_back(make) -> None:
    evals = make.evals(5) | {"after_step": [80, 160, 240, 320, 400], "loss": [0.9, 0.95, 0.7, 0.6, 0.65]}
    line = {"site": 78, "role": "waits", "file": "train.py", "line": 20, "function": "fit", "source": "waited += 1"}
    reset = line | {"site": 79, "role": "waits-reset", "line": 18, "source": "best, waited = loss, 0"}
    loader = line | {"site": 77, "role": "loader", "line": 8, "source": "for batch in loader:"}
    status, finding = looped(make, 30, 5, evals=evals, sites=[*SITES, loader, line])
    assert (status, finding.severity, finding.location.line) == ("fired", "info", 20)
    assert looped(make, 30, 5, evals=evals, sites=[*SITES, loader, line, reset])[0] == "skipped"
    assert looped(make, 6, 5, evals=evals, sites=[*SITES, loader, line])[0] == "skipped", "nearly all epochs"


def asked_again(make: Any, steps: list[int], **more: Any) -> tuple[str, Any]:
    rows = [{"time": 1.0 * n, "step": step, "kind": "exhausted-again", "name": "0"} for n, step in enumerate(steps)]
    status, _, finding = make.check("stops-short", make.process(events=rows, **more))
    return status, finding


def test_epochs_that_share_an_iterator(make) -> None:
    status, finding = asked_again(make, [COUNT] * 7)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert finding.title == "7 epochs had no batch: the iterator over the loader was used up"
    assert "for batch in loader" not in finding.fix_code, "the iterator may do more than the loader"
    assert asked_again(make, [COUNT])[0] == "skipped", "asked once more"
    assert asked_again(make, [100, 200, COUNT, COUNT])[0] == "skipped", "the training went on after it was asked"
    assert asked_again(make, [COUNT] * 7, end=Exit("killed", None))[0] == "skipped"


@pytest.mark.parametrize(
    ("source", "severity", "confidence"),
    [
        ('site = samples[0]["site"][None]', "critical", "likely"),
        ('first = samples[0]["x"].shape', "warning", "possible"),
        ("def collate(samples):", "warning", "possible"),
    ],
)
def test_a_collate_fn_that_takes_the_first_sample_alone(make, source, severity, confidence) -> None:
    loaders = [{"loader": 0, "batch_size": 16, "collated_by": 5}]
    line = {"site": 5, "role": "collate", "file": "data.py", "line": 12, "function": "collate", "source": source}
    process = make.process(loaders=loaders, more={"batches": fields("1x4"), "sites": [line]})
    finding = make.check("batch-dimension-mismatch", process)[2]
    assert (finding.severity, finding.confidence, finding.location.line) == (severity, confidence, 12)


@pytest.mark.parametrize(
    ("taken", "rows"),
    [
        ('samples[0]["s"].view(1, 1)', ".view(-1, 1)"),
        ('samples[0]["s"].reshape(1, 3, n)', ".reshape(-1, 3, n)"),
        ('samples[0]["s"].view(1, -1)', ""),  # of what is not known
        ('samples[0]["s"][None]', ""),
    ],
)
def test_a_row_keeps_its_shape(make, taken: str, rows: str) -> None:
    line = {"site": 5, "role": "collate", "file": "data.py", "line": 12, "function": "collate"}
    line |= {"source": f"site = {taken}", "excerpt": f"    site = {taken}", "excerpt_line": 12}
    process = make.process(sites=[line])
    made = own_expressions.stacked(process, process.site(5))
    assert made == f'site = torch.stack([torch.as_tensor(sample["s"]) for sample in samples]){rows}'


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ('site = torch.tensor([samples[0]["site"]])', 'site = torch.tensor([sample["site"] for sample in samples])'),
        ('site = vectors[samples[0]["site"]]', None),  # looked up, and no list
        ("pair = [samples[0].x], [samples[0].y]", None),
    ],
)
def test_a_list_of_the_first_sample_is_made_one_of_all(make, source: str, changed: str | None) -> None:
    line = {"site": 5, "role": "collate", "file": "data.py", "line": 12, "function": "collate", "source": source}
    process = make.process(sites=[line | {"excerpt": f"    {source}", "excerpt_line": 12}])
    edit = lone_rows.of_all(process, process.site(5))
    assert (edit.added if edit else None) == ([f"    {changed}"] if changed else None)


ONE_ROW = {"loaders": [{"loader": 0, "batch_size": 16, "collated_by": 30}]}
KEPT = "def join(rows):\n    for x, site, y in rows:\n        sites = torch.tensor([site])\n        ys.append(y)"
KEPT_AT = {"site": 30, "role": "collate", "file": "a.py", "line": 3, "function": "join", "source": KEPT.split("\n")[2]}


@pytest.mark.parametrize(
    ("seen", "last"),
    [
        ({}, True),
        ({"looks": 2, "last": 2}, False),
        ({"last": 4}, False),
        ({"extreme": 5}, False),  # the longest of samples that are sorted by length
        ({"chance": -2.0}, False),  # of two sites
    ],
)
def test_the_row_of_the_last_sample_for_all_of_them(make, seen: dict[str, float], last: bool) -> None:
    counts = {"looks": 5, "last": 5, "first": 0, "extreme": 1, "chance": -6.0} | seen
    event = {"kind": "lone-row", "name": "site", "value": 0.0, "text": json.dumps(counts), "step": 400}
    steps = make.steps() | {"loader": [0] * 400}
    sites = [KEPT_AT | {"excerpt": KEPT, "excerpt_line": 1}]
    process = make.process(steps, sites=sites, events=[event], more={"batches": fields("1", y="16")}, **ONE_ROW)
    finding = make.check("batch-dimension-mismatch", process)[2]
    assert (finding.severity, finding.confidence) == (("warning", "likely") if last else ("info", "possible"))
    assert ("that of the last sample" in finding.summary) is last
    if last:
        assert finding.location.line == 3
        made = "sites = torch.stack([torch.as_tensor(sample['site']) for sample in rows])"
        assert finding.fix_code.startswith(made)


@pytest.mark.parametrize(
    ("line", "added"),
    [
        ('"site": torch.tensor([rows[0]["site"]]),', '"site": torch.tensor([sample["site"] for sample in rows]),'),
        ("site = torch.tensor([sample[0].site])", "site = torch.tensor([one.site for one in sample])"),
        ('"site": rows[0]["site"][None],', None),
        ('"domain": torch.tensor([rows[0]["domain"]]),', None),  # another field
    ],
)
def test_the_row_of_the_first_sample_for_all_of_them(make, line: str, added: str | None) -> None:
    counts = {"looks": 5, "last": 0, "first": 5, "extreme": 1, "chance": -6.0}
    event = {"kind": "lone-row", "name": "site", "value": 0.0, "step": 400}
    text = f"def join(rows):\n    batch = {{\n        {line}"
    site = KEPT_AT | {"source": line, "excerpt": text, "excerpt_line": 1}
    steps, more = make.steps() | {"loader": [0] * 400}, {"batches": fields("1", y="16")}

    def found(**other: float) -> Any:
        events = [event | {"text": json.dumps(counts | other)}]
        return make.check(
            "batch-dimension-mismatch", make.process(steps, sites=[site], events=events, more=more, **ONE_ROW)
        )[2]

    finding = found()
    assert finding.title.endswith("one row for 16 samples: the first one's")
    assert "that of the first sample" in finding.summary
    assert finding.severity == ("critical" if "[0]" in line and "domain" not in line else "warning")
    assert ([one.strip() for one in finding.diff.added] if finding.diff else None) == ([added] if added else None)
    for other in ({"first": 4}, {"extreme": 5}, {"chance": -2.0}):  # not always; the longest one's; perhaps by chance
        assert (found(**other).severity, found(**other).diff) == ("info", None)


BELOW = """\
    def __call__(self, rows):
        ys, sites = [], []
        for row in rows:
            ys.append(row["y"])
        sites.append(row["site"])
        return {"y": torch.tensor(ys), "site": torch.tensor(sites)}"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BELOW, 5),
        (BELOW.replace('sites.append(row["site"])', 'sites.append(row["origin"])'), 1),
        (BELOW.replace('sites.append(row["site"])', 'sites.append(max(row["site"] for row in rows))'), 1),
        (BELOW.replace('        sites.append(row["site"])\n', ""), 1),
    ],
)
def test_a_field_that_is_collected_below_the_loop(make, text: str, line: int) -> None:
    counts = {"looks": 5, "last": 5, "first": 0, "extreme": 1, "chance": -6.0}
    event = {"kind": "lone-row", "name": "site", "value": 0.0, "text": json.dumps(counts), "step": 400}
    site = KEPT_AT | {"line": 1, "source": text.split("\n", maxsplit=1)[0].strip(), "excerpt": text, "excerpt_line": 1}
    steps, more = make.steps() | {"loader": [0] * 400}, {"batches": fields("1", y="16")}
    process = make.process(steps, sites=[site], events=[event], more=more, **ONE_ROW)
    finding = make.check("batch-dimension-mismatch", process)[2]
    assert finding.location.line == line
    if line == 5:
        assert finding.diff.added == ['            sites.append(row["site"])']
        assert "Move line 5 into the loop over the samples (line 3)" in finding.fix


LEFT = """\
def join(rows):
    xs, ys = [], []
    for x, site, y in rows:
        xs.append(x)
        ys.append(y)
    return {
        "x": torch.stack(xs),
        "site": torch.tensor([site]),
        "y": torch.tensor(ys),
    }"""


@pytest.mark.parametrize(
    ("text", "added"),
    [
        (LEFT, '"site": torch.tensor([site for x, site, y in rows]),'),
        (
            LEFT.replace("for x, site, y in rows", "for n, (x, site, y) in enumerate(rows)"),
            '"site": torch.tensor([site for n, (x, site, y) in enumerate(rows)]),',
        ),
        (
            LEFT.replace("x, site, y", "row").replace("[site]", "[row['site']]"),
            """"site": torch.tensor([row['site'] for row in rows]),""",
        ),
        (LEFT.replace("[site]", "[default]"), None),
        (LEFT.replace("[site]", "sites"), None),
    ],
)
def test_a_variable_that_a_loop_over_samples_left(make, text: str, added: str | None) -> None:
    counts = {"looks": 5, "last": 5, "first": 0, "extreme": 1, "chance": -6.0}
    event = {"kind": "lone-row", "name": "site", "value": 0.0, "text": json.dumps(counts), "step": 400}
    site = KEPT_AT | {"line": 1, "source": text.split("\n", maxsplit=1)[0].strip(), "excerpt": text, "excerpt_line": 1}
    steps, more = make.steps() | {"loader": [0] * 400}, {"batches": fields("1", y="16")}
    process = make.process(steps, sites=[site], events=[event], more=more, **ONE_ROW)
    finding = make.check("batch-dimension-mismatch", process)[2]
    assert ([one.strip() for one in finding.diff.added] if finding.diff else None) == ([added] if added else None)
    assert finding.location.line == (8 if added else 1)
    event["text"] = "{}"
    unseen = make.check("batch-dimension-mismatch", make.process(steps, sites=[site], more=more, **ONE_ROW))[2]
    every = "batch['site'] = torch.stack([torch.as_tensor(site) for x, site, y in rows])"
    assert (every in unseen.fix_code) is ("for x, site, y in rows" in text)
