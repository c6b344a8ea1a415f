"""Lines of the script that matter are recorded once each: those that ran, and those that stand in the loop's text."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import CodeType
from typing import Any

import pytest
import torch

import tracelyze.collectors
from tests.collectors.conftest import Collect, run_plain
from tracelyze.analyzers.recorded.run import Process
from tracelyze.collectors.program.call_sites import line_of, script_modules, source_excerpt
from tracelyze.collectors.program.lines import named_calls


def recorded(collect: Collect, folder: Path, text: str) -> Process:
    """What is recorded of a script with this text, which ends well."""
    script = folder / "train.py"
    script.write_text(text)
    done = collect(sys.executable, str(script))
    assert done.process.returncode == 0, done.process.stderr
    (process,) = done.run.processes
    return process


SCRIPT = """
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

def validate(model, loader):
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            out = model(x)  # forward
    model.train()
    return out.mean().item()  # read

model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout(0.1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
train_loader = DataLoader(data, batch_size=8)  # dataloader
other = DataLoader(data,
                   batch_size=32)
total = 0.0
for epoch in range(2):
    for step, (x, y) in enumerate(train_loader):  # loader
        optimizer.zero_grad()  # zero_grad
        loss = torch.nn.functional.cross_entropy(model(x), y)  # loss
        loss.backward()  # backward
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # clip
        optimizer.step()  # step
        total += loss.item()  # read
        if step % 4 == 0:
            print(f"{loss:.3f}", float(loss))  # read
        for p in model.parameters():
            p.grad.norm().item()  # read
        if loss > 1e6:  # read
            break
        loss.cpu().detach().numpy()
    if epoch == 1:
        torch.zeros(()).item()
    validate(model, other)
time.sleep(1.5)
"""


STEPPING = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def after_batch():
    optimizer.step()  # again
for _ in range(60):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
    after_batch()
optimizer = torch.optim.LBFGS(model.parameters())
def closure():
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    return loss
for _ in range(10):
    optimizer.step(closure)
"""


def test_only_the_line_that_steps_without_a_new_backward_is_noted(collect: Collect, tmp_path: Path) -> None:
    lines = recorded(collect, tmp_path, STEPPING).locations("step-again")
    assert [one.source for one in lines] == ["optimizer.step()  # again"]


READING = """
import traceback
import torch

names = ("item", "tolist", "cpu", "numpy", "__float__", "__bool__")
originals = [getattr(torch.Tensor, name) for name in names]
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for step in range(400):
    loss = model(torch.ones(3, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.detach().item()
    joined = torch.tensor([loss, loss])
    if step % 2:
        with torch.no_grad():
            out = model(torch.ones(1, 4))
        values = out.tolist(), float(out[0, 0])
    if step == 3:
        float(torch.ones((), requires_grad=True))
        print([getattr(torch.Tensor, name) is one for name, one in zip(names, originals)])
        try:
            out.item()
        except RuntimeError:
            traceback.print_exc()
import time
time.sleep(2.2)
print([name in vars(torch.Tensor) for name in names], total.hex())
"""


def test_every_line_of_a_loop_is_found_once(collect: Collect, tmp_path: Path) -> None:
    process = recorded(collect, tmp_path, SCRIPT)
    sites = [row for row in process.sites.records() if row["role"] != "sampled"]
    assert len({row["site"] for row in sites}) == len(sites)
    marked = {
        (line.rpartition("  # ")[2], number) for number, line in enumerate(SCRIPT.splitlines(), 1) if "  # " in line
    }
    found = {(row["role"], row["line"]) for row in sites}
    assert marked <= found
    assert {row["line"] for row in sites if row["role"] in ("zero_grad", "read", "clip", "step", "backward")} == {
        line for role, line in marked if role in ("zero_grad", "read", "clip", "step", "backward")
    }
    lines = SCRIPT.splitlines()
    (backward,) = (row for row in sites if row["role"] == "backward")
    assert backward["excerpt_line"] == backward["line"] - 3
    assert backward["excerpt"].split("\n") == lines[backward["line"] - 4 : backward["line"] + 3]
    made = {row["site"]: row["line"] for row in sites if row["role"] == "dataloader"}
    by_batch = {row["batch_size"]: made[row["made_at"]] for row in process.loaders.records()}
    assert by_batch[8] == next(line for role, line in marked if role == "dataloader")
    assert by_batch[32] in (by_batch[8] + 1, by_batch[8] + 2)


REMADE = """
import torch
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

class Shard:
    def __init__(self, batch_sampler):
        self.batch_sampler = batch_sampler

    def __iter__(self):
        return iter(self.batch_sampler)

    def __len__(self):
        return len(self.batch_sampler)

def prepare(loader, shard):
    batches = Shard(loader.batch_sampler) if shard else loader.batch_sampler
    return DataLoader(loader.dataset, batch_sampler=batches, num_workers=loader.num_workers)

data = TensorDataset(torch.randn(64, 4))
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = DataLoader(data, batch_size=8)
second = DataLoader(data, batch_size=16)
again = DataLoader(data, batch_sampler=BatchSampler(range(64), 32, False))
for loader in (prepare(first, False), prepare(second, True), again):
    for (x,) in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_the_line_of_a_loader_that_is_made_anew_around_another(collect: Collect, tmp_path: Path) -> None:
    """As Accelerate's prepare() does, whose line says nothing of the batches."""
    process = recorded(collect, tmp_path, REMADE)
    lines = [process.site(row["made_at"]).source for row in process.loaders.records()]
    assert [line.partition(" =")[0] for line in lines] == ["first", "second", "again"]


HELPED = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def make(data, shuffle=False):
    return DataLoader(data, batch_size=8, shuffle=shuffle)

def main():
    return DataLoader(data, batch_size=8)

data = TensorDataset(torch.randn(32, 4))
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for loader in (make(data), main(), DataLoader(data, batch_size=8)):
    for (x,) in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_the_line_that_asks_a_function_for_a_loader(collect: Collect, tmp_path: Path) -> None:
    process = recorded(collect, tmp_path, HELPED)
    asked = [process.site(row["called_at"]) for row in process.loaders.records()]
    assert [place and place.line for place in asked] == [14, None, None], "a function without parameters decides alone"
    assert [(one.line, one.function) for one in process.locations("loader-maker")] == [(5, "make")]


def test_excerpts_end_with_the_file_and_hold_no_secrets(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import wandb\nwandb.login(key='0123456789abcdef0123456789abcdef01234567')\ntrain(" + "x" * 500)
    found = source_excerpt(str(script), 2)
    first, second, third = found["excerpt"].split("\n")
    assert found["excerpt_line"] == 1
    assert (first, len(third)) == ("import wandb", 160)
    assert "0123456789abcdef" not in second
    assert source_excerpt(str(script), 9) == {}
    assert source_excerpt("<generated>", 1) == {}


@pytest.mark.parametrize(
    ("source", "backward", "expected"),
    [
        ("for x in y:\n    o.zero_grad(); l.backward(); o.step()", 2, [("zero_grad", 2, "<module>")]),
        (
            "def step(x):\n    l.backward()\n    (o\n     .zero_grad())\nfor x in y:\n    step(x)",
            2,
            [("zero_grad", 4, "step")],
        ),
        ("for x in y:\n    l.backward()\n    f = lambda: o.zero_grad()\n    def g():\n        o.zero_grad()", 2, []),
        ("l.backward()\nprint(l.item())", 1, []),
        (
            "class T:\n    def fit(self):\n        for x in y:\n            o.zero_grad()\n            x.backward()",
            5,
            [("zero_grad", 4, "fit")],
        ),
    ],
)
def test_what_stands_in_a_loop(source: str, backward: int, expected: list[tuple[str, int, str]]) -> None:
    found = [
        (code, line)
        for code in functions(compile(dedent(source), "train.py", "exec"))
        for line in named_calls.methods(code, "backward")
    ]
    (code,) = (code for code, line in found if line == backward)
    assert [("zero_grad", line, code.co_name) for line in named_calls.methods(code, "zero_grad")] == expected


def functions(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from functions(inner)


def test_softmaxes_count_where_matrices_are_multiplied() -> None:
    source = """
        def attention(q, k, v):
            scores = q @ k
            return torch.bmm(scores
                             .softmax(-1), v)
        def by_name(q, k):
            return softmax(torch.einsum("ij,kj->ik", q, k), -1)
        def answers(x):
            return F.softmax(x, -1)
    """
    names: dict[str, Any] = {}
    exec(compile(dedent(source), "model.py", "exec"), names)
    found = {
        name: named_calls.softmaxes_of_attention(names[name].__code__) for name in ("attention", "by_name", "answers")
    }
    assert found == {"attention": [5], "by_name": [7], "answers": []}


PARSING = """
import ast, gc, threading, torch
class Dies:
    def __init__(self): self.me = self
    def __del__(self): sum(range(50))
gc.set_threshold(50)
text = "def f(x): " + "y = 0" + "; y = ((x + 1) * [2, 3][0], {'a': (x, x)})" * 400
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(150):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    Dies()
    ast.parse(text)
print("parsed")
"""


def test_no_tree_is_parsed_beside_the_programs_own(collect: Collect, tmp_path: Path) -> None:
    """Before Python 3.13 two threads that parse at the same time may both get a SystemError."""
    script = tmp_path / "parses.py"
    script.write_text(PARSING)
    done = collect(sys.executable, str(script))
    assert done.process.stdout == "parsed\n", done.process.stderr
    package = Path(tracelyze.collectors.__file__).parent
    parsing = [
        path.name
        for path in package.rglob("*.py")
        if re.search(r"^\s*(import|from) ast\b", path.read_text(), re.MULTILINE)
    ]
    assert parsing == []


def test_reads_are_counted_per_step_and_leave_torch_as_it_was(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(READING)
    plain, done = run_plain(sys.executable, str(script)), collect(sys.executable, str(script))
    assert plain.returncode == 0, plain.stderr
    assert done.process.stdout == plain.stdout
    assert done.own_stderr == plain.stderr, "the warning and the traceback are those of plain Python"
    (process,) = done.run.processes
    reads = {row["source"]: row for row in process.sites.records() if row["role"] == "read"}
    joined = "joined = torch.tensor([loss, loss])"
    assert set(reads) == {"total += loss.detach().item()", "values = out.tolist(), float(out[0, 0])", joined}
    graphs = [row["source"] for row in process.sites.records() if row["role"] == "read-graph"]
    assert graphs == [joined], "what is read there has a graph each time"
    assert {row["device"] for row in reads.values()} == {"cpu"}
    assert reads["total += loss.detach().item()"]["per_step"] == pytest.approx(1.0, abs=0.1)
    assert reads["values = out.tolist(), float(out[0, 0])"]["per_step"] == pytest.approx(1.0, abs=0.1)


def test_packages_beside_their_metadata_are_libraries(collect: Collect, tmp_path: Path) -> None:
    """`pip install --target FOLDER` leaves packages outside of site-packages, and their metadata beside them."""
    folder = tmp_path / "installed"
    (folder / "fitter-1.0.dist-info").mkdir(parents=True)
    (folder / "fitter.py").write_text("def backward(loss):\n    loss.backward()\n")
    script = tmp_path / "train.py"
    script.write_text(
        dedent(
            """
            import sys
            sys.path.insert(0, sys.argv[1])
            import torch
            import fitter

            model = torch.nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(4):
                optimizer.zero_grad()
                fitter.backward(model(torch.randn(8, 4)).mean())
                optimizer.step()
            """
        )
    )
    (process,) = collect(sys.executable, str(script), str(folder)).run.processes
    assert {site.file.rsplit("/", 1)[-1] for site in process.locations("backward")} == {"train.py"}


def test_modules_of_libraries_are_known_again_by_their_name_and_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not among those of the script; one that takes the name of another is, or that gets its file late."""

    def module(name: str, file: str | None) -> types.ModuleType:
        made = types.ModuleType(name)
        made.__file__ = file
        monkeypatch.setitem(sys.modules, name, made)
        return made

    def files() -> list[str]:
        return [Path(file).name for file, one in script_modules() if one.__name__ in ("first", "second", "late")]

    module("first", str(tmp_path / "first.py"))
    module("second", torch.__file__)
    late = module("late", None)
    assert files() == ["first.py"]
    late.__file__ = str(tmp_path / "late.py")
    module("second", str(tmp_path / "second.py"))
    assert files() == ["first.py", "second.py", "late.py"]
    assert all("site-packages" not in file for file, _ in script_modules())


def test_an_instruction_without_a_line_counts_as_the_first_line_of_its_function() -> None:
    """As a thread may meet in the frames of another one."""
    code = compile("\n\ndef train():\n    pass\n", "train.py", "exec").co_consts[0]
    frame = types.SimpleNamespace(f_lineno=None, f_code=code)
    assert line_of(frame) == 3  # type: ignore[arg-type]


def test_a_module_of_the_script_is_asked_for_its_file_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is made anew under the same name may stand where the one before it stood in memory."""
    module = types.ModuleType("made_anew")
    monkeypatch.setitem(sys.modules, "made_anew", module)
    for file in ("/home/me/first.py", "/home/me/second.py"):
        module.__file__ = file
        assert [name for name, one in script_modules() if one is module] == [file]
