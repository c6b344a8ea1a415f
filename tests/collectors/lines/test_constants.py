"""Lines that give a constant to a name which a line of interest uses, in every way in which scripts do so."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.conftest import Collect
from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines.settings import constants as constants_of
from tracelyze.collectors.program.lines.settings.constants import MOST, Constants
from tracelyze.collectors.program.lines.settings.source_text import SourceText

Rows = list[dict[str, Any]]
Read = Callable[..., Rows]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """The rows of a script whose line with `# use` makes an optimizer; `more` are texts of other modules of it."""

    def rows(script: str, **more: str) -> Rows:
        modules: dict[str, types.ModuleType] = {}  # and none of those that other tests have in memory
        for name, text in {"train": script, **more}.items():
            path = tmp_path / f"{name}.py"
            path.write_text(text)
            module = types.ModuleType(name)
            module.__file__ = str(path)
            modules[f"written_{name}"] = module
        own = [(module.__file__, module) for module in modules.values()]
        monkeypatch.setattr(constants_of, "script_modules", lambda: own)
        linecache.checkcache()
        found: Rows = []
        sites = Sites(found.append)
        used = [at for at, text in enumerate(script.splitlines(), 1) if "# use" in text]
        for line in used or [1]:
            sites.add("optimizer", str(tmp_path / "train.py"), line, "main")
        for line in [at for at, text in enumerate(script.splitlines(), 1) if "# schedules" in text]:
            sites.add("scheduler", str(tmp_path / "train.py"), line, "main")
        constants = Constants(sites)
        constants.read()
        constants.read()
        return [row for row in found if row["role"] == "constant" and row["file"].startswith(str(tmp_path))]

    return rows


WAYS = {
    "module": "LR = 3.0  # here\nopt = Adam(p, lr=LR)  # use\n",
    "subscript": 'hp = {}\nhp["lr"] = 3.0  # here\nopt = Adam(p, lr=hp["lr"])  # use\n',
    "dictionary": 'hp = {\n    "name": "adamw",\n    "lr": 3.0,  # here\n}\nopt = Adam(p, lr=hp["lr"])  # use\n',
    "keywords": "hp = dict(lr=3.0, wd=0.1)  # here\nopt = Adam(p, lr=hp.lr)  # use\n",
    "dataclass": "@dataclass\nclass Config:\n    name: str = 'x'\n    lr: float = 3.0  # here\n\n"
    "cfg = Config()\nopt = Adam(p, lr=cfg.lr)  # use\n",
    "field": "@dataclass\nclass Config:\n    lr: float = field(default=3.0, metadata={})  # here\n"
    "opt = Adam(p, lr=cfg.lr)  # use\n",
    "option": 'parser.add_argument("-l", "--lr", type=float, default=3.0, help="the rate")  # here\n'
    "opt = Adam(p, lr=args.lr)  # use\n",
    "lines": 'parser.add_argument(\n    "--lr",\n    type=float,\n    default=3.0,  # here\n    help="a, b",\n)\n'
    "opt = Adam(p, lr=args.lr)  # use\n",
    "dashes": 'parser.add_argument("--learning-rate", default=3.0)  # here\nopt = Adam(p, args.learning_rate)  # use\n',
    "named": 'parser.add_argument("--rate", dest="lr", default=3.0)  # here\nopt = Adam(p, args.lr)  # use\n',
    "click": '@click.option("--lr", default=3.0)  # here\ndef main(lr):\n    opt = Adam(p, lr=lr)  # use\n',
    "absl": 'flags.DEFINE_float("lr", 3.0, "The rate.")  # here\nopt = Adam(p, lr=FLAGS.lr)  # use\n',
    "default": "def main(model, lr: float = 3.0):  # here\n    opt = Adam(p, lr=lr)  # use\n",
    "default of several lines": "def main(\n    model,\n    lr=3.0,  # here\n):\n    opt = Adam(p, lr=lr)  # use\n",
    "argument": "def main(lr):\n    opt = Adam(p, lr=lr)  # use\n\nmain(lr=3.0)  # here\n",
    "argument by place": "def main(model, lr):\n    opt = Adam(p, lr=lr)  # use\n\nmain(net, 3.0)  # here\n",
    "method": "class T:\n    def __init__(self, m, lr):\n        opt = Adam(m, lr=lr)  # use\n\nT(net, 3.0)  # here\n",
    "attribute": "class T:\n    def __init__(self):\n        self.lr = 3.0  # here\n"
    "        opt = Adam(p, lr=self.lr)  # use\n",
    "by another name": "rate = 3.0  # here\ndef main(lr):\n    opt = Adam(p, lr=lr)  # use\nmain(lr=rate)\n",
    "kept by an object": "class Average:\n    def __init__(self, model, decay=0.5):\n        self.decay = decay\n"
    "    def update(self, a, b):\n        a.lerp_(b, 1 - self.decay)  # use\n\nAverage(net, decay=cfg.ema_decay)\n"
    "class Config:\n    ema_decay: float = 3.0  # here\n",
    "together": "epochs, lr = 5, 3.0  # here\nopt = Adam(p, lr=lr)  # use\n",
    "branch": "if fast: lr = 3.0  # here\nopt = Adam(p, lr=lr)  # use\n",
    "several lines": "lr = 3.0  # here\nopt = Adam(  # use\n    p,\n    lr=lr,\n)\n",
}


@pytest.mark.parametrize("way", WAYS)
def test_where_a_name_gets_its_value(read: Read, way: str) -> None:
    found = [(row["line"], row["value"]) for row in read(WAYS[way]) if row["value"] == "3.0"]
    (wanted,) = (at for at, text in enumerate(WAYS[way].splitlines(), 1) if "# here" in text)
    assert found == [(wanted, "3.0")]


def test_what_names_a_line_and_what_its_value_is_called_there(read: Read) -> None:
    (row,) = read(WAYS["by another name"])
    assert (row["name"], row["own_name"], row["function"]) == ("lr", "rate", "<module>")
    (row,) = read(WAYS["dataclass"])
    assert (row["name"], row["own_name"], row["function"]) == ("lr", "lr", "Config")


@pytest.mark.parametrize(
    "text",
    [
        '"""\nlr = 3.0\n"""\nopt = Adam(p, lr=lr)  # use\n',
        "# lr = 3.0\nopt = Adam(p, lr=lr)  # use\n",
        "plot(lr=3.0)\nopt = Adam(p, lr=lr)  # use\n",
        "print('lr = 3.0', lr == 3.0, lr <= 3.0)\nopt = Adam(p, lr=lr)  # use\n",
        "lr = 3.0 * world\nopt = Adam(p, lr=lr)  # use\n",
        "lr = f(3.0)\nlr *= 3.0\nopt = Adam(p, lr=lr)  # use\n",
        "for lr in (3.0, 0.3):\n    opt = Adam(p, lr=lr)  # use\n",
        "momentum = 3.0\nopt = Adam(p, lr=lr)  # use\n",
    ],
)
def test_what_gives_no_constant(read: Read, text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("size = 4 * 256", "4 * 256"),
        ("size: int = 2 ** 10", "2 ** 10"),
        ("size = 10*1024//8  # a few", "10*1024//8"),
        ("size: int = field(default=4 * 256, metadata={})", "4 * 256"),
        ('hp = {"size": 4 * 256, "other": 1}', "4 * 256"),
        ('hp = {"size": 4 * world, "other": 1}', None),
        ("size = 4 * 256 * world", None),
        ("size = 4 * 256.mean()", None),
        ("size = 4 * (256 + 1)", None),
    ],
)
def test_numbers_that_are_put_together(read: Read, line: str, value: str | None) -> None:
    found = [row["value"] for row in read(f"{line}\nopt = Adam(p, size)  # use\n")]
    assert found == ([value] if value else [])


SCHEDULE = """
hp = {"warmup_steps": 4_000, "other_steps": 7}
def of(hp):
    warm = hp["warmup_steps"]
    def factor(step):
        return min(1.0, (step + 1) / warm)
    return factor

