"""The lines of a program are read while it runs, and the program never notices."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

from tests.collectors.conftest import Collect
from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines import script_text
from tracelyze.collectors.program.lines.settings import regions
from tracelyze.collectors.signals.machine import script_lines
from tracelyze.collectors.signals.machine.script_lines import ScriptLines

TraceFunction = Callable[[FrameType, str, object], Any]


def context_of(sites: Sites) -> Any:
    """What the signal asks a recording for, whose last backward began at site 0."""
    program = SimpleNamespace(sites=sites, calls=SimpleNamespace(modules=dict))
    progress = SimpleNamespace(backward_site=0)
    return SimpleNamespace(torch=None, program=program, progress=progress, meter=lambda kind: None)


def test_regions_of_autocast_and_decorators(tmp_path: Path) -> None:
    source = """\
@staticmethod
@custom_fwd(device_type="cpu", cast_inputs=torch.float32)
def forward(ctx, x):
    with torch.autocast("cpu", enabled=False):
        return x @ x

def plain(x):
    return x @ x
"""
    file = tmp_path / "amp.py"
    file.write_text(source, encoding="utf-8")
    module = compile(source, str(file), "exec")
    functions = {one.co_name: one for one in module.co_consts if isinstance(one, CodeType)}
    assert regions.lines(functions["forward"]) == [2, 4]
    assert regions.lines(functions["plain"]) == []


TRAINING = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x).detach())  # cut

def likelihood(scores):
    return -torch.log(scores * 0.0).mean()  # singular

def batches(x):
    for start in range(0, len(x), 8):  # batches
        yield x[start : start + 8]

def split(x):
    order = torch.randperm(len(x))  # split
    return x[order[:160]], x[order[160:]]

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
train, held = split(torch.randn(200, 4))  # split-call
_ = held.split(8), torch.split(held, 8)
for batch in batches(train):  # loop
    loss = likelihood(model(batch))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_lines_of_a_training_are_recorded(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    (process,) = collect(sys.executable, str(script)).run.processes
    roles = ("cut", "singular", "batches", "loop", "split", "split-call")
    found = {(role, one.line) for role in roles for one in process.locations(role)}
    expected = {
        (text.rpartition("# ")[2], number)
        for number, text in enumerate(TRAINING.splitlines(), start=1)
        if "  # " in text
    }
    assert found == expected


def test_a_loss_that_stays_finite_has_its_divisions_left_alone(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING.replace("scores * 0.0", "scores * 0.0 + 1"))
    (process,) = collect(sys.executable, str(script)).run.processes
    assert not process.locations("singular")


@pytest.mark.parametrize("first", ["finished", "every_second"])
def test_the_program_may_end_at_any_line_of_the_thread_that_reads_it(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the thread may go on at any line of the last reading: no error, and every line is recorded once."""
    module = types.ModuleType("read_twice")
    module.__file__ = str(tmp_path / "read_twice.py")
    text = "def batches(x):\n    yield x\ndef train(x):\n    for one in batches(x):\n        one.detach().backward()\n"
    exec(compile(text, module.__file__, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "read_twice", module)
    text_of = {module.__file__: script_text.of_file(module.__file__)}
    monkeypatch.setattr(script_text, "of_file", text_of.__getitem__)  # It goes through all modules of torch.
    second = {"finished": "every_second", "every_second": "finished"}[first]
    lines, entered = 0, True
    while entered:
        rows: list[dict[str, Any]] = []
        sites = Sites(rows.append)
        signal = ScriptLines(context_of(sites))
        sites._codes[0] = module.train.__code__, 5
        left, entered = lines, False

        def within(frame: FrameType, event: str, _argument: object) -> TraceFunction | None:
            nonlocal left, entered
            if frame.f_code.co_filename != script_lines.__file__:
                return None
            if event == "line":
                if left == 0:
                    sys.settrace(None)
                    entered = True
                    call(second)
                left -= 1
            return within

        def call(name: str, signal: ScriptLines = signal) -> None:
            _ = signal.finished() if name == "finished" else signal.every_second({})

        sys.settrace(within)
        try:
            call(first)
        finally:
            sys.settrace(None)
        if entered:
            found = sorted((row["role"], row["line"]) for row in rows)
            assert found == [("batches", 2), ("cut", 5), ("loop", 4), ("yields", 2)], lines
        lines += 1
    assert lines > 20


def test_nothing_of_the_program_is_asked_for_its_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that are loaded when they are used stay unloaded, and proxies are not resolved."""
    asked: list[str] = []

    class Proxy:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            asked.append("__class__")
            raise RuntimeError("outside of its context")

        def __getattr__(self, name: str) -> object:
            asked.append(name)
            return None

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> object:
            asked.append(name)
            return super().__getattribute__(name)

    module = Lazy("quite_lazy")
    exec(
        compile("def train():\n    return x.detach()\n", "lazy.py", "exec"), object.__getattribute__(module, "__dict__")
    )
    object.__getattribute__(module, "__dict__").update(__file__="lazy.py", proxy=Proxy())
    monkeypatch.setitem(sys.modules, "quite_lazy", module)
    monkeypatch.setitem(sys.modules, "no_module", Proxy())  # type: ignore[arg-type]
    asked.clear()
    assert [code.co_name for code in script_text.of_file("lazy.py").functions] == ["train"]
    assert asked == []


RUN_BY_A_LIBRARY = """
import torch
from runner import run

torch.autograd.set_detect_anomaly(True)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)


def update(x):
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    opt.step()


run(update, [torch.randn(8, 4) for _ in range(60)])
"""


def test_the_file_itself_is_read_where_a_library_runs_the_loop(collect: Collect, tmp_path: Path) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "runner.py").write_text("def run(update, batches):\n    for batch in batches:\n        update(batch)\n")
    script = tmp_path / "train.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(library)!r})\n{RUN_BY_A_LIBRARY}")
    (process,) = collect(sys.executable, str(script)).run.processes
    assert [one.source for one in process.locations("anomaly")] == ["torch.autograd.set_detect_anomaly(True)"]


def test_functions_that_are_defined_after_the_first_training(collect: Collect, tmp_path: Path) -> None:
    """A script of two stages: what the second one needs is not there as the first one begins."""
    source = """
import time
import torch

model = torch.nn.Linear(4, 2)

def train(steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

train(4)
time.sleep(1.5)  # until the text was read for the first time

def reward_of(texts, answers):
    return [1.0 if text == answer else 0.0 for text, answer in zip(texts, answers)]

train(4)
"""
    script = tmp_path / "stages.py"
    script.write_text(source)
    (process,) = collect(sys.executable, str(script)).run.processes
    assert [one.line for one in process.locations("reward")] == [
        source.split("\n").index("def reward_of(texts, answers):") + 1
    ]
