"""Every error that a user can cause has a code that is unique, used and explained."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from tracelyze import cli
from tracelyze.catalogue import pages
from tracelyze.errors import GROUPS, Cause, InputError

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "tracelyze").rglob("*.py"))


def test_codes_are_unique_and_grouped() -> None:
    codes = [cause.code for cause in Cause]
    assert codes == sorted(set(codes)), "a new code stands at the end of its group"
    assert all(re.fullmatch(r"T\d{3}", code) and code[:2] in GROUPS for code in codes)


def test_every_cause_is_used() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    own = {"NO_SUCH_PATH", "UNREADABLE"}  # of Cause.of_reading
    assert "Cause.of_reading(" in text
    assert not [cause.name for cause in Cause if f"Cause.{cause.name}" not in text and cause.name not in own]


def test_every_error_names_its_cause() -> None:
    """mypy checks the type; this holds that no cause is chosen from outside, where its code could change."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError":
                cause = ast.unparse(node.args[0])
                assert re.fullmatch(r"Cause\.([A-Z_]+|of_reading\(error\))|error\.cause", cause), (
                    f"{path}:{node.lineno}"
                )


def test_every_cause_is_explained() -> None:
    page = pages.errors_page()
    for cause in Cause:
        assert f"### {cause.code}\n" in page
        explained = cause.value
        assert explained.meaning.endswith(".")
        assert explained.remedy.endswith(".")
        assert len(explained.example) <= 120
        assert "\n" not in explained.example


def test_what_could_not_be_read(tmp_path: Path) -> None:
    assert Cause.of_reading(FileNotFoundError()) is Cause.NO_SUCH_PATH
    assert Cause.of_reading(PermissionError()) is Cause.UNREADABLE


def test_an_error_says_its_message_alone_and_can_be_sent_between_processes() -> None:
    error = pickle.loads(pickle.dumps(InputError(Cause.NOT_A_RUN, "runs: no run directory")))
    assert (str(error), error.code, error.cause) == ("runs: no run directory", "T301", Cause.NOT_A_RUN)


def test_the_command_line_shows_the_code(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["tracelyze", "diagnose", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert re.fullmatch(r"tracelyze: error T201: .*none: .*\n", capsys.readouterr().err)