def apart(hp):
    return hp["other_steps"]

opt = Adam(p, lr=lr)  # use
sched = LambdaLR(opt, of(hp))  # schedules
"""


def test_constants_of_the_function_that_computes_a_schedule(read: Read) -> None:
    assert {(row["line"], row["own_name"], row["value"]) for row in read(SCHEDULE)} == {(2, "warmup_steps", "4_000")}
    assert read(SCHEDULE.replace("# schedules", "")) == []


def test_other_modules_of_the_script_are_read(read: Read) -> None:
    config = "class Config:\n    lr = 3.0\n    seed = 1\n"
    (row,) = read("opt = Adam(p, lr=Config.lr)  # use\n", settings=config, other="rate = 3.0\n")
    assert (Path(row["file"]).name, row["line"], row["function"]) == ("settings.py", 2, "Config")


def test_no_other_strings_are_recorded(read: Read) -> None:
    text = (
        'db = connect("root", "hunter22")\n'
        "lr = 3.0\n"
        'wandb.login("0123 and so on, of forty characters")\n'
        'hp = dict(wd=0.1, path="/home/ada/the data/of=a customer")\n'
        'api_key, clip = "hunter22", 1.0\n'
        "opt = Adam(p, lr=lr, weight_decay=hp.wd, clip=clip)  # use\n"
    )
    (row,) = read(text)
    assert (row["line"], row["excerpt"], row["excerpt_line"]) == (2, "lr = 3.0", 2)


def test_numbers_stand_in_what_is_shown_beside_a_constant(read: Read) -> None:
    text = 'parser.add_argument("--epochs", default=3)\nparser.add_argument("--lr", default=3.0)\n\nx = 1\n'
    (row,) = read(f"{text}opt = Adam(p, lr=args.lr)  # use\n")
    assert row["excerpt"] == f"{text}opt = Adam(p, lr=args.lr)  # use"


def test_their_number_is_limited(read: Read) -> None:
    assert len(read("lr = 3.0\n" * (2 * MOST) + "opt = Adam(p, lr=lr)  # use\n")) == MOST


@pytest.mark.parametrize("text", ["lr = 3.0)\nopt = Adam(p, lr=lr)  # use\n", "x = (((\n", '"""', "def ", "\\"])
def test_text_that_is_no_python_is_no_error(read: Read, text: str) -> None:
    read(text)


