"""What a finding about the whole process says of steps, times and lines is that of the training it is about."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.evidence import timing

TWO = [{"optimizer": 0, "name": "AdamW", "site": 1, "backward_site": 2}, {"optimizer": 1, "name": "Adam", "site": 3}]
LINKS = [{"step": 1, "optimizer": 0, "model": 0}, {"step": 201, "optimizer": 1, "model": 1}]


def line(number: int, role: str, at: int, function: str, file: str = "train.py") -> dict[str, Any]:
    return {"site": number, "role": role, "file": file, "line": at, "function": function, "source": f"{role}()"}


def steps(make: Any, names: tuple[str, str] = ("AdamW", "Adam")) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """200 steps of one optimizer and then 200 of another one, each numbered from 1, one a second."""
    numbers = [float(step) for step in range(1, 201)]
    columns = make.steps() | {"optimizer": [0] * 200 + [1] * 200, "step": numbers + numbers}
    columns |= {"time": [float(at) for at in range(1, 401)], "seconds": [1.0] * 400}
    return columns, [one | {"name": name} for one, name in zip(TWO, names, strict=True)]


def compared(done: int) -> dict[str, Any]:
    """A call of a loss that compares a column with a row, after so many steps of the process."""
    shapes = {"input_shape": "32x1", "target_shape": "32", "target_integer": False, "made_by": "Addmm"}
    return {"step": done, "function": "mse_loss", "site": 9, "training": True, "reduction": "mean", **shapes}


@pytest.mark.parametrize(
    ("done", "first", "second", "name"),
    [
        (range(220, 300, 10), 21, 221.0, "training 2 of 2"),
        (range(20, 100, 10), 21, 21.0, "training 1 of 2"),
        (range(20, 400, 10), 21, 21.0, ""),  # in both
    ],
)
def test_a_loss_call_of_one_training_of_two(make: Any, done: range, first: int, second: float, name: str) -> None:
    columns, optimizers = steps(make)
    calls = [compared(at) for at in done]
    process = make.process(columns, optimizers=optimizers, more={"links": LINKS, "loss_calls": calls})
    finding = make.check("loss-broadcast", process)[2]
    assert (finding.first_step, finding.first_second) == (first, second)
    assert finding.trainings == [name] * bool(name)
    assert finding.title.endswith(f"({name})") == bool(name)


def test_a_loss_call_of_the_only_training(make: Any) -> None:
    calls = [compared(at) for at in range(220, 300, 10)]
    finding = make.check("loss-broadcast", make.process(more={"loss_calls": calls}))[2]
    assert (finding.first_step, finding.trainings) == (221, [])


def test_tensors_that_the_optimizer_of_the_second_training_does_not_hold(make: Any) -> None:
    columns, optimizers = steps(make)
    reach = {"held": 8, "held_elements": 90, "missed": 2, "missed_elements": 9, "names": "head.weight, head.bias"}
    reach |= {"optimizer": None, "shared_model": 2, "fed_by_trained": 0, "short_lived": 0}
    rows = [reach | {"step": 200 + made, "steps": made} for made in (20, 100)]
    sites = [
        line(1, "step", 12, "pretrain"),
        line(2, "backward", 11, "pretrain"),
        line(3, "step", 32, "finetune"),
        line(4, "backward", 31, "finetune"),
    ]
    optimizers[1] |= {"backward_site": 2}  # lines are looked up now and then: this is that of the first training
    more = {"links": LINKS, "reach": rows}
    process = make.process(columns, optimizers=optimizers, sites=sites, more=more)
    finding = make.check("frozen-parameters", process)[2]
    assert finding.trainings == ["training 2 of 2"]
    assert (finding.first_second, finding.last_step) == (201.0, 200)
    assert finding.location.line == 31


@pytest.mark.parametrize(
    ("file", "function", "own", "found"),
    [
        ("other.py", "main", [], None),  # a framework's backward, of which no line is known
        ("other.py", "main", [line(4, "backward", 9, "main", "other.py")], 9),
        ("train.py", "finetune", [], None),
        ("train.py", "pretrain", [], 11),  # one function trains both
    ],
)
def test_the_backward_of_a_training_is_none_of_another_one(
    make: Any, file: str, function: str, own: list[dict[str, Any]], found: int | None
) -> None:
    columns, optimizers = steps(make)
    optimizers[1] |= {"backward_site": 2}
    sites = [line(1, "step", 12, "pretrain"), line(2, "backward", 11, "pretrain"), line(3, "step", 9, function, file)]
    process = make.process(columns, optimizers=optimizers, sites=sites + own, more={"links": LINKS})
    place = process.trainings[1].optimizations[0].backward_location
    assert (place.line if place is not None else None) == found


@pytest.mark.parametrize(("name", "status"), [("ByHand", "passed"), ("SGD", "fired")])
def test_how_long_the_last_update_by_hand_took_is_not_known(make: Any, name: str, status: str) -> None:
    """It is noticed at the next backward: that of another training, once its data are there."""
    columns, optimizers = steps(make, (name, "Adam"))
    columns |= {"seconds": [0.01] * 199 + [60.0] + [0.01] * 200, "loader_first": [0] * 400}
    columns |= {"time": [0.01 * at for at in range(1, 200)] + [62.0 + 0.01 * at for at in range(201)]}
    process = make.process(columns, evals={}, optimizers=optimizers, more={"links": LINKS})
    assert make.check("slow-steps", process)[0] == status
    lasted = process.trainings[1].steps["seconds"]
    assert lasted[-1] == 0.01, "of the last training, the end of the program tells it"


@pytest.mark.parametrize(("held_by", "severity"), [(1, "info"), (0, "critical")])
def test_a_part_that_is_asked_before_its_own_training(make: Any, held_by: int, severity: str) -> None:
    """No optimizer holds it as a model of its own: the passes with it say which one holds its parameters."""
    columns, optimizers = steps(make)
    passes = make.evals(2, 100) | {"after_step": [200, 300], "model": [2, 2], "optimizer": [held_by] * 2}
    passes |= {"trained": [True] * 2, "forwards": [4, 4], "losses": [4, 4]}
    unset = {"model": 2, "of": 2, "spectral": 0, "training": False}
    rows = [unset | {"step": 200, "modules": 2, "call": 1}, unset | {"step": 300, "modules": 0, "call": 2}]
    process = make.process(columns, evals=passes, optimizers=optimizers, more={"links": LINKS, "unset": rows})
    status, _, finding = make.check("unset-running-state", process)
    assert (finding.severity if status == "fired" else "info") == severity
    if severity == "critical":
        assert finding.summary.startswith("After step 200 ")
        assert (finding.first_step, finding.trainings) == (200, ["training 1 of 2"])


def test_a_model_whose_state_is_unset_late_in_a_later_training(make: Any) -> None:
    columns, optimizers = steps(make)
    passes = make.evals(2, 100) | {"after_step": [260, 300], "model": [1, 1], "optimizer": [1, 1], "losses": [4, 4]}
    unset = {"model": 1, "of": 2, "spectral": 0, "training": False, "modules": 2}
    rows = [unset | {"step": done, "call": 1} for done in (260, 300)]
    process = make.process(columns, evals=passes, optimizers=optimizers, more={"links": LINKS, "unset": rows})
    finding = make.check("unset-running-state", process)[2]
    assert finding.summary.startswith("After step 60 ")
    assert (finding.first_step, finding.first_second, finding.trainings) == (60, 260.0, ["training 2 of 2"])


def test_what_it_cost_is_a_share_of_its_own_time(make: Any) -> None:
    columns, optimizers = steps(make)
    columns |= {"grads_none": [0] * 200 + [8] * 200}
    process = make.process(columns, optimizers=optimizers, more={"links": LINKS})
    finding = make.check("zero-gradients", process)[2]
    assert finding.trainings == ["training 2 of 2"]
    assert finding.cost.of == "the time of this training"


@pytest.mark.parametrize(
    ("turns", "names"),
    [
        ([0] * 200 + [1] * 200, ["training 1 of 2", "training 2 of 2"]),
        ([0, 1] * 200, ["AdamW (optimizer 0)", "Adam (optimizer 1)"]),  # of one training
    ],
)
def test_an_optimizer_alone_in_its_training_is_called_by_that(make: Any, turns: list[int], names: list[str]) -> None:
    columns, optimizers = steps(make)
    links = LINKS if turns[1] == 0 else [{"step": 1, "optimizer": 0, "other": 1}]
    process = make.process(columns | {"optimizer": turns}, optimizers=optimizers, more={"links": links})
    assert [timing.training_of(one) for one in process.optimizations] == names
    assert [timing.training_of(one.optimizations[0]) for one in process.trainings if one.training] == [
        one for one in names if one.startswith("training")
    ]
