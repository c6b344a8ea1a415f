"""The configuration: where it is looked for, what it changes, and what is said about a mistake in it."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from pathlib import Path

import pytest

from tests.fork_server import client
from tracelyze import config
from tracelyze.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "[tool.tracelyze" in page.read_text()
]
RULES = {"memory-leak": ("absolute", "horizon"), "crash": ()}


def load(folder: Path, text: str, name: str = "tracelyze.toml") -> config.Settings:
    (folder / name).write_text(text)
    return config.load(None, folder, RULES)


def test_no_configuration_is_the_default(tmp_path: Path) -> None:
    assert config.load(None, tmp_path, RULES) == config.Settings()


def test_own_file(tmp_path: Path) -> None:
    settings = load(tmp_path, 'select = ["crash"]\nignore = ["memory-leak"]\n[thresholds.memory-leak]\nabsolute = 64\n')
    assert (settings.select, settings.ignore) == (("crash",), ("memory-leak",))
    assert settings.thresholds == {"memory-leak": {"absolute": 64.0}}
    assert settings.file == tmp_path / "tracelyze.toml"


def test_the_nearest_file_upwards_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.tracelyze]\nignore = ["crash"]\n')
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")  # does not speak of tracelyze
    assert config.load(None, inner, RULES).ignore == ("crash",)
    (tmp_path / "tracelyze.toml").write_text('ignore = ["memory-leak"]\n')  # wins over its neighbour
    assert config.load(None, inner, RULES).ignore == ("memory-leak",)
    (inner / "tracelyze.toml").write_text("")
    assert config.load(None, inner, RULES).ignore == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('selct = ["crash"]', "no such setting: 'selct'; did you mean select"),
        ('ignore = ["memory_leak"]', "ignore: no such rule: 'memory_leak'; did you mean memory-leak"),
        ('select = "crash"', "select must be a list of rule ids"),
        ("[thresholds.memory-leek]\nhorizon = 1", "thresholds: no such rule: 'memory-leek'; did you mean memory-leak"),
        (
            "[thresholds.memory-leak]\nabsolut = 1",
            "thresholds.memory-leak: no such threshold: 'absolut'; did you mean absolute",
        ),
        ("[thresholds.memory-leak]\nzzz = 1", "'zzz'; known are absolute, horizon"),
        ("[thresholds.crash]\nx = 1", "'x'; known are none"),
        ('[thresholds.memory-leak]\nhorizon = "8"', "thresholds.memory-leak.horizon: '8' is not a number"),
        ("[thresholds.memory-leak]\nhorizon = true", "is not a number"),
        ("[thresholds.memory-leak]\nhorizon = nan", "is not a number"),
        ("thresholds = 3", "thresholds must hold one table a rule"),
        ("thresholds.crash = 3", "thresholds.crash must be a table"),
        ("select = [", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_the_nearest_name(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        load(tmp_path, text)
    assert str(refused.value).startswith(str(tmp_path / "tracelyze.toml"))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_was_asked_for_must_hold_settings(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    with pytest.raises(InputError, match=r"holds no \[tool.tracelyze\] table"):
        config.load(tmp_path / "pyproject.toml", tmp_path, RULES)
    with pytest.raises(InputError, match="No such file"):
        config.load(tmp_path / "nowhere.toml", tmp_path, RULES)
    (tmp_path / "other.toml").write_text('[tool.tracelyze]\nignore = ["crash"]')
    assert config.load(tmp_path / "other.toml", tmp_path, RULES).ignore == ("crash",)


@pytest.mark.starts_programs
def test_diagnose_obeys_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,loss\n1,2\n2,nan\n3,nan\n")
    (tmp_path / "tracelyze.toml").write_text('select = ["loss-nonfinite", "crash"]\nignore = ["crash"]\n')
    (tmp_path / "other.toml").write_text('ignore = ["loss-nonfinite"]\n')

    server = client.shared(client.COMMANDS)

    def checked(*arguments: str) -> list[str]:
        command = [sys.executable, "-m", "tracelyze", "diagnose", "run", "--format", "json", *arguments]
        done = server.run(command, os.environ, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [check["rule"] for check in json.loads(done.stdout)["checks"]]

    importing = [sys.executable, "-m", "tracelyze", "import", "log", "log.csv", "run"]
    imported = server.run(importing, os.environ, cwd=tmp_path)
    assert imported.returncode == 0, imported.stderr
    assert checked() == ["loss-nonfinite"]
    assert checked("--select", "killed,crash") == ["killed"]  # takes the place of select; ignore stays
    assert "loss-nonfinite" not in checked("--config", "other.toml")


EXAMPLES = re.compile(r"^(?:    )?\[tool\.tracelyze.*?(?=\n\n(?!(?:    )?\[)|\n```)", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("where", ["tracelyze/config.py", *(str(page.relative_to(ROOT)) for page in PAGES)])
def test_the_examples_of_a_configuration_are_valid(tmp_path: Path, where: str) -> None:
    """Every rule and threshold that an example sets exists."""
    from tracelyze.catalogue.entries import ThresholdNames

    text = (ROOT / where).read_text(encoding="utf-8")
    examples = EXAMPLES.findall(text)
    for example in examples:
        (tmp_path / "pyproject.toml").write_text(textwrap.dedent(example))
        assert config.load(None, tmp_path, ThresholdNames()).file == tmp_path / "pyproject.toml"
    assert examples or where != "tracelyze/config.py"
