"""Processes that make several trainings: one after the other, interleaved, in threads. Each is recorded and judged."""

from __future__ import annotations

import math
import sys

import pytest

from tests.collectors.conftest import Collect, program
from tracelyze.analyzers import diagnose
from tracelyze.analyzers.recorded.run import Process
from tracelyze.diagnosis import Diagnosis


def recorded(collect: Collect, name: str) -> tuple[Process, Diagnosis]:
    done = collect(sys.executable, program("several.py"), name)
    assert done.own_stderr == ""
    (process,) = done.run.processes
    failed = {name: entry["reason"] for name, entry in process.signals.items() if entry["state"] == "failed"}
    assert failed == {}
    return process, diagnose(done.folder)


def fired(diagnosis: Diagnosis) -> set[str]:
    return {finding.rule for finding in diagnosis.findings}


def test_the_faulty_member_of_a_sweep_is_named(collect: Collect) -> None:
    process, diagnosis = recorded(collect, "sweep")
    assert [one.training for one in process.trainings] == [f"training {number} of 5" for number in range(1, 6)]
    assert [len(one.steps) for one in process.trainings] == [60] * 5
    (finding,) = [finding for finding in diagnosis.findings if finding.rule == "missing-zero-grad"]
    assert finding.trainings == ["training 3 of 5"]
    assert "training 3 of 5" in finding.title
    assert finding.cost is not None
    assert finding.cost.share is not None


def test_tensors_keep_their_names_when_the_model_is_freed(collect: Collect) -> None:
    (process,) = collect(sys.executable, program("several.py"), "freed").run.processes
    rows = [row for row in process.tables["reach"].records() if row["optimizer"] == 0]
    assert rows[-1]["step"] == 120
    assert rows[-1]["names"] == "spare.weight, spare.bias"


def test_folds_of_one_model_are_judged_one_by_one(collect: Collect) -> None:
    process, diagnosis = recorded(collect, "folds")
    trainings = process.trainings
    assert [len(one.steps) for one in trainings] == [120] * 3
    assert [len(one.evals) for one in trainings] == [6] * 3
    assert [list(one.evals["after_step"]) for one in trainings] == [[20, 40, 60, 80, 100, 120]] * 3
    (finding,) = [finding for finding in diagnosis.findings if finding.rule == "eval-in-train-mode"]
    assert finding.trainings == ["training 2 of 3"]


def test_an_optimizer_made_for_every_epoch_carries_on(collect: Collect) -> None:
    process, diagnosis = recorded(collect, "anew")
    assert process.trainings == [process]
    (training,) = process.optimizations
    assert list(training.steps["step"]) == list(range(1, 121))
    assert training.steps["lr"][-1] == pytest.approx(0.01 * 0.8**5)
    assert [row["optimizer"] for row in process.optimizers.records()] == [0]
    assert set(process.tables["links"]["optimizer"]) == {0}
    assert "6 optimizers (Adam) were made for the same model" in " ".join(diagnosis.run.notes)
    assert fired(diagnosis) == set()


def test_what_is_learned_after_something_else_is_a_training_of_its_own(collect: Collect) -> None:
    process, _ = recorded(collect, "two_tasks")
    assert [len(one.steps) for one in process.trainings] == [60, 60]


def test_interleaved_trainings_do_not_leak_into_each_other(collect: Collect) -> None:
    process, diagnosis = recorded(collect, "interleaved")
    first, second = process.trainings
    for one, batch, limit in ((first, 128, 1.0), (second, 32, 5.0)):
        assert set(one.steps["backwards"]) == {1}
        assert set(one.steps["batch_size"]) == {batch}
        assert set(one.steps["clips"][1:]) == {1}
        assert set(one.steps["clip_max_norm"][1:]) == {limit}
        assert set(one.steps["grads_carried"]) == {0}
    assert max(first.steps["loss"]) < 2
    assert min(second.steps["loss"]) > 1000
    assert first.steps["modules_sensitive"][5] == 1
    assert second.steps["modules_sensitive"][5] == 0
    assert fired(diagnosis) == set()


@pytest.mark.parametrize("name", ["gan", "head_and_body"])
def test_optimizers_that_take_turns_on_one_thing_are_one_training(collect: Collect, name: str) -> None:
    process, diagnosis = recorded(collect, name)
    assert len(process.optimizations) == 2
    assert process.trainings == [process]
    assert fired(diagnosis) == set()


def test_a_teacher_and_its_student(collect: Collect) -> None:
    process, diagnosis = recorded(collect, "distillation")
    first, second = process.trainings
    assert (len(first.steps), len(second.steps)) == (60, 60)
    assert not math.isclose(first.steps["loss"][-1], second.steps["loss"][0])
    assert fired(diagnosis) == set()


def test_threads_that_train_have_folders_of_their_own(collect: Collect) -> None:
    done = collect(sys.executable, program("several.py"), "threads")
    assert done.own_stderr == ""
    processes = done.run.processes
    assert sorted(process.thread for process in processes) == [1, 2]
    assert "2 trainings recorded, 60 steps in the longest" in done.process.stderr
    assert {process.facts["thread_name"] for process in processes} == {"careful", "careless"}
    assert [len(process.steps) for process in processes] == [60, 60]
    assert {process.exit.kind for process in processes} == {"finished"}
    diagnosis = diagnose(done.folder)
    (finding,) = [finding for finding in diagnosis.findings if finding.rule == "missing-zero-grad"]
    assert finding.trainings == ["thread careless"]


def test_a_thread_that_follows_another_goes_on_with_its_record(collect: Collect) -> None:
    process, diagnosis = recorded(collect, "short_threads")
    assert len(process.steps) == 60
    assert fired(diagnosis) == set()


AWARE = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(60):
    x = torch.rand(16, 4)
    net(x).square().mean().backward()
    with torch.no_grad():
        ways = [0.01 * p.grad for p in net.parameters()]
        for p, way in zip(net.parameters(), ways):
            p.add_(way)
    optimizer.zero_grad()
    net(x).square().mean().backward()
    with torch.no_grad():
        for p, way in zip(net.parameters(), ways):
            p.sub_(way)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_weights_that_were_moved_once_before_an_optimizer_steps_are_no_training(collect: Collect) -> None:
    """Sharpness-aware minimisation moves them at every step: only the first time no optimizer is known yet."""
    collected = collect(sys.executable, "-c", AWARE)
    assert "60 steps recorded" in collected.process.stderr
    (process,) = collected.run.processes
    assert [one["name"] for one in process.optimizers.records()] == ["SGD"]
    assert [len(one.steps) for one in process.optimizations] == [60]
    assert process.trainings == [process]
