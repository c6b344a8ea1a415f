"""Files of weights that hold several models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect
from tracelyze.analyzers import diagnose

GAN = """
import copy
import sys
import torch
from torch import nn
how, file = sys.argv[1:]
def build(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))
G, D = build(4, 2), build(2, 1)
start = {"G": copy.deepcopy(G.state_dict()), "D": copy.deepcopy(D.state_dict())}
optimizers = [torch.optim.Adam(net.parameters(), lr=0.01) for net in (D, G)]
for _ in range(10):
    for optimizer in optimizers:
        optimizer.zero_grad()
        D(G(torch.rand(16, 4))).square().mean().backward()
        optimizer.step()
states = {"G": G.state_dict(), "D": D.state_dict()}
if how == "copies":
    states = copy.deepcopy(states) | {"average": copy.deepcopy(start["G"])}
elif how == "one":
    states.pop("D")
elif how == "start":
    states = start
torch.save(states | {"optimizer": optimizers[0].state_dict()}, file)
"""


@pytest.mark.parametrize(
    ("how", "missing", "untouched"), [("live", 0, 0), ("copies", 0, 0), ("one", 4, 0), ("start", 0, 8)]
)
def test_models_of_one_file_use_the_same_names(
    how: str, missing: int, untouched: int, collect: Collect, tmp_path: Path
) -> None:
    done = collect(sys.executable, "-c", GAN, how, str(tmp_path / "gan.pt"))
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    (row,) = [row for row in process.tables["checkpoints"].records() if row["action"] == "save"]
    assert (row["held"], row["missing"], row["untouched"]) == (8, missing, untouched)


RESUMED = """
import sys
import torch
from torch import nn
how, file = sys.argv[1:]
def build():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
def train(model, optimizer, scheduler):
    for _ in range(3):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.rand(16, 4)).square().mean().backward()
            optimizer.step()
        scheduler.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2}, file)
train(*build())
model, optimizer, scheduler = build()
state = torch.load(file)
model.load_state_dict(state["model"], assign=how == "assigned")
if how == "assigned":
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer.load_state_dict(state["optimizer"])
if how == "own":  # as accelerate's prepare() does
    model, optimizer, scheduler = build()
    state = torch.load(file)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(optimizer.state_dict())
if how == "anew":
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
if how == "next":
    model, optimizer, scheduler = build()
if how == "placed":
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5, last_epoch=3)
if how == "by hand":
    optimizer.param_groups[0]["lr"] = 0.0001
train(model, optimizer, scheduler)
"""


@pytest.mark.parametrize(
    ("how", "renewed", "anew", "same"),
    [
        ("restored", None, "StepLR", True),
        ("anew", True, None, True),
        ("next", False, None, False),
        ("placed", None, None, True),
        ("by hand", None, None, True),
        ("assigned", None, None, True),
    ],
)
def test_what_steps_after_a_file_was_taken_in(
    how: str, renewed: bool | None, anew: str | None, same: bool, collect: Collect, tmp_path: Path
) -> None:
    done = collect(sys.executable, "-c", RESUMED, how, str(tmp_path / "last.pt"))
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    (seen,) = [json.loads(row["text"]) for row in process.events.records() if row["kind"] == "resumed"]
    assert (seen.get("renewed"), seen.get("anew"), seen["same_model"]) == (renewed, anew, same)
    assert (seen["step"], seen["file_rate"], seen["steps"]) == (12, 0.01, 1)
    assert seen["unread"] == (["epoch"] if sys.version_info < (3, 14) else [])


TRANSFERRED = """
import sys, torch
how, file = sys.argv[1], sys.argv[2]
def build(classes):
    return torch.nn.ModuleDict({"body": torch.nn.Linear(4, 8), "head": torch.nn.Linear(8, classes)})
def train(model, optimizer):
    for _ in range(4):
        optimizer.zero_grad()
        model["head"](model["body"](torch.rand(16, 4))).square().mean().backward()
        optimizer.step()
