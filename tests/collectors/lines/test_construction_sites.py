"""The lines that make optimizers, schedulers and modules are told in every idiom, never that of a call that trains."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.collectors.conftest import Collect, needs
from tests.fork_server.client import FRAMEWORKS, TRAININGS
from tracelyze.analyzers.engine import diagnose
from tracelyze.analyzers.recorded.run import Process
from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines import definitions

HEAD = """
import sys
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR

def train(model, optimizer, scheduler=None):
    for step in range(30):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step(*[1.0] * isinstance(scheduler, ReduceLROnPlateau))

model = nn.Linear(4, 2)
"""

SCRIPT = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # optimizer
train(model, optimizer, StepLR(optimizer, 10))  # scheduler
"""

FUNCTION = """
def build(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)  # optimizer
    warm, cool = StepLR(optimizer, 10), StepLR(optimizer, 10)
    return optimizer, SequentialLR(optimizer, [warm, cool], [5])  # scheduler

def main():
    train(model, *build(model))

main()
"""

TRAINER_CLASS = """
class Momentum(torch.optim.SGD):
    def __init__(self, params, lr):
        super().__init__(params, lr=lr, momentum=0.9)

class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = Momentum(model.parameters(), lr=1e-3)  # optimizer
        self.scheduler = ReduceLROnPlateau(self.optimizer)  # scheduler

    def fit(self):
        train(self.model, self.optimizer, self.scheduler)

trainer = Trainer(model)
trainer.fit()
"""

IDLE = """
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)  # optimizer
scheduler = StepLR(optimizer, 10)  # scheduler
train(model, optimizer)
"""

LIBRARY_FACTORY = """
import factory
optimizer, scheduler = factory.build(model)  # optimizer  # scheduler
train(model, optimizer, scheduler)
"""

LIBRARY_TRAINER = """
import factory
factory.fit(model, train)
"""

IN_A_LIBRARY = """
import torch

def build(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 10)

def fit(model, train):
    train(model, *build(model))
"""

LIGHTNING = """
import lightning
from torch.utils.data import DataLoader

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def training_step(self, batch):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-3)  # optimizer
        scheduler = OneCycleLR(optimizer, 1e-2, total_steps=30)  # scheduler
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

trainer = lightning.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False, accelerator="cpu")
trainer.fit(Module(), DataLoader(torch.randn(120, 4), batch_size=4))
"""


@pytest.fixture
def recorded(collect: Collect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Process]:
    """Records a script that has a library beside it."""
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "factory.py").write_text(IN_A_LIBRARY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(library), os.environ.get("PYTHONPATH", "")]))

    def run(source: str) -> Process:
        script = tmp_path / "train.py"
        script.write_text(source)
        modules = FRAMEWORKS if "import lightning" in source else TRAININGS
        done = collect(sys.executable, str(script), modules=modules)
        assert done.process.returncode == 0, done.process.stderr
        (process,) = done.run.processes
        return process

    return run


def _line(source: str, mark: str) -> int | None:
    return next((number for number, line in enumerate(source.splitlines(), 1) if f"# {mark} " in f"{line} "), None)


def _made(process: Process, row: dict[str, Any]) -> int | None:
    place = process.site(row["made_at"])
    return place and place.line


@pytest.mark.parametrize(
    "idiom",
    [
        *(SCRIPT, FUNCTION, TRAINER_CLASS, IDLE, LIBRARY_FACTORY, LIBRARY_TRAINER),
        pytest.param(LIGHTNING, marks=needs("lightning")),
    ],
    ids=["script", "function", "trainer-class", "idle", "library-factory", "library-trainer", "lightning"],
)
def test_where_optimizers_and_schedulers_are_made(recorded: Callable[[str], Process], idiom: str) -> None:
    source = HEAD + idiom
    process = recorded(source)
    (optimizer,) = process.optimizers.records()
    assert _made(process, optimizer) == _line(source, "optimizer")
    schedulers = {row["scheduler"]: row for row in process.tables["schedules"].records() if not row["inner"]}
    assert {_made(process, row) for row in schedulers.values()} == {_line(source, "scheduler")}


VANISHING_RATE = """
def main():
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step else 1.0)  # scheduler
    for step in range(120):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()  # step

main()
"""


def test_the_factor_of_a_schedule_that_a_function_computes(recorded: Callable[[str], Process]) -> None:
    factor = "def factor(step):  # factor\n    return (step + 1) / 60\n\n"
    source = HEAD + factor + VANISHING_RATE.replace("lambda step: 0.0 if step else 1.0", "factor")
    (place,) = recorded(source).locations("rates")
    assert (place.line, place.function) == (_line(source, "factor"), "factor")
    assert not recorded(HEAD + VANISHING_RATE).locations("rates"), "a lambda stands where the scheduler is made"


