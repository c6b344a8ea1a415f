"""Many runs in one call: the same table as a loop over `diagnose`, whatever they hold and wherever they are judged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import tracelyze
from tests.reports import chromium
from tracelyze import fleet as fleets
from tracelyze.cli import fleet as command
from tracelyze.errors import InputError
from tracelyze.fleet import discovery, judging, local, page, storage, summary, table, writing

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_traces"
NAMES = ("fp16-overflow", "healthy", "memory-leak", "missing-zero-grad")
RUNS = ["broken", "deep/er/healthy", "deep/er/missing-zero-grad", "fp16-overflow", "memory-leak"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs at several depths, one of them broken, beside what is none."""
    folder = tmp_path_factory.mktemp("fleet")
    for number, name in enumerate(NAMES):
        shutil.copytree(SAMPLES / name, folder / ("deep/er" if number % 2 else ".") / name)
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text('{"schema_version": 1')
    (folder / "sacred" / "1").mkdir(parents=True)
    (folder / "sacred" / "1" / "run.json").write_text('{"experiment": {}}')  # another program's
    (folder / "deep" / "er" / "healthy" / "checkpoint.pt").write_bytes(b"x" * 1000)
    (folder / "deep" / "er" / "healthy" / "diagnosis.html").write_text("<p>")
    return folder


@pytest.fixture(scope="module")
def looped(runs: Path) -> pa.Table:
    """The table as a loop over `diagnose` makes it."""
    rows: list[dict[str, Any]] = []
    for path in discovery.runs_below([str(runs)]):
        try:
            rows += table.rows_of(path, tracelyze.diagnose(path))
        except InputError as error:
            rows.append(table.error_row(path, str(error)))
    return table.to_arrow(rows)


def test_runs_are_found_at_every_depth_and_no_others(runs: Path) -> None:
    found = discovery.runs_below([str(runs), str(runs / "memory-leak")])
    assert [Path(run).relative_to(runs).as_posix() for run in found] == RUNS
    for place, word in ((runs / "sacred", "no run directory"), (runs / "absent", "no such file or folder")):
        with pytest.raises(InputError, match=word):
            discovery.runs_below([str(place)])