model = build(5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
train(model, optimizer)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
state = torch.load(file)["model"]
model = build(5 if how in ("parts", "frozen") else 3)
body = {name.removeprefix("body."): one for name, one in state.items() if name.startswith("body.")}
head = {name.removeprefix("head."): one for name, one in state.items() if name.startswith("head.")}
if how == "renamed":
    model.load_state_dict({"body." + name: one for name, one in body.items()}, strict=False)
else:
    model["body"].load_state_dict(body)
if how == "parts":
    model["head"].load_state_dict(head)
if how == "frozen":
    model["head"].requires_grad_(False)
groups = [{"params": one.parameters(), "lr": 0.01} for one in model.values()]
train(model, torch.optim.Adam(groups if how == "renamed" else model.parameters(), lr=0.01))
"""


@pytest.mark.parametrize(
    ("how", "fresh", "groups"),
    [
        ("renamed", 2, [2, 2]),  # a part of the names, and a rate for each part
        ("body", 2, [4]),  # one part of the model
        ("parts", 0, [4]),
        ("frozen", 0, [4]),  # what took in nothing is not trained either
    ],
)
def test_parameters_that_took_in_nothing_of_a_file(
    how: str, fresh: int, groups: list[int], collect: Collect, tmp_path: Path
) -> None:
    done = collect(sys.executable, "-c", TRANSFERRED, how, str(tmp_path / "source.pt"))
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    (seen,) = [json.loads(row["text"]) for row in process.events.records() if row["kind"] == "resumed"]
    assert (seen["same_model"], seen["fresh"]) == (True, fresh)
    assert (seen["groups"], seen["file_groups"]) == (groups, [4])


@pytest.mark.parametrize(("how", "restored"), [("own", False), ("restored", True)])
def test_an_optimizer_that_takes_in_its_own_empty_state(
    how: str, restored: bool, collect: Collect, tmp_path: Path
) -> None:
    done = collect(sys.executable, "-c", RESUMED, how, str(tmp_path / "last.pt"))
    (process,) = done.run.processes
    *_, load = [row for row in process.tables["checkpoints"].records() if row["action"] == "load"]
    assert load["optimizer_restored"] is restored


def test_the_states_that_a_file_holds() -> None:
    """A loop's own count of epochs is no scheduler's, whatever it is called."""
    torch = pytest.importorskip("torch")
    from tracelyze.collectors.program.saved_files import File

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedules = torch.optim.lr_scheduler
    step = schedules.StepLR(optimizer, 2)
    for scheduler in (step, schedules.ReduceLROnPlateau(optimizer), schedules.SequentialLR(optimizer, [step], [])):
        assert File(torch, {"model": model.state_dict(), "sched": scheduler.state_dict()}).scheduler
    counted = File(torch, {"model": model.state_dict(), "last_epoch": 3, "opt": optimizer.state_dict()})
    assert (counted.scheduler, counted.optimizer, counted.progress) == (False, True, True)
    assert set(counted.tensors) == {"weight", "bias"}


def test_a_weight_whose_name_reads_like_a_count_is_none() -> None:
    torch = pytest.importorskip("torch")
    from tracelyze.collectors.program.saved_files import File

    model = torch.nn.ModuleDict({"step": torch.nn.Linear(2, 2), "criterion": torch.nn.Linear(2, 2)})
    assert not File(torch, model.state_dict()).progress
    assert not File(torch, {"step_encoder": model.state_dict(), "criterion": model}).progress
    steps = torch.nn.ModuleDict({"steps": torch.nn.ModuleList([torch.nn.BatchNorm1d(2)])})
    assert not File(torch, steps.state_dict()).progress, "steps.0.num_batches_tracked is one number"
    assert File(torch, {"model": model.state_dict(), "step": torch.tensor(3)}).progress


def test_what_lies_beside_the_adapters_of_a_model() -> None:
    torch = pytest.importorskip("torch")
    from tracelyze.collectors.program.saved_files import of_adapted_models

    class PeftModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parts = ("query", "lora_A", "classifier", "modules_to_save")
            self.base_model = torch.nn.ModuleDict({part: torch.nn.Linear(2, 2) for part in parts})
            self.base_model.prefix = "lora_"

    model = PeftModel()
    assert not of_adapted_models([(0, model)]), "of a class of the program's own"
    PeftModel.__module__ = "peft.peft_model"
    beside = {id(p) for part in ("query", "classifier") for p in model.base_model[part].parameters()}
    assert of_adapted_models([(0, torch.nn.ModuleDict({"policy": model, "critic": torch.nn.Linear(2, 2)}))]) == beside


STAGES = """
import copy
import sys
import torch
from torch import nn
how, file = sys.argv[1:]
torch.manual_seed(0)
def train(step, parameters, steps=40):
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=how == "early, scaled")
    for number in range(steps):
        optimizer.zero_grad()
        loss = step(torch.rand(16, 6)).square().mean()
        scaler.scale(loss if number or not scaler.is_enabled() else loss * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()
    return optimizer
def build(width):
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 6))
def cloned(state):
    return {name: value.clone() for name, value in state.items()}
