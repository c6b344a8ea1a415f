"""Rules and signals of other packages: the example package, installed, and packages that do not fit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pytest

from tests.collectors.conftest import environment
from tracelyze.analyzers import extensions
from tracelyze.testing import Workshop

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "open_files"
TRAINING = """
import os, time, torch
kept = []
net = torch.nn.Linear(4, 1)
begin = time.monotonic()
while time.monotonic() - begin < 11:
    kept.append(os.open(os.devnull, os.O_RDONLY))
    x = torch.randn(16, 4)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    with torch.no_grad():  # by hand: the first optimizer of a process imports torch._dynamo, which takes seconds
        for parameter in net.parameters():
            parameter -= 0.01 * parameter.grad
            parameter.grad = None
    time.sleep(0.05)
"""


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Puts a module and its entry points where importlib finds them."""

    def put(source: str, group: str, points: dict[str, str]) -> Path:
        site = tmp_path / "site"
        (site / "added-1.0.dist-info").mkdir(parents=True)
        (site / "added_package.py").write_text(source)
        (site / "added-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
        lines = [f"{name} = {place}" for name, place in points.items()]
        (site / "added-1.0.dist-info" / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
        monkeypatch.syspath_prepend(site)
        extensions.clear()
        return site

    yield put
    sys.modules.pop("added_package", None)
    extensions.clear()


RULE = """
from tracelyze.analyzers.rule import Passed, Rule

def rule(name):
    return Rule(id=name, family="team", severity="info", title="The team's own rule", about="A test.",
                check=lambda process, limits: Passed(f"{len(process.steps)} steps"), verify="Run it again.")

ONE, MANY, BAD, NOTHING = rule("team-rule"), [rule("other-rule"), rule("missing-zero-grad")], rule("Team_Rule"), 3
"""


def test_rules_of_another_package_are_evaluated_and_those_that_do_not_fit_are_named(declare) -> None:
    points = {name: f"added_package:{name}" for name in ("ONE", "MANY", "BAD", "NOTHING", "ABSENT")}
    declare(RULE, "tracelyze.rules", points)
    from tracelyze.analyzers import diagnose

    make = Workshop()
    diagnosis = diagnose(make.run(make.process()))
    status = {check.rule: (check.status, check.reason) for check in diagnosis.checks}
    assert status["team-rule"] == ("passed", "400 steps.")
    assert status["other-rule"] == ("passed", "400 steps.")
    left_out = "\n".join(diagnosis.run.notes)
    assert "another rule is called missing-zero-grad already" in left_out
    assert "its id 'Team_Rule' is not made of lower-case words with hyphens" in left_out
    assert "Rules of added_package:NOTHING are left out: TypeError: neither a Rule nor a list of rules." in left_out
    assert "Rules of added_package:ABSENT are left out: AttributeError" in left_out
    assert diagnose(make.run(make.process()), select=["team-rule"]).checks[0].status == "passed"


def test_a_package_that_cannot_be_imported_hides_nothing(declare) -> None:
    declare("raise RuntimeError('no licence')", "tracelyze.rules", {"one": "added_package:ONE"})
    from tracelyze.analyzers import diagnose

    make = Workshop()
    diagnosis = diagnose(make.run(make.process()))
    assert "Rules of added_package:ONE are left out: RuntimeError: no licence." in diagnosis.run.notes
    assert len(diagnosis.checks) > 50


SIGNALS = """
from tracelyze.collectors.signals.signal import Signal

class Steps(Signal):
    name = "team_steps"
    columns = ("scalars.value",)
    copied_columns = ()
    def after_step(self, tracked, row):
        self.context.emit("scalars", {"time": self.context.now(), "step": self.progress.steps, "phase": "train",
                                      "name": "team", "value": 1.0})

class Raises(Signal):
    name = "raises"
    columns = ()
    def opened(self):
        raise ValueError("on purpose")

class Columns(Signal):
    name = "columns"
    columns = ("steps.of_our_own",)

class Loss(Signal):
    name = "loss"
    columns = ()

NO_CLASS = 3
"""


@pytest.mark.starts_programs
def test_signals_of_another_package_are_recorded_and_those_that_do_not_fit_do_no_harm(declare, tmp_path: Path) -> None:
    points = {
        "team_steps": "Steps",
        "raises": "Raises",
        "columns": "Columns",
        "loss": "Loss",
        "other": "Steps",
        "no_class": "NO_CLASS",
        "absent": "Absent",
    }
    site = declare(SIGNALS, "tracelyze.signals", {name: f"added_package:{what}" for name, what in points.items()})
    script = tmp_path / "train.py"
    script.write_text(TRAINING.replace("< 11", "< 0.5"))
    run = recorded(script, tmp_path, site)
    (manifest,) = run.glob("rank*/process.json")
    signals = json.loads(manifest.read_text())["signals"]
    assert signals["team_steps"]["state"] == "on"
    assert signals["loss"]["state"] == "on"  # the collector's own
    assert (signals["raises"]["state"], signals["raises"]["reason"]) == ("failed", "ValueError: on purpose")
    assert "is no column of the run directory" in signals["columns"]["reason"]
    assert "is not called 'other'" in signals["other"]["reason"]
    assert "is not a subclass" in signals["no_class"]["reason"]
    assert "could not be imported" in signals["absent"]["reason"]
    import tracelyze

    scalars = list(tracelyze.load(run).processes[0].tables["scalars"].records())
    assert {row["name"] for row in scalars} == {"team"}
    assert len(tracelyze.load(run).processes[0].steps) >= len(scalars) > 0


LISTENS = """
import torch

from tracelyze.collectors.signals.signal import Signal

class Roots(Signal):
    name = "roots"
    columns = ("scalars.value",)
    copied_columns = ()

    def _note(self, name, value):
        self.context.emit("scalars", {"time": self.context.now(), "step": self.progress.steps, "phase": "train",
                                      "name": name, "value": float(value)})

    def before_backward(self, roots):
        for root in roots:  # a tuple of tensors, whatever backward was called with
            assert isinstance(root, torch.Tensor)
            self._note("depth", len(root.grad_fn.next_functions))
        self._note("given", len(roots))
        if not roots:
            self._note("late loss", self.program.backwards.running.value)

    def after_backward(self, roots):
        self._note("returned", len(roots))
"""

SETTLED = """
import torch

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

def step(*more):
    optimizer.zero_grad()
    loss = net(torch.ones(8, 4)).square().mean()
    torch.autograd.backward([loss, *more] if more else loss)
    optimizer.step()
    return loss

step(net.weight.square().sum())
while True:
    for _ in range(250):
        step()
    optimizer.zero_grad()
    loss = net(torch.ones(8, 4)).square().mean()
    loss.backward()
    net(torch.ones(2, 4))  # is no part of the steps before: the backward above is told of now, if it was skipped
    optimizer.step()
    if optimizer.param_groups[0]["lr"] == 0.0:
        break
    optimizer.param_groups[0]["lr"] = 0.0
print(repr(loss.item()))
"""


@pytest.mark.starts_programs
@pytest.mark.slow
def test_a_signal_of_another_package_can_rely_on_what_a_backward_gives_it(declare, tmp_path: Path) -> None:
    """Tensors in a tuple; where the backward was skipped and turned out to be of a step unlike the others, its loss."""
    site = declare(LISTENS, "tracelyze.signals", {"roots": "added_package:Roots"})
    script = tmp_path / "train.py"
    script.write_text(SETTLED)
    run = recorded(script, tmp_path, site)
    (manifest,) = run.glob("rank*/process.json")
    entry = json.loads(manifest.read_text())["signals"]["roots"]
    assert entry["state"] == "on", entry["reason"]
    import tracelyze

    (process,) = tracelyze.load(run).processes
    noted: dict[str, list[float]] = {}
    for row in process.tables["scalars"].records():
        noted.setdefault(row["name"], []).append(row["value"])
    assert set(noted["given"]) == {0.0, 1.0, 2.0}
    assert noted["returned"] == noted["given"], "each backward returned"
    assert len(noted["given"]) < len(process.steps), "the fast path is taken"
    losses = [row["loss"] for row in process.tables["steps"].records()]
    assert noted["late loss"]
    assert set(noted["late loss"]) <= set(losses)


@pytest.mark.starts_programs
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list a process's open files")
@pytest.mark.skipif(util.find_spec("hatchling") is None, reason="hatchling is not installed: it is in the group test")
def test_the_example_package_finds_the_leak_of_a_real_training(tmp_path: Path) -> None:
    site = tmp_path / "site"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(EXAMPLE)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)], check=True, timeout=60)
    variables = environment() | {"PYTHONPATH": f"{site}:{ROOT}"}
    own = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")]
    subprocess.run(own, cwd=tmp_path, env=variables, check=True, timeout=120, capture_output=True)
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    run = recorded(script, tmp_path, site)
    found = tool(["diagnose", str(run), "--format", "json", "--select", "open-file-leak"], tmp_path, site)
    (finding,) = json.loads(found.stdout)["findings"]
    assert finding["rule"] == "open-file-leak"
    assert "open-file-leak" in tool(["rules"], tmp_path, site).stdout
    assert "Files are opened and never closed" in tool(["rules", "open-file-leak"], tmp_path, site).stdout


def tool(arguments: list[str], folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    variables = environment()
    variables["PYTHONPATH"] = f"{site}:{variables.get('PYTHONPATH', '')}"
    command = [sys.executable, "-m", "tracelyze", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120, check=True)


def recorded(script: Path, folder: Path, site: Path) -> Path:
    tool(["collect", "--out", str(folder / "run"), "--", sys.executable, str(script)], folder, site)
    return folder / "run"
