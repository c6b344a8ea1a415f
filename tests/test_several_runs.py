"""The newest run below runs/, a folder of runs as a list, and the sign of life on stderr."""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from tracelyze import config, reports
from tracelyze.api import diagnose
from tracelyze.cli import progress, several_runs
from tracelyze.errors import InputError

SAMPLES = Path(__file__).resolve().parent.parent / "sample_traces"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs") / "runs"
    for number, name in enumerate(("missing-zero-grad", "healthy")):
        shutil.copytree(SAMPLES / name, folder / name)
        os.utime(folder / name / "run.json", (1000 + number, 1000 + number))
    (folder / "damaged").mkdir()
    (folder / "damaged" / "run.json").write_text("{")
    os.utime(folder / "damaged" / "run.json", (1, 1))
    (folder / "notes.txt").write_text("no run")
    return folder


def test_the_newest_run_is_the_one_that_was_started_last(runs: Path, tmp_path: Path) -> None:
    assert several_runs.newest(runs).name == "healthy"
    with pytest.raises(InputError, match="no run is here; record one with tracelyze collect"):
        several_runs.newest(tmp_path)


def test_a_part_of_a_run_stands_for_all_of_it(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs / "healthy"
    (process,) = run.glob("rank*")
    for part in (run / "run.json", process, process / "process.json"):
        assert several_runs.whole(part) == run
        assert f"diagnosing {run}, the run that {part} belongs to" in capsys.readouterr().err
        assert diagnose(part).run.steps == diagnose(run).run.steps
    assert several_runs.newest(run) == run
    monkeypatch.chdir(process)
    assert several_runs.newest().resolve() == run.resolve()
    assert several_runs.whole(Path("../run.json")).resolve() == run.resolve()


def test_what_only_lies_in_the_folder_of_a_run_is_read_as_what_it_is(runs: Path, tmp_path: Path) -> None:
    log = runs / "healthy" / "train.log"
    log.write_text("step 1 loss 2.0\n")
    elsewhere = tmp_path / "run.json"
    elsewhere.write_text("{}")
    for path in (log, tmp_path / "none", tmp_path / "rank00000-attempt0-pid1", runs):
        assert several_runs.whole(path) == path


def test_a_folder_of_runs_is_listed_with_their_verdicts(runs: Path) -> None:
    text, found = several_runs.listed(runs, lambda run: diagnose(run))
    assert sorted(diagnosis.verdict for diagnosis in found) == ["critical", "ok"]
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        "damaged",
        "healthy",
        "missing-zero-grad",
    ]
    assert "✔ ok" in text
    assert "Gradients are never cleared: 239 of 240 steps reused old gradients" in text
    assert "- unreadable" in lines[0]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_gives_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    for terminal, seen in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress.working("reading runs/a"):
            time.sleep(0.4)
        assert ("reading runs/a" in terminal.getvalue()) is seen


def test_what_is_quick_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.working("reading runs/a"):
        pass
    assert "reading" not in terminal.getvalue()


def test_links_lead_where_the_configuration_says(tmp_path: Path) -> None:
    file = tmp_path / "tracelyze.toml"
    file.write_text('docs_url = "https://intranet.example/tracelyze"\n')
    assert config.load(file, tmp_path, {}).docs_url == "https://intranet.example/tracelyze"
    file.write_text("docs_url = 'javascript:alert(1)'\n")
    with pytest.raises(InputError, match="docs_url must be an address"):
        config.load(file, tmp_path, {})


def test_every_suffix_of_markdown() -> None:
    assert reports.format_of("a.markdown") == reports.format_of("a.md") == "markdown"
    assert reports.format_of("findings.xml") == "junit"
