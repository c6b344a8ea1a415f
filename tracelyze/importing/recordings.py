"""Recognises by its content what a file or folder was recorded by, and makes a run directory of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tracelyze import schema
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import plural
from tracelyze.importing.dumps import flight_recorder, memory_snapshot
from tracelyze.importing.logs import console, delimited, json_log, mlperf, monitor_csv, trainer_state, training_log
from tracelyze.importing.reading import head_of, without_colors
from tracelyze.importing.run_builder import Log, write_run
from tracelyze.importing.surroundings import beside
from tracelyze.importing.trackers import (
    archived,
    databases,
    mlflow_store,
    neptune_export,
    own_readers,
    tensorboard,
    wandb_run,
)

_NEPTUNE = ".neptune"
_JSON = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*(?:[\[{\"\]]|-?[\d.]+\s*[,\]]\s*[-\d]))")


@dataclass(frozen=True)
class Recording:
    """A file or folder whose format is known. `title` says what it is, after "read as"; `console`: what was printed.

    `beside`: it is no recording of a training, but a log of what surrounds one.
    """

    path: Path
    title: str
    read: Callable[[Path], Log]
    console: bool = False
    beside: bool = False


READABLE = (
    "a run directory",
    "profiler traces (.json, .json.gz, or a folder)",
    "trainer_state.json, or a checkpoint folder",
    "TensorBoard event files",
    "metrics.csv of Lightning, CSV or JSON lines with a step and a loss",
    "W&B offline runs",
    "stores of MLflow and Trackio",
    "offline sessions of Comet and ClearML, runs of SwanLab, repositories of Aim, exports of neptune-exporter",
    "console logs (Trainer, TRL, torchtitan, Megatron-LM, NeMo, DeepSpeed, nanoGPT, timm, Keras, verl, MLPerf)",
    "lines with a step or an epoch and a loss",
    "monitor.csv of Stable-Baselines3",
    "snapshots of torch.cuda.memory",
    "dumps of torch's Flight Recorder, a folder with one a rank",
    "logs of the kernel (dmesg, journalctl -k) and dumps of py-spy",
)


_OTHER_FILES = (
    (databases.MAGIC, "a SQLite database that is damaged, or is neither MLflow's nor Trackio's"),
    (b"\x80", "a pickle that is cut off, or holds neither a memory snapshot nor a dump of the Flight Recorder"),
    (archived.MAGIC, "a ZIP archive, as torch.save writes for weights, and no session of Comet or ClearML"),
    (neptune_export.MAGIC, "a Parquet file that neptune-exporter did not write"),
    (b"\x1f\x8b", "packed with gzip, and no profiler trace; unpack it first"),
)
"""How files begin that are no recording, and what to say of them."""


def recognize(path: Path, pattern: str | None = None) -> Recording | None:
    """What `path` is, by what lies in a folder or by the first 64 KiB of a file; None if it is no known recording.

    `pattern` says that it is a text log, and what its lines look like.
    """
    if pattern is not None:
        return Recording(path, "a text log, by your pattern", lambda file: training_log.read(file, pattern))
    return _folder(path) if path.is_dir() else _file(path)


def import_recording(path: Path, run: Path, pattern: str | None = None) -> str:
    """Make the run directory `run` of what lies at `path`; returns sentences on what was imported.

    InputError, one line, if it cannot be read, or is none of the formats that can.
    """
    if not path.exists():
        raise InputError(Cause.NO_SUCH_PATH, f"{path}: No such file or directory; give the path of a recording")
    recording = recognize(path, pattern)
    if recording is None:
        raise InputError(Cause.UNKNOWN_RECORDING, f"{path}: {unreadable(path)}")
    said = write_run(recording.read(recording.path), run)
    return f"read as {recording.title}\n{said}"


def unreadable(path: Path) -> str:
    """What can be read instead of `path`, as the end of a one-line error."""
    if path.is_dir() and not any(path.iterdir()):
        return "an empty folder; record a run with `tracelyze collect -- python train.py`"
    if path.is_dir() and (runs := sorted(path.glob(f"*/{schema.RUN_FILE}"))):
        return f"a folder of {plural(len(runs), 'run')}; give one of them, such as {runs[-1].parent}"
    if path.is_dir() and (path.name == _NEPTUNE or (path / _NEPTUNE).is_dir()):
        return (
            "what Neptune's client keeps for its server, which nothing else reads; save its runs with neptune-exporter"
        )
    head = head_of(path) if path.is_file() else b""
    if path.is_file() and not head.strip():
        return "is empty; give the log of a training that has made steps"
    what = "not a folder that can be read" if path.is_dir() else "not a log that can be read"
    what = next((said for magic, said in _OTHER_FILES if head.startswith(magic)), what)
    return f"{what}; tracelyze reads {'; '.join(READABLE)}"


def _folder(folder: Path) -> Recording | None:
    if trainer_state.find(folder):
        return Recording(folder, "trainer_state.json of the Hugging Face Trainer", trainer_state.read)
    if wandb_run.find(folder):
        return Recording(folder, "an offline run of Weights & Biases", wandb_run.read)
    if delimited.find(folder):
        return Recording(folder, "metrics.csv of Lightning", delimited.read)
    if flight_recorder.find(folder):
        return Recording(folder, "dumps of torch's Flight Recorder", flight_recorder.read)
    if mlflow_store.find(folder):
        return Recording(folder, "a file store of MLflow", mlflow_store.read)
    if tensorboard.find(folder):
        return Recording(folder, "TensorBoard event files", tensorboard.read)
    if neptune_export.find(folder):
        return Recording(folder, "an export of neptune-exporter", neptune_export.read)
    if own_readers.find_aim(folder):
        return Recording(folder, "a repository of Aim", own_readers.read_aim)
    if own_readers.find_swanlab(folder):
        return Recording(folder, "a run of SwanLab", own_readers.read_swanlab)
    if sessions := archived.find(folder):
        return _session(folder, archived.kind_of(sessions[-1]))
    stores = [found for file in sorted(folder.glob("*.db")) if (found := _database(file)) is not None]
    return stores[0] if len(stores) == 1 else None


def _file(file: Path) -> Recording | None:
    head = head_of(file)
    if not head.strip():
        return None
    if head.startswith(wandb_run.MAGIC) or file.suffix == wandb_run.SUFFIX:
        return Recording(file, "an offline run of Weights & Biases", wandb_run.read)
    if head.startswith(databases.MAGIC):
        return _database(file)
    if head.startswith(own_readers.SWANLAB_MAGIC):
        return Recording(file, "a run of SwanLab", own_readers.read_swanlab)
    if head.startswith(archived.MAGIC):
        kind = archived.kind_of(file)
        return _session(file, kind) if kind else None
    if head.startswith(neptune_export.MAGIC):
        exported = neptune_export.looks_so(file)
        return Recording(file, "an export of neptune-exporter", neptune_export.read) if exported else None
    if flight_recorder.looks_so(head):
        return Recording(file, "a dump of torch's Flight Recorder", flight_recorder.read)
    if memory_snapshot.looks_so(head):
        return Recording(file, "a snapshot of torch.cuda.memory", memory_snapshot.read)
    if tensorboard.looks_so(head) or "tfevents" in file.name:
        return Recording(file, "a TensorBoard event file", tensorboard.read)
    if b"\x00" in head:
        return None
    return _text(file, without_colors(head.decode("utf-8", "replace").removeprefix("\ufeff")))


def _text(file: Path, head: str) -> Recording | None:
    if surrounding := beside.recognize(head):
        return Recording(file, surrounding, beside.log_of, beside=True)
    if monitor_csv.looks_so(head):
        return Recording(file, "monitor.csv of Stable-Baselines3", monitor_csv.read)
    if mlperf.MARK in head:
        return Recording(file, "an MLPerf log", mlperf.read)
    if ('"log_history"' in head and head.lstrip().startswith("{")) or file.name == trainer_state.FILE:
        return Recording(file, "trainer_state.json of the Hugging Face Trainer", trainer_state.read)
    if console.looks_so(head):
        return Recording(file, "the console log of the Hugging Face Trainer", console.read, console=True)
    if _JSON.match(head):
        return Recording(file, "a log in JSON", json_log.read)
    program = next((found for line in head.splitlines() if (found := training_log.program_of(line))), None)
    if program is None and file.suffix == ".json":
        return None
    if program is None and delimited.looks_so(head) and not training_log.looks_so(head):
        return Recording(file, "a log in CSV", delimited.read)
    title = f"a console log{f' of {program[1]}' if program else ''}"
    return Recording(file, title, training_log.read, console=True)


def _session(path: Path, kind: str) -> Recording:
    return Recording(path, f"an offline session of {'Comet' if kind == 'comet' else 'ClearML'}", archived.read)


def _database(file: Path) -> Recording | None:
    kind = databases.kind_of(file)
    if kind == "mlflow":
        return Recording(file, "a store of MLflow", databases.read_mlflow)
    return Recording(file, "a store of Trackio", databases.read_trackio) if kind == "trackio" else None
