"""Recordings that are packed with gzip, or lie below the folder that was given."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

import tracelyze
from tracelyze.analyzers import load
from tracelyze.errors import InputError
from tracelyze.importing import reading, recordings

TABLE = "step,loss,val_loss\n" + "".join(f"{step},{2 / step:.4f},\n" for step in range(1, 400))
LINES = "".join(f"[12:00:00] iter {step} loss={2 / step:.4f} gnorm=1.0\n" for step in range(1, 400))
STATE = json.dumps({"log_history": [{"step": step, "loss": 2 / step} for step in range(1, 400)], "global_step": 399})


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("metrics.csv.gz", TABLE, "a log in CSV"),
        ("train.log.gz", LINES, "a console log"),
        ("trainer_state.json.gz", STATE, "trainer_state.json of the Hugging Face Trainer"),
        (
            "log.jsonl.gz",
            "".join(json.dumps({"step": n, "loss": 1 / n}) + "\n" for n in range(1, 400)),
            "a log in JSON",
        ),
    ],
)
def test_a_packed_log_is_read(name: str, text: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    assert recordings.import_recording(tmp_path / name, tmp_path / "run").words().startswith(f"read as {kind}\n")
    assert len(load(tmp_path / "run").processes[0].steps) == 399


def test_a_packed_log_that_is_cut_off_is_read_to_there(tmp_path: Path) -> None:
    packed = gzip.compress(LINES.encode())
    (tmp_path / "train.log.gz").write_bytes(packed[: len(packed) * 2 // 3])
    recordings.import_recording(tmp_path / "train.log.gz", tmp_path / "run")
    assert 100 < len(load(tmp_path / "run").processes[0].steps) < 399


def test_what_unpacks_without_end_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "big.csv.gz").write_bytes(gzip.compress((TABLE + TABLE).encode()))
    monkeypatch.setattr(reading, "LARGEST", 6000)
    with pytest.raises(InputError, match="unpacks to more than"):
        recordings.import_recording(tmp_path / "big.csv.gz", tmp_path / "run")


def test_packed_bytes_that_are_no_text_are_said_to_be_packed(tmp_path: Path) -> None:
    (tmp_path / "weights.gz").write_bytes(gzip.compress(bytes(1000)))
    with pytest.raises(InputError, match="packed with gzip, and neither a log nor a profiler trace"):
        recordings.import_recording(tmp_path / "weights.gz", tmp_path / "run")


def test_a_folder_that_holds_a_recording_further_below_is_that(tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "fold" / "fast"
    logs.mkdir(parents=True)
    (logs / "metrics.csv").write_text(TABLE)
    (tmp_path / "train.log").write_text(LINES)  # a table says more plainly what it is than a log
    (tmp_path / "notes.txt").write_text(LINES)  # not called a log
    said = recordings.import_recording(tmp_path, tmp_path.parent / f"{tmp_path.name}-run").words().splitlines()
    assert said[0] == "read as metrics.csv of Lightning"
    assert said[-1] == f"{tmp_path}: logs/fold/fast of 2 recordings below it is read"
    assert tracelyze.diagnose(tmp_path).verdict == "ok"


def test_of_several_recordings_below_the_last_one_written_is_read(tmp_path: Path) -> None:
    for number, name in enumerate(("b", "a")):
        (tmp_path / "sweep" / name).mkdir(parents=True)
        (tmp_path / "sweep" / name / "progress.csv").write_text(TABLE)
        for path in (tmp_path / "sweep" / name / "progress.csv", tmp_path / "sweep" / name):
            os.utime(path, (1e9 + number, 1e9 + number))
    said = recordings.import_recording(tmp_path, tmp_path.parent / f"{tmp_path.name}-run").words()
    assert f"{tmp_path}: sweep/a/progress.csv of 2 recordings below it is read" in said


def test_a_folder_without_a_recording_below_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('step 1 loss 2')\n")
    with pytest.raises(InputError, match="not a folder that can be read"):
        recordings.import_recording(tmp_path, tmp_path / "run")