@pytest.mark.parametrize("held", [None, 0.5, lambda step: 1.0, "linear"])
def test_what_a_scheduler_of_the_scripts_own_may_call_its_factors(held: object) -> None:
    rows: list[dict[str, object]] = []
    definitions.factors(SimpleNamespace(lr_lambdas=held), Sites(rows.append))
    assert not rows


def test_a_finding_names_the_line_to_change_and_where_the_harm_was_seen(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + VANISHING_RATE)
    done = collect(sys.executable, str(script))
    (found,) = (one for one in diagnose(done.run).findings if one.rule == "learning-rate-schedule")
    assert found.location is not None
    assert found.seen_at is not None
    assert found.location.line == _line(HEAD + VANISHING_RATE, "scheduler")
    assert found.seen_at.line == _line(HEAD + VANISHING_RATE, "step")
    assert found.excerpt is not None
    assert found.location.source in found.excerpt.lines[found.location.line - found.excerpt.first_line]


LAYERS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):  # dataset
        return torch.full((4,), float(index)), torch.zeros(1)

class Plain(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()  # step
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])

def shares(x):
    return x.softmax(-1)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)  # body.0.inner

    def forward(self, x):
        return self.inner(x)

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(  # body
            Block(4),  # body.0
            *[nn.ReLU() for _ in range(2)],  # body.2
        )

class Net(Base):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)  # encoder.layers.1.linear1
        self.head = nn.Linear(4, 1)  # head

    def forward(self, x):
        x = self.body(x)[:, None]
        weights = torch.softmax(  # attention
            x @ x.mT, dim=-1)
        return self.head(self.encoder(weights @ x)[:, 0])

def build():
    return Net()  # root

net = build()
optimizer = Plain(net.parameters())
kept = net.state_dict()  # taken
for epoch in range(10):
    for x, y in DataLoader(Subset(Squares(), range(32)), batch_size=8):
        loss = nn.MSELoss()(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
net.load_state_dict(kept)
nn.Linear(2, 2).to(torch.bfloat16)  # cast
nn.Linear(2, 2).to("cpu", dtype=torch.float64)
"""


def test_where_modules_datasets_and_steps_are_defined(recorded: Callable[[str], Process]) -> None:
    process = recorded(LAYERS)

    def line(name: str) -> int | None:
        place = process.module_location(name)
        return place and place.line

    for name in ("body", "body.0", "body.0.inner", "body.2", "encoder.layers.1.linear1", "head"):
        assert line(name) == _line(LAYERS, name), name
    assert line("") == _line(LAYERS, "root")
    assert line("module.head") == line("head")
    (loader, *_), (optimizer,), (load,) = (
        list(table.records()) for table in (process.loaders, process.optimizers, process.tables["loads"])
    )
    for site, mark in (
        (loader["read_by"], "dataset"),
        (optimizer["step_defined_at"], "step"),
        (load["taken_site"], "taken"),
    ):
        place = process.site(site)
        assert place is not None
        assert abs(place.line - (_line(LAYERS, mark) or 0)) <= 1, mark
    for role in ("cast", "attention"):
        assert [one.line for one in process.locations(role)] == [_line(LAYERS, role)]


OF_A_LIBRARY = """
import torch
from torch import nn

class Pretrained(nn.Linear):
    pass

method = "def to(self, *args, **kwargs):\\n    return super(Pretrained, self).to(*args, **kwargs)"
exec(compile(method, torch.__file__, "exec"))
Pretrained.to = to
net = Pretrained(4, 1).to(torch.bfloat16)  # cast
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.randn(8, 4, dtype=torch.bfloat16)).float().square().mean().backward()
    optimizer.step()
"""


def test_a_cast_by_a_method_of_a_library(recorded: Callable[[str], Process]) -> None:
    process = recorded(OF_A_LIBRARY)
    assert [one.line for one in process.locations("cast")] == [_line(OF_A_LIBRARY, "cast")]


COMPILED = """
import torch
from torch import nn

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 3

    def forward(self, x):
        return x * self.scale

@torch.compile(fullgraph=True, backend="eager")
def compiled(x):
    return Inner()(x) + nn.ReLU()(x)

print(compiled(torch.ones(3)).tolist())
"""


def test_modules_that_a_compiled_function_makes_are_traced(collect_started: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(COMPILED)
    done = collect_started(sys.executable, str(script))
    assert done.process.stdout == "[4.0, 4.0, 4.0]\n", done.process.stderr
