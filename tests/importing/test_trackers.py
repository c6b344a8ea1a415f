"""Runs as trackers leave them on disk: Comet, ClearML, Neptune, SwanLab, Aim.

The files in tracker_files were written by comet_ml 3.58.8, clearml 2.1.12, and the writer of neptune-exporter 0.1.0.
SwanLab and Aim read their own files, so their packages write them here, where they are installed.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tracelyze.analyzers import load
from tracelyze.errors import InputError
from tracelyze.importing import recordings

FILES = Path(__file__).with_name("tracker_files")
# What it is taken for, steps, evaluations, the first loss and the last, the last norm.
SESSIONS = {
    "comet.zip": ("an offline session of Comet", 16, 1, (2.3, math.nan), 1.0),
    "clearml.zip": ("an offline session of ClearML", 40, 4, (2.3, 0.0), 1.4),  # ClearML writes NaN as 0
    "neptune": ("an export of neptune-exporter", 40, 4, (2.3, math.nan), 1.4),
}


def check(run: Path, steps: int, evals: int, ends: tuple[float, float], norm: float) -> None:
    (process,) = load(run).processes
    assert list(process.steps["step"]) == list(range(steps))
    assert process.steps["loss"][[0, -1]] == pytest.approx(ends, nan_ok=True)
    assert process.steps["grad_norm"][-1] == pytest.approx(norm)
    assert process.steps["lr"][0] == pytest.approx(1e-3)
    assert list(process.evals["after_step"]) == list(range(9, 10 * evals, 10))
    assert process.evals["loss"][0] == pytest.approx(2.0 * math.exp(-9 / 30))
    times = process.steps["time"]
    assert times[0] == pytest.approx(0, abs=0.01)
    assert (times[1:] >= times[:-1]).all()


@pytest.mark.parametrize("name", SESSIONS)
def test_what_a_tracker_wrote_is_read(name: str, tmp_path: Path) -> None:
    kind, *expected = SESSIONS[name]
    assert recordings.import_recording(FILES / name, tmp_path / "run").words().startswith(f"read as {kind}\n")
    check(tmp_path / "run", *expected)


@pytest.mark.parametrize("name", ["comet.zip", "clearml.zip"])
def test_an_unpacked_session_is_the_same(name: str, tmp_path: Path) -> None:
    kind, *expected = SESSIONS[name]
    zipfile.ZipFile(FILES / name).extractall(tmp_path / "session")
    assert kind in recordings.import_recording(tmp_path / "session", tmp_path / "run").words()
    check(tmp_path / "run", *expected)


def test_what_clearml_hides_is_said(tmp_path: Path) -> None:
    assert (
        "writes NaN and infinities as 0" in recordings.import_recording(FILES / "clearml.zip", tmp_path / "run").words()
    )


def test_of_several_sessions_the_last_is_read(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        shutil.copyfile(FILES / "comet.zip", tmp_path / name)
    said = recordings.import_recording(tmp_path, tmp_path / "run").words()
    assert f"{tmp_path}: holds 2 sessions; the last one, b.zip, is read" in said


def test_damaged_sessions_are_one_line(tmp_path: Path) -> None:
    data = (FILES / "comet.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(data[: len(data) // 2])
    (tmp_path / "cut.parquet").write_bytes(
        (FILES / "neptune" / "PROJ-7-894dfd38d3df8669_part_0.parquet").read_bytes()[:900]
    )
    with zipfile.ZipFile(tmp_path / "weights.zip", "w") as archive:  # what torch.save writes is an archive, too
        archive.writestr("archive/data.pkl", b"x")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("task.json", "{}")
        archive.writestr("metrics.jsonl", '{"loss": 1}')
    for name in ("cut.zip", "cut.parquet", "weights.zip", "other.zip"):
        with pytest.raises(InputError) as refused:
            recordings.import_recording(tmp_path / name, tmp_path / "run")
        assert "\n" not in str(refused.value)
    packed = (FILES / "clearml.zip").read_bytes()
    said = []
    for at in range(40, len(packed) - 40, 60):  # damage anywhere is one line, or leaves a session that can be read
        (tmp_path / "bent.zip").write_bytes(packed[:at] + bytes(4) + packed[at + 4 :])
        try:
            recordings.import_recording(tmp_path / "bent.zip", tmp_path / f"run{at}")
        except InputError as error:
            said.append(str(error))
    assert said
    assert not any("\n" in one for one in said)
    session = tmp_path / "session"
    session.mkdir()
    (session / "experiment.json").write_text("{}")
    metric = {"type": "metric_msg", "payload": {"metric": {"metricName": "loss", "metricValue": 1, "step": 3}}}
    lines = [json.dumps(metric), "{", "[]", json.dumps({"type": "metric_msg", "payload": 3})]
    (session / "messages.json").write_text("\n".join(lines))
    with pytest.raises(InputError, match="holds no rows"):  # its one metric has no time
        recordings.import_recording(session, tmp_path / "run")


def test_fractions_of_steps_are_scaled(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = next((FILES / "neptune").glob("*part_0.parquet"))
    table = pq.read_table(file)
    halves = pa.array(
        [None if step is None else step / 2 for step in table["step"].to_pylist()], table.schema.field("step").type
    )
    pq.write_table(
        table.set_column(table.schema.get_field_index("step"), "step", halves), tmp_path / "x_part_0.parquet"
    )
    assert "they are multiplied by 10" in recordings.import_recording(tmp_path, tmp_path / "run").words()
    (process,) = load(tmp_path / "run").processes
    assert list(process.steps["step"][:3]) == [0, 5, 10]


def test_what_only_a_server_reads_is_told_what_to_save_instead(tmp_path: Path) -> None:
    (tmp_path / ".neptune").mkdir()
    with pytest.raises(InputError, match="save its runs with neptune-exporter"):
        recordings.import_recording(tmp_path, tmp_path / "run")


@pytest.mark.parametrize(("package", "name"), [("swanlab", "run.swanlab"), ("aim", ".aim/VERSION")])
def test_a_package_that_is_missing_is_named(
    package: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / ".aim" / "meta").mkdir(parents=True)
    (tmp_path / name).write_bytes(b":SWL")
    path = tmp_path if package == "aim" else tmp_path / name
    with pytest.raises(InputError, match=rf"pip install 'tracelyze\[{package}\]' to read it"):
        recordings.import_recording(path, tmp_path / "run")


WRITERS = {
    "swanlab": (
        "import swanlab\n"
        "swanlab.init(project='p', mode='offline', logdir='swanlog', experiment_name='t')\n"
        "for step, values in series: swanlab.log(values, step=step)\n"
        "swanlab.finish()\n"
    ),
    "aim": (
        "import aim\n"
        "run = aim.Run(repo='.', system_tracking_interval=None, log_system_params=False)\n"
        "for step, values in series:\n"
        "    for name, value in values.items():\n"
        "        where, _, name = name.rpartition('/')\n"
        "        run.track(value, name=name, step=step, context={'subset': where} if where else {})\n"
        "run.close()\n"
    ),
}
SERIES = (
    "import math\n"
    "series = [(i, {'train/loss': 2.3 * math.exp(-i / 20) if i < 32 else math.nan, 'train/grad_norm': 1 + i % 5 / 10,\n"
    "  'lr': 1e-3, **({'val/loss': 2.0 * math.exp(-i / 30)} if i % 10 == 9 else {})}) for i in range(40)]\n"
)


@pytest.mark.starts_programs
@pytest.mark.slow
@pytest.mark.parametrize("package", WRITERS)
def test_a_package_reads_what_it_wrote(package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"{package}, which reads its own files, is not installed")
    written = tmp_path / "written"
    written.mkdir()
    subprocess.run([sys.executable, "-c", SERIES + WRITERS[package]], cwd=written, check=True, capture_output=True)
    before = {path: path.stat().st_mtime_ns for path in written.rglob("*")}
    said = recordings.import_recording(written, tmp_path / "run").words()
    assert said.startswith("read as a")
    check(tmp_path / "run", 40, 4, (2.3, math.nan), 1.4)
    assert {path: path.stat().st_mtime_ns for path in written.rglob("*")} == before