@pytest.mark.starts_programs
def test_the_table_is_that_of_a_loop_over_diagnose(runs: Path, looped: pa.Table, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tracelyze", "fleet", runs, "-o", "f.parquet", "--workers", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = pq.read_table(tmp_path / "f.parquet")
    assert found.equals(looped)
    assert found.schema.field("first_step").metadata == {b"meaning": b"step at which it began"}
    assert "3 of 4 runs have a fault, each a different one; 1 could not be judged" in done.stdout
    assert "Gradients are never cleared (missing-zero-grad): 1 of" in done.stdout
    assert "not valid JSON" in done.stdout
    assert done.stderr.startswith("judging 5 runs\n"), "not silent where stderr is a file either"
    html = (tmp_path / "f.html").read_text()
    assert "missing-zero-grad" in html
    assert "1 run could not be judged" in html
    assert "<script src" not in html


@pytest.mark.starts_programs
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["os._exit(7)", "os.kill(os.getpid(), 9)", "time.sleep(600)", "1 / 0"])
def test_a_run_that_brings_its_process_down_is_a_row(
    fault: str, runs: Path, looped: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nfrom tracelyze import api\nreal = api.diagnose\n"
        f"def deadly(path, **options):\n    if path.name == 'memory-leak':\n        {fault}\n"
        "    return real(path, **options)\napi.diagnose = deadly\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    paths = [str(path) for path in discovery.runs_below([str(runs)]) if Path(path).name != "healthy"]
    (at,) = (number for number, path in enumerate(paths) if path.endswith("memory-leak"))
    late = 12.0 if "sleep" in fault else None
    found = fleets.joined(local.judge(paths, 1, late)).to_pylist()
    (error,) = (row for row in found if row["run"] == paths[at])
    assert error["status"] == "error"
    expected = {"os._exit(7)": "exit status 7", "1 / 0": "ZeroDivisionError", "time.sleep(600)": "longer than 12 s"}
    assert expected.get(fault, "signal 9, as the kernel does when memory runs out") in error["reason"]
    others = [row for row in looped.to_pylist() if row["run"] in paths and row["run"] != paths[at]]
    assert [row for row in found if row["run"] != paths[at]] == others


@pytest.mark.starts_programs
def test_a_bucket_gives_the_same_table_and_only_what_is_needed_is_copied(runs: Path, looped: pa.Table) -> None:
    bucket = fs.SubTreeFileSystem(str(runs), fs.LocalFileSystem())
    assert sorted(run.strip("/") for run in discovery.runs_below([""], bucket)) == sorted(RUNS)
    uri = f"local://{runs}"  # a scheme that fsspec knows and pyarrow does not
    told_rows = [row for row in looped.to_pylist() if row["run"].endswith(("healthy", "broken"))]
    told = dict.fromkeys(row["run"] for row in told_rows)
    for path in told:
        with storage.mirrored(f"{uri}{path.removeprefix(str(runs))}") as folder:
            names = {file.name for file in folder.rglob("*") if file.is_file()}
            assert not names & {"checkpoint.pt", "diagnosis.html"}
            assert "run.json" in names
            kept = next(folder.rglob("*.json")).stat().st_mtime
            assert kept == pytest.approx(next(Path(path).rglob("*.json")).stat().st_mtime, abs=1)
    remote = [f"{uri}{path.removeprefix(str(runs))}" for path in told]
    judged = fleets.joined(local.judge(remote, 1)).to_pylist()
    here = [{**row, "run": row["run"].removeprefix("local://")} for row in judged]
    (error,) = (row for row in judged if row["status"] == "error")
    assert error["reason"].startswith(f"{uri}/broken"), "the mirror is nobody's business"
    assert [row for row in here if row["status"] != "error"] == [row for row in told_rows if row["status"] != "error"]


def test_a_folder_of_logs_is_a_fleet(tmp_path: Path) -> None:
    lines = "\n".join(f"step {step}: loss {2.0 + step:.4f}" for step in range(1, 60))
    (tmp_path / "a.log").write_text(lines)
    (tmp_path / "README.md").write_text("Logs of last week.")
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({"step": n, "loss": 1 / n}) for n in range(1, 60)))
    (tmp_path / "c" / "checkpoint-9").mkdir(parents=True)
    history = [{"step": step, "loss": 1.0, "learning_rate": 1e-4} for step in range(1, 10)]
    (tmp_path / "c" / "checkpoint-9" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    found = discovery.runs_below([str(tmp_path)])
    assert [Path(run).relative_to(tmp_path).as_posix() for run in found] == ["a.log", "b.jsonl", "c"]
    rows = [judging.diagnose_row({"path": run}) for run in found]
    assert {row["status"] for row in rows} == {"judged"}
    for run, row in zip(found, rows, strict=True):
        assert row["checks"] == table.rows_of(run, tracelyze.diagnose(run))


def test_options_of_a_store_stay_at_the_end_of_a_uri() -> None:
    assert storage.joined_uri("s3://b/runs/?region=x&scheme=http", "a/b") == "s3://b/runs/a/b?region=x&scheme=http"
    assert storage.joined_uri("gs://b", "a") == "gs://b/a"


def test_uris_that_cannot_be_opened_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be opened"):
        storage.opened("nosuchscheme://bucket/runs")
    with pytest.raises(InputError, match=r"cannot be (read|listed)"):
        discovery.runs_below([f"local://{tmp_path}/absent"])


def test_the_summary_names_the_commit_and_the_host() -> None:
    def row(number: int, rule: str, fired: bool) -> dict[str, Any]:
        about = {
            "run": f"r{number:02}",
            "verdict": "warning",
            "started_at": f"2026-01-{number + 1:02}",
            "host": "ab"[number % 2],
            "commit": "old" if number < 6 else "newer",
        }
        status = {"status": "fired", "severity": "warning", "title": rule, "seconds_lost": 2.0} if fired else {}
        return {**dict.fromkeys(table.COLUMNS), **about, "rule": rule, "status": "passed", **status}

    rows = [row(n, "since-commit", n >= 6) for n in range(12)]
    rows += [row(n, "one-host", n % 2 == 0) for n in range(12)]
    rows += [row(n, "anywhere", n % 3 == 0) for n in range(12)]
    rows.append(table.error_row("gone", "no such folder"))
    found = summary.summarise(table.to_arrow(rows))
    told = {fault.rule: fault for fault in found.faults}
    assert told["since-commit"].since == "commit newer: 6 of 6 runs, none of 6 before"
    assert told["one-host"].where == "on host a only: 6 of 6 runs, none of 6 elsewhere"
    assert told["anywhere"].since == told["anywhere"].where == ""
    assert (told["since-commit"].seconds, len(told["anywhere"].runs), told["anywhere"].judged) == (12.0, 4, 12)
    assert found.errors == [("gone", "no such folder")]
    assert found.verdicts == {"warning": 12, "error": 1}
    assert "commit newer: 6 of 6 runs, none of 6 before" in page.render(found)


def _summary(*faults: summary.Fault, runs: int = 9, **verdicts: int) -> summary.Summary:
    return summary.Summary(runs, verdicts, [("gone", "no such folder")] * verdicts.get("error", 0), list(faults))


def _fault(rule: str, *runs: str, seconds: float | None = None, since: str = "") -> summary.Fault:
    return summary.Fault(rule, "warning", {run: f"{rule} <{run}>" for run in runs}, 9, seconds, since)


def test_the_headline_counts_runs_that_were_judged() -> None:
    crash, leak = _fault("crash", "a", "b"), _fault("memory-leak", "b")
    assert (
        page.headline(_summary(crash, leak, warning=2, ok=7)) == "2 of 9 runs have a fault, most often crash (2 runs)"
    )
    assert (
        page.headline(_summary(leak, warning=1, ok=6, error=2))
        == "1 of 7 runs has a fault: memory-leak; 2 could not be judged"
    )
    assert page.headline(_summary(ok=9)) == "No fault found in 9 runs"
    note = replace(_fault("clipping-always-active", "a", "b", "c"), severity="info")
    assert page.headline(_summary(leak, note, warning=1, info=2)) == "1 of 9 runs has a fault: memory-leak"
    assert page.headline(_summary(note, info=3)) == "No fault found in 9 runs"
    assert page.headline(_summary(runs=1, error=1)) == "None of 1 run could be judged"


def test_the_page_names_runs_with_what_is_wrong_there_and_has_no_empty_column() -> None:
    html = page.render(_summary(_fault("crash", "first", "second"), warning=2, ok=7))
    assert "crash &lt;second&gt;" in html
    assert "and 1 more run" in html
    for column in ("Time lost", "Since"):
        assert column not in html
    html = page.render(_summary(_fault("crash", "first", seconds=2.0, since="since commit abc: 1 of 1"), warning=1))
    for column in ("Time lost", "Since"):
        assert column in html


def test_the_page_says_what_a_rule_is_and_leads_to_the_report_of_a_run() -> None:
    found = _summary(_fault("crash", "runs/a b", "second"), warning=2, ok=7)
    html = page.render(found, {"crash": "The program died"}, {"runs/a b": "../runs/a%20b/diagnosis.html"})
    assert "<b>The program died</b>" in html
    assert '<a href="../runs/a%20b/diagnosis.html"><code>runs/a b</code></a>' in html.replace("\n", "")
    assert html.count("<a ") == 1, "only a run with a report has a link"


def test_only_reports_that_are_there_are_linked(runs: Path, tmp_path: Path) -> None:
    names = [str(runs / "deep/er/healthy"), str(runs / "memory-leak"), "s3://bucket/run"]
    linked = command._pages(names, tmp_path)
    assert list(linked) == names[:1]
    assert (tmp_path / unquote(linked[names[0]])).resolve() == runs / "deep/er/healthy/diagnosis.html"


@pytest.mark.browser
@pytest.mark.skipif(chromium.BINARY is None, reason="no chromium binary is installed")
def test_the_page_stays_within_a_phone(tmp_path: Path) -> None:
    long = _fault(
        "learning-rate-too-high", "/scratch/" + "deep/" * 30, "b", seconds=9e5, since="since commit abc: 4 of 4"
    )
    path = tmp_path / "fleet.html"
    path.write_text(page.render(_summary(long, warning=2, ok=5, error=2)))
    with chromium.Chromium() as browser:
        for width in (380, 900):
            browser.open(path, width=width)
            browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            assert browser.console == []
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate("document.querySelector('h1').getBoundingClientRect().left") >= 16


@pytest.mark.parametrize("suffix", writing.SUFFIXES)
def test_formats_of_the_table(suffix: str, looped: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / f"fleet{suffix}"
    writing.write(looped, path)
    reader = {".parquet": pd.read_parquet, ".csv": pd.read_csv}.get(suffix, pd.read_feather)
    assert reader(path)["rule"].isna().sum() == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_wrong_name_for_the_table_is_said_before_the_work(tmp_path: Path) -> None:
    for name, word in (("fleet.xlsx", "cannot tell the format"), ("no/fleet.csv", "does not exist")):
        with pytest.raises(InputError, match=word):
            writing.check(tmp_path / name)


def test_dask_maps_it(runs: Path, looped: pa.Table) -> None:
    bag = pytest.importorskip("dask.bag", reason="dask is not installed")
    paths = [{"path": path} for path in discovery.runs_below([str(runs)])]
    rows = bag.from_sequence(paths).map(tracelyze.diagnose_row).pluck("checks").flatten()
    assert table.to_arrow(rows.compute(scheduler="threads", num_workers=2)).equals(looped)


def test_queries_of_the_docs(looped: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of SQL and of pandas on the page runs on a real table."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    monkeypatch.chdir(tmp_path)
    writing.write(looped, Path("fleet.parquet"))
    text = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    queries = [part.split("\n```", 1)[0] for part in text.split("```sql\n")[1:]]
    assert len(queries) >= 3
    answers = [duckdb.sql(query).fetchall() for query in queries]
    assert all(answers), queries
    assert "missing-zero-grad" in json.dumps(answers[0], default=str), answers[0]
    cells = [part.split("\n```", 1)[0] for part in text.split("```python\n")[1:]]
    for cell in (cell for cell in cells if "pd.read_parquet" in cell):
        exec(cell, {})
