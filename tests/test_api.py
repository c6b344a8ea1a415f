"""tracelyze from Python: the public names, what importing them costs, and what they answer."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import tracelyze
from tracelyze import schema
from tracelyze.analyzers.context import fitted
from tracelyze.fleet.table import COLUMNS

SAMPLES = Path(__file__).resolve().parent.parent / "sample_traces"
SAMPLE = SAMPLES / "missing-zero-grad"


def test_public_names() -> None:
    assert tracelyze.__all__ == ["InputError", "Recorder", "diagnose", "diagnose_row", "load", "log"]
    assert set(tracelyze.__all__) <= set(dir(tracelyze))
    for name in tracelyze.__all__:
        assert (getattr(tracelyze, name).__doc__ or "").strip(), f"{name} has no docstring"
    with pytest.raises(AttributeError, match="no attribute 'judge'"):
        _ = tracelyze.judge  # type: ignore[attr-defined]


@pytest.mark.starts_programs
def test_importing_the_package_inside_a_training_imports_nothing_of_the_analysis() -> None:
    program = (
        "import sys; before = set(sys.modules); import tracelyze; tracelyze.log\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*new & {'numpy', 'pandas', 'pyarrow', 'torch', 'typer', 'msgspec', 'fsspec', 'ray'})\n"
        "print(*(name for name in sys.modules if name.startswith(('tracelyze.analyzers', 'tracelyze.fleet'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


def test_diagnose_a_run_and_a_trace(tmp_path: Path) -> None:
    diagnosis = tracelyze.diagnose(SAMPLE)
    assert (diagnosis.verdict, diagnosis.roots()[0].rule) == ("critical", "missing-zero-grad")
    assert [check.rule for check in tracelyze.diagnose(str(SAMPLE), select=["crash"]).checks] == ["crash"]
    trace = tmp_path / "trace.json"
    events = [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": i * 10, "dur": 5} for i in range(20)]
    trace.write_text(json.dumps({"traceEvents": events}))
    assert tracelyze.diagnose(trace).run.path == str(trace)
    with pytest.raises(tracelyze.InputError, match="no such folder"):
        tracelyze.diagnose(tmp_path / "absent")
    with pytest.raises(tracelyze.InputError, match="no such rule"):
        tracelyze.diagnose(SAMPLE, select=["no-rule"])


def test_tables_of_a_run_as_pandas() -> None:
    run = tracelyze.load(SAMPLE)
    steps = run.to_pandas("steps")
    assert list(steps.columns[:3]) == ["process", "rank", "attempt"]
    assert set(steps["process"]) == {process.name for process in run.processes}
    assert steps["step"].tolist() == list(range(1, len(run.processes[0].steps) + 1))
    pd.testing.assert_series_equal(
        steps["loss"], pd.Series(run.processes[0].steps["loss"], name="loss"), check_exact=True
    )
    assert steps["backwards"].dtype == "Int64"
    for table in schema.TABLES:
        assert set(run.to_pandas(table.name).columns) >= {column.name for column in table.columns}
    with pytest.raises(KeyError, match="no table 'losses'"):
        run.to_pandas("losses")


def test_a_row_of_a_run_is_plain_data_and_the_same_everywhere(tmp_path: Path) -> None:
    judge = pickle.loads(pickle.dumps(tracelyze.diagnose_row))
    row = judge({"path": str(SAMPLE), "team": "vision"})
    diagnosis = tracelyze.diagnose(SAMPLE)
    assert (row["team"], row["status"], row["verdict"]) == ("vision", "judged", diagnosis.verdict)
    assert all(list(check) == list(COLUMNS) for check in row["checks"])
    assert [(c["rule"], c["status"]) for c in row["checks"]] == [(c.rule, c.status) for c in diagnosis.checks]
    fired = {check["rule"]: check for check in row["checks"] if check["status"] == "fired"}
    (root,) = (finding for finding in diagnosis.findings if finding.rule == "missing-zero-grad")
    assert root.location is not None
    assert fired[root.rule]["first_step"] == root.first_step
    assert (fired[root.rule]["file"], fired[root.rule]["line"]) == (root.location.file, root.location.line)
    assert json.loads(json.dumps(row["checks"])) == row["checks"]
    assert pickle.loads(pickle.dumps(row)) == judge({"path": str(SAMPLE), "team": "vision"})

    broken = judge({"path": str(tmp_path / "absent")})
    assert (broken["status"], broken["verdict"]) == ("error", None)
    assert [check["status"] for check in broken["checks"]] == ["error"]
    assert "no such folder" in broken["checks"][0]["reason"]


def test_the_page_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (SAMPLES.parent / "docs" / "python.md").read_text(encoding="utf-8")
    cells = [part.split("\n```", 1)[0] for part in page.split("```python\n")[1:]]
    assert len(cells) >= 9
    (tmp_path / "sample_traces").symlink_to(SAMPLES)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in cells:
        exec("\n".join(line for line in cell.split("\n") if ".plot(" not in line), names)
    assert (tmp_path / "diagnosis.html").stat().st_size > 1000
    assert names["row"]["verdict"] == "warning"  # type: ignore[index]


def test_a_title_that_is_too_long_loses_what_follows_its_colon() -> None:
    name = "ScheduleFreeAdamWithDecoupledWeightDecay"
    head = f"The learning rate of {name}, 0.0012, is too high"
    assert fitted(f"{head}: the model ends with one answer for all") == head
    assert fitted(f"Ended: {'word ' * 30}").endswith(" …")  # too little stands before the colon
    assert fitted(head) == head
