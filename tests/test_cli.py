"""The command line, as real processes: what is printed where, what is written, and the exit status.

A fork server that has imported what the commands import runs them: a process each, without the second of imports.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fork_server import client
from tracelyze import __version__, schema
from tracelyze.analyzers.kineto.rules import RULES as TRACE_RULES
from tracelyze.analyzers.rules import RULES
from tracelyze.cli import collect
from tracelyze.errors import InputError

pytestmark = pytest.mark.starts_programs

LOSSES = [2.0, 1.5, 1.2, 1.1, 1.0, 0.9, float("nan"), float("nan"), float("nan"), float("nan")]


def tracelyze(*arguments: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("TRACELYZE", "NO_COLOR", "FORCE_"))
    }
    command = [sys.executable, "-m", "tracelyze", *map(str, arguments)]
    variables = {**inherited, "COLUMNS": "100", "OMP_NUM_THREADS": "1", **environment}
    if "PYTHONPATH" in environment:  # read when Python starts
        return subprocess.run(command, env=variables, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    return client.shared(client.COMMANDS).run(command, variables, cwd=cwd, timeout=120)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with a loss that turns into NaN at step 7, which is a critical finding."""
    log = tmp_path / "log.csv"
    log.write_text("step,loss,lr\n" + "".join(f"{step},{loss},0.1\n" for step, loss in enumerate(LOSSES, 1)))
    done = tracelyze("import", "log", log, tmp_path / "broken", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "imported 10 steps" in done.stderr
    assert "next: tracelyze diagnose" in done.stderr
    return tmp_path / "broken"


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One line on stderr that holds `words`, nothing on stdout, exit status 2."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("tracelyze: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_help_and_version(tmp_path: Path) -> None:
    done = tracelyze("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert tracelyze("-h", cwd=tmp_path).stdout == done.stdout
    helps = [done.stdout, *(tracelyze(name, "--help", cwd=tmp_path).stdout for name in ("import", "collect"))]
    assert not [line for text in helps for line in text.splitlines() if line.endswith("...") and "Usage" not in line], (
        "no line is cut"
    )
    for command in ("collect", "diagnose", "rules", "import", "compact", "schema"):
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE)
    assert "Exit status:" in tracelyze("diagnose", "-h", cwd=tmp_path).stdout
    assert tracelyze("--version", cwd=tmp_path).stdout == f"tracelyze {__version__}\n"


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tracelyze", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    loaded = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "typer" in loaded
    assert not loaded & {"numpy", "pandas", "pyarrow", "torch", "plotly", "rich", "msgspec"}


def test_text_summary_and_page(run: Path, tmp_path: Path) -> None:
    done = tracelyze("diagnose", run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "loss-nonfinite" in done.stdout or "NaN" in done.stdout
    assert done.stdout.endswith(f"Report: {run / 'diagnosis.html'}\n")
    assert "\x1b" not in done.stdout
    assert (run / "diagnosis.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_json_is_the_contract_and_nothing_else_is_written(run: Path, tmp_path: Path) -> None:
    before = sorted(run.rglob("*"))
    done = tracelyze("diagnose", run, "--format", "json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert list(data)[:6] == ["schema_version", "tracelyze_version", "run", "verdict", "verdict_reason", "findings"]
    assert data["verdict"] == "critical"
    assert [finding["rule"] for finding in data["findings"]] == ["loss-nonfinite"]
    assert data["findings"][0]["first_step"] == 7
    assert {check["rule"] for check in data["checks"]} == {rule.id for rule in (*RULES, *TRACE_RULES)}
    assert sorted(run.rglob("*")) == before


def test_formats_on_stdout(run: Path, tmp_path: Path) -> None:
    assert tracelyze("diagnose", run, "-f", "md", cwd=tmp_path).stdout.startswith("#")
    assert "<html" in tracelyze("diagnose", run, "-f", "html", cwd=tmp_path).stdout
    assert json.loads(tracelyze("diagnose", run, "-f", "sarif", cwd=tmp_path).stdout)["version"] == "2.1.0"


def test_output_files_by_suffix(run: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.html", "a.md", "a.json", "a.sarif", "a.txt")]
    done = tracelyze("diagnose", run, *[word for file in files for word in ("-o", file)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(file.stat().st_size > 100 for file in files)
    assert json.loads(files[2].read_text())["verdict"] == "critical"
    assert not (run / "diagnosis.html").exists()
    assert_refused(tracelyze("diagnose", run, "-o", "report.pdf", cwd=tmp_path), "report.pdf", ".html")


def test_no_html(run: Path, tmp_path: Path) -> None:
    assert tracelyze("diagnose", run, "--no-html", cwd=tmp_path).returncode == 0
    assert not (run / "diagnosis.html").exists()


def test_page_goes_to_the_current_directory_if_the_run_cannot_be_written(run: Path, tmp_path: Path) -> None:
    (run / "diagnosis.html").mkdir()  # refuses a file of that name, for root too
    done = tracelyze("diagnose", run, cwd=tmp_path)
    assert done.returncode == 0
    assert "writing broken.diagnosis.html here instead" in done.stderr
    assert done.stdout.endswith("Report: broken.diagnosis.html\n")
    assert (tmp_path / "broken.diagnosis.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 0),
        (["--fail-on", "critical"], 1),
        (["--fail-on", "info"], 1),
        (["--fail-on", "info", "--ignore", "loss-nonfinite"], 0),
        (["--fail-on", "info", "--select", "crash"], 0),
        (["--fail-on", "critical", "--select", "crash,loss-nonfinite"], 1),
        (["--fail-on", "unknown"], 0),
        (["--fail-on", "unknown", "--select", "fp16-overflow"], 1),
        (["--fail-on", "critical", "--fail-on", "unknown", "--select", "fp16-overflow"], 1),
    ],
)
def test_fail_on(run: Path, tmp_path: Path, arguments: list[str], status: int) -> None:
    assert tracelyze("diagnose", run, "--format", "json", *arguments, cwd=tmp_path).returncode == status


def test_select_and_ignore(run: Path, tmp_path: Path) -> None:
    def checked(*arguments: str) -> list[str]:
        done = tracelyze("diagnose", run, "--format", "json", *arguments, cwd=tmp_path)
        return [check["rule"] for check in json.loads(done.stdout)["checks"]]

    assert sorted(checked("--select", "crash, loss-nonfinite")) == ["crash", "loss-nonfinite"]
    assert checked("--select", "crash", "--select", "loss-nonfinite", "--ignore", "crash") == ["loss-nonfinite"]
    for option in ("--select", "--ignore"):
        refused = tracelyze("diagnose", run, option, "loss-nan,los-nonfinite", cwd=tmp_path)
        assert_refused(refused, option, "'loss-nan'", "loss-")


def test_a_profiler_trace_instead_of_a_run(run: Path, tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 5.0}
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    done = tracelyze("diagnose", trace, "--select", "host-bound,crash", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"Report: {tmp_path / 'trace.json.diagnosis.html'}\n")
    data = json.loads(tracelyze("diagnose", trace, "--format", "json", cwd=tmp_path).stdout)
    assert {check["rule"] for check in data["checks"]} == {rule.id for rule in TRACE_RULES}
    (tmp_path / "tracelyze.toml").write_text("[thresholds.host-bound]\nfewest_steps = 4\n")
    assert tracelyze("diagnose", run, "--no-html", cwd=tmp_path).returncode == 0  # one configuration serves both
    done = tracelyze("diagnose", run, "--select", "host-bound", "--format", "json", cwd=tmp_path)
    (check,) = json.loads(done.stdout)["checks"]
    assert (check["rule"], check["status"]) == ("host-bound", "skipped")
    assert check["why"] == "needs-more"
    assert check["command"].startswith("tracelyze collect --profile-every 100 -- ")


def test_wrong_calls_and_inputs(tmp_path: Path) -> None:
    assert_refused(tracelyze("diagnose", tmp_path / "nowhere", cwd=tmp_path), "nowhere", "no such")
    assert_refused(tracelyze("diagnose", tmp_path, cwd=tmp_path), str(tmp_path))
    assert_refused(tracelyze("import", "log", tmp_path / "no.csv", tmp_path / "r", cwd=tmp_path), "no.csv")
    assert_refused(tracelyze("compact", tmp_path / "nowhere", cwd=tmp_path), "nowhere")
    nasty = tmp_path / "a\n\x1b[31mb.json"
    nasty.write_text("no trace")
    assert_refused(tracelyze("diagnose", nasty, cwd=tmp_path), "not JSON", "a run directory", r"\x1b[31mb.json")
    for call in (["diagnose"], ["diagnose", "x", "--format", "pdf"], ["diagnose", "x", "--frobnicate"], ["frobnicate"]):
        done = tracelyze(*call, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(r"tracelyze: error T\d{3}: [^\n]+\n", done.stderr)


def test_what_cannot_be_read_is_told_where_the_list_is_of_what_can(tmp_path: Path) -> None:
    weights = tmp_path / "model.pt"
    weights.write_bytes(b"PK\x03\x04" + bytes(200))
    refused = tracelyze("diagnose", "model.pt", cwd=tmp_path)
    assert_refused(refused, "as torch.save writes", "`tracelyze import formats`")
    assert len(refused.stderr) < 3 * 80
    assert "TensorBoard event files\n" in tracelyze("import", "formats", cwd=tmp_path).stdout


def test_an_import_is_told_where_to_once(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,loss\n" + "".join(f"{step},{1 / step}\n" for step in range(1, 30)))
    assert tracelyze("import", "log", "log.csv", "-o", "kept", cwd=tmp_path).returncode == 0
    assert (tmp_path / "kept" / "run.json").is_file()
    assert_refused(tracelyze("import", "log", "log.csv", cwd=tmp_path), "is missing; write -o RUN")
    assert_refused(tracelyze("import", "log", "log.csv", "a", "-o", "b", cwd=tmp_path), "given twice")
    assert_refused(tracelyze("import", "kineto", "only.json", cwd=tmp_path), "is missing; write -o RUN")


def test_a_log_is_told_to_record_the_run_without_options(run: Path, tmp_path: Path) -> None:
    found = json.loads(tracelyze("diagnose", run, "--format", "json", cwd=tmp_path).stdout)
    commands = {check["command"] for check in found["checks"] if check["status"] == "skipped"}
    assert commands == {
        "",
        "tracelyze collect -- python train.py",
        "tracelyze collect --profile-every 100 -- python train.py",
    }
    plain = [check for check in found["checks"] if check["command"] == "tracelyze collect -- python train.py"]
    assert len(plain) > len(found["checks"]) / 2, "what most checks need"


def test_colour(run: Path, tmp_path: Path) -> None:
    assert "\x1b[" in tracelyze("diagnose", run, "--no-html", cwd=tmp_path, FORCE_COLOR="1").stdout
    assert "\x1b[" not in tracelyze("diagnose", run, "--no-html", cwd=tmp_path, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_a_reader_that_goes_away_is_no_error(run: Path) -> None:
    command = f"'{sys.executable}' -m tracelyze diagnose '{run}' --format html | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "141\n"
    assert done.stderr == ""


def test_rules(tmp_path: Path) -> None:
    listed = tracelyze("rules", cwd=tmp_path).stdout
    for rule in (*RULES, *TRACE_RULES):
        assert re.search(rf"^{rule.id} +(critical|warning|info) +\S", listed, re.MULTILINE)
    data = json.loads(tracelyze("rules", "--format", "json", cwd=tmp_path).stdout)
    assert sorted(rule["id"] for rule in data) == sorted({rule.id for rule in (*RULES, *TRACE_RULES)})
    page = tracelyze("rules", "memory-leak", cwd=tmp_path).stdout
    assert page.startswith("memory-leak: ")
    assert "[tool.tracelyze.thresholds.memory-leak]" in page
    assert "What to change:\n" in page
    assert "\nTo verify:\n" in page
    assert_refused(tracelyze("rules", "memory-leek", cwd=tmp_path), "'memory-leek'", "did you mean", "memory-leak")


def test_schema_documents_every_column(tmp_path: Path) -> None:
    page = tracelyze("schema", cwd=tmp_path).stdout
    for table in schema.TABLES:
        section = page.split(f"\n## {table.name}\n")[1].split("\n## ")[0]
        for column in table.columns:
            assert f"| {column.name} | {column.type} |" in section


def test_collect_passes_the_command_through(tmp_path: Path) -> None:
    script = tmp_path / "probe.py"
    script.write_text("import sys; print(sys.argv[1:]); print('err', file=sys.stderr); sys.exit(7)")
    arguments = ["--help", "-q", "-o", "x", "--out=y", "--", "--version", "-h"]
    for dashes in ([], ["--"]):
        done = tracelyze(
            "collect", "--out", f"run{len(dashes)}", *dashes, sys.executable, script, *arguments, cwd=tmp_path
        )
        assert done.stdout == f"{arguments!r}\n"
        assert done.returncode == 7
        assert done.stderr.splitlines()[0].startswith("[tracelyze]")
        manifest = json.loads((tmp_path / f"run{len(dashes)}" / "run.json").read_text())
        assert manifest["command"] == [sys.executable, str(script), *arguments]
    quiet = tracelyze("collect", "-q", "--out", "silent", "--", sys.executable, script, cwd=tmp_path)
    assert quiet.stderr == "err\n"


def test_collect_refuses_wrong_calls(tmp_path: Path) -> None:
    assert_refused(tracelyze("collect", cwd=tmp_path), "python train.py")
    assert_refused(tracelyze("collect", "--", cwd=tmp_path), "python train.py")
    assert_refused(tracelyze("collect", "--", "no-such-program", cwd=tmp_path), "no-such-program")
    signal = tracelyze("collect", "--no-signal", "gradient-nrom", "--", sys.executable, "x.py", cwd=tmp_path)
    assert_refused(signal, "gradient_norm")
    unknown = tracelyze("collect", "--signal", "foo=on", "--", sys.executable, "x.py", cwd=tmp_path)
    assert_refused(unknown, "'foo'", "`tracelyze signals` lists them")
    assert len(unknown.stderr) < 2 * 80
    assert list(tmp_path.iterdir()) == []


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    """As of a shell that stands in a folder which another one has removed."""
    for call in ("diagnose", "collect -- python train.py", "rules"):
        command = f'mkdir gone && cd gone && rmdir ../gone && exec "{sys.executable}" -m tracelyze {call}'
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        if call == "rules":
            assert done.returncode == 0
        else:
            assert_refused(done, "T201", "the working directory was removed", "change into one that is there")


def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C while a command works ends it with 130 and without a traceback."""
    program = "from tracelyze import cli\nfrom tracelyze.catalogue import pages\ndef stop(): raise KeyboardInterrupt\n"
    program += "pages.run_directory_page = stop\nimport sys; sys.argv = ['tracelyze', 'schema']\ncli.main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_what_nobody_foresaw_is_one_line_and_a_report_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import tracelyze.analyzers.overview as overview\n"
        "def broken(*a, **k): raise RuntimeError('token=hf_abcdefghijklmnopqrstuvwxyz is no number')\n"
        "overview.Facts.add = broken\n"
    )
    path = os.pathsep.join((str(tmp_path), str(Path(__file__).resolve().parent.parent)))
    done = tracelyze("diagnose", run, cwd=tmp_path, PYTHONPATH=path, TMPDIR=str(tmp_path))
    assert_refused(done, "an error of tracelyze itself", "RuntimeError", "please send it in")
    (report,) = tmp_path.glob("tracelyze-error-*.txt")
    assert str(report) in done.stderr
    text = report.read_text()
    assert f"tracelyze {__version__}, Python" in text
    assert "Traceback (most recent call last)" in text
    assert "in broken" in text
    assert "hf_abc" not in text + done.stderr


def test_wishes_for_signals() -> None:
    wishes = collect._wishes(["learning_rate,loss=off", "gradient-norm=every:7", "loss=on"])
    assert [(wish.name, wish.on, wish.every) for wish in wishes] == [
        ("learning_rate", False, None),
        ("loss", True, None),
        ("gradient_norm", True, 7),
    ]
    for wrong in ("=on", "loss=every:0", "loss"):
        with pytest.raises(InputError, match="=every:N with N in steps"):
            collect._wishes([wrong])