def test_a_script_that_no_file_holds_is_no_error() -> None:
    """That of `python -c`, of a notebook, or one that has become shorter since it was read."""
    sites = Sites(lambda row: None)
    for file in ("<string>", "<stdin>"):
        sites.add("optimizer", file, 35, "main")
    Constants(sites).read()
    assert [SourceText("a = 1\nb = 2").lines(line, line) for line in (1, 2, 3, 4)] == ["a = 1", "b = 2", "", ""]


PROGRAM = """
import argparse
import torch

def build(model, args):
    return torch.optim.SGD(model.parameters(), lr=args.lr)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    model = torch.nn.Linear(4, 1)
    optimizer = build(model, args)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()

main()
"""


def test_of_a_training(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    (process,) = collect(sys.executable, str(script)).run.processes
    (row,) = (row for row in process.sites.records() if row["role"] == "constant" and row["name"] == "lr")
    assert (row["line"], row["value"], row["function"]) == (10, "0.01", "main")


@pytest.mark.starts_programs
def test_an_odd_momentum_of_batchnorm_is_looked_for_by_name(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        """
import torch
NORM = dict(momentum=0.97, eps=1e-3)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4, **NORM))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""
    )
    for text, lines in ((script.read_text(), [3]), (script.read_text().replace("0.97", "0.03"), [])):
        script.write_text(text)
        (process,) = collect(sys.executable, str(script)).run.processes
        found = [
            row["line"] for row in process.sites.records() if row["role"] == "constant" and row["name"] == "momentum"
        ]
        assert found == lines


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("    balance_weight: float = 0.0", True),
        ("    aux_loss_coef: float = 0", True),
        ("    balance_weight: float = 0.01", False),
        ("    dropout: float = 0.0", False),
        ("    maximum: float = 0.0", False),
    ],
)
def test_a_weight_of_a_balance_is_looked_for_where_it_is_nothing(read: Read, line: str, found: bool) -> None:
    rows = read(f"class Config:\n{line}\n\nopt = Adam(p, lr=0.1)  # use\n")
    assert [row["line"] for row in rows if row["line"] == 2] == [2] * found