class Both(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second
    def forward(self, x):
        return self.second(self.first(x))
first = build(16)
train(lambda x: first(x) - x, first.parameters())  # what is trained beforehand: a teacher, an encoder
second = build(8)
early = copy.deepcopy(second.state_dict())
both = Both(first, second)
if how in ("teacher", "teacher unmoved", "student", "early", "early, scaled"):
    def step(x):
        if how == "teacher":
            return second(x) - first(x)
        with torch.no_grad():
            target = first(x)
        return second(x) - target
    optimizer = train(step, (both if how.startswith("teacher") else second).parameters())
    state = early if how.startswith("early") else second.state_dict()
else:
    optimizer = train(both, both.parameters())
    state = first.state_dict() if how == "part" else both.state_dict()
    if how in ("copies", "tuned copy of copies"):
        state = cloned(state)
    if how == "copies of a part":
        state = cloned(first.state_dict())
    if how.startswith("tuned copy"):
        tuned = copy.deepcopy(both)
        kept = train(tuned, tuned.parameters(), 10)
if how == "two files":
    torch.save({"model": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    state = second.state_dict()
torch.save({"model": state, "optimizer": optimizer.state_dict()}, file)
"""


@pytest.mark.parametrize(
    ("how", "held", "missing", "untouched"),
    [
        ("student", 4, 0, 0),
        ("early", 4, 0, 4),
        ("early, scaled", 4, 0, 4),  # its first step overflows, and is skipped
        ("teacher", 8, 4, 0),  # it learns from the student, and is not saved with it
        ("teacher unmoved", 4, 0, 0),  # the optimizer holds it, and no gradient reaches it
        ("whole", 8, 0, 0),
        ("copies", 8, 0, 0),
        ("part", 8, 4, 0),
        ("copies of a part", 8, 4, 0),
        ("tuned copy", 8, 0, 0),  # after the training, for a test: no part of it
        ("tuned copy of copies", 8, 0, 0),
        ("two files", 8, 0, 0),
    ],
)
def test_the_training_that_follows_another_one(
    how: str, held: int, missing: int, untouched: int, collect: Collect, tmp_path: Path
) -> None:
    done = collect(sys.executable, "-c", STAGES, how, str(tmp_path / "last.pt"))
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    row = [row for row in process.tables["checkpoints"].records() if row["action"] == "save"][-1]
    assert [row["missing"] or 0, row["untouched"] or 0] == [missing, untouched]
    assert row["held"] == held or how.startswith("tuned")


SLOTS = """
import os
import sys
import torch
from torch import nn
order, folder = sys.argv[1:]
def make(net):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 80)
for slot in range(2):
    net, file = nn.Linear(4, 4), os.path.join(folder, "state.pt")
    optimizer, schedule = make(net)
    if slot:
        state = torch.load(file)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["opt"])
        schedule.load_state_dict(state["sched"])
        if order == "anew":
            optimizer, schedule = make(net)
    for epoch in range(40):
        optimizer.zero_grad()
        net(torch.rand(16, 4)).square().mean().backward()
        optimizer.step()
        schedule.step()
        torch.save(net.state_dict(), os.path.join(folder, "best.pt"))
    torch.save({"net": net.state_dict(), "opt": optimizer.state_dict(), "sched": schedule.state_dict()}, file)
"""


@pytest.mark.parametrize(("order", "found"), [("first", 0), ("anew", 1)])
def test_a_state_that_is_written_after_many_files_of_the_best_weights(
    order: str, found: int, collect: Collect, tmp_path: Path
) -> None:
    done = collect(sys.executable, "-c", SLOTS, order, str(tmp_path))
    (process,) = done.run.processes
    saves = [row["file"] for row in process.tables["checkpoints"].records() if row["action"] == "save"]
    assert saves.count("state.pt") == 2
    assert 20 < len(saves) < 30
    diagnosis = diagnose(done.run)
    resumed = [one for one in diagnosis.findings if one.rule == "resume-discontinuity"]
    assert len(resumed) == found
    for one in resumed:
        assert "optimizer and scheduler" in one.title, "the rate starts over"
        assert 'optimizer.load_state_dict(checkpoint["opt"])' in one.fix_code
    assert "no-checkpoint" not in [one.rule for one in diagnosis.findings]
