"""Recognises by its content what a file or folder was recorded by, and makes a run directory of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tracelyze import schema
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import plural
from tracelyze.importing.dumps import flight_recorder, memory_snapshot
from tracelyze.importing.job_logs import beside
from tracelyze.importing.logs import console, delimited, json_log, mlperf, monitor_csv, trainer_state, training_log
from tracelyze.importing.reading import PACKED, head_of, without_colors
from tracelyze.importing.run_builder import Imported, Log, write_run
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

    `beside`: it is no recording of a training, but a log of what surrounds one. `note`: where it was found, if that is
    not what was given.
    """

    path: Path
    title: str
    read: Callable[[Path], Log]
    console: bool = False
    beside: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format that can be read.

    `listed` is what the list of what can be read calls it; formats that are alike share it. It is recognised
    by what lies in a `folder`, by the name and the first bytes of a `file`, or by the first characters of a `text`.
    """

    title: str
    listed: str
    read: Callable[[Path], Log]
    folder: Callable[[Path], object] = lambda _: False
    file: Callable[[Path, bytes], object] = lambda _file, _head: False
    text: Callable[[Path, str], object] = lambda _file, _head: False
    console: bool = False

    def of(self, path: Path) -> Recording:
        """What lies at `path`, which has this format."""
        return Recording(path, self.title, self.read, console=self.console)


_OTHER_FILES = (
    (databases.MAGIC, "a SQLite database that is damaged, or is neither MLflow's nor Trackio's"),
    (b"\x80", "a pickle that is cut off, or holds neither a memory snapshot nor a dump of the Flight Recorder"),
    (archived.MAGIC, "a ZIP archive, as torch.save writes for weights, and no session of Comet or ClearML"),
    (neptune_export.MAGIC, "a Parquet file that neptune-exporter did not write"),
    (PACKED, "packed with gzip, and neither a log nor a profiler trace; unpack it first"),
)
"""How files begin that are no recording, and what to say of them."""


def recognize(path: Path, pattern: str | None = None) -> Recording | None:
    """What `path` is, by what lies in a folder or by the first 64 KiB of a file; None if it is no known recording.

    `pattern` says that it is a text log, and what its lines look like.
    """
    if pattern is not None:
        return Recording(path, "a text log, by your pattern", lambda file: training_log.read(file, pattern))
    return _folder(path) if path.is_dir() else _file(path)


def find(path: Path, pattern: str | None = None) -> Recording | None:
    """What `path` is; of a folder that is no recording itself, the one below it that was written to last.

    Of several kinds the one that says most plainly what it is: a tracker's files before a table, a table before a log.
    """
    if (known := recognize(path, pattern)) is not None or not path.is_dir():
        return known
    found = sorted(below(path), key=lambda one: (one.title in _ANY_TEXT, one.console, -_written(one.path)))
    if not found:
        return None
    others = f" of {plural(len(found), 'recording')} below it" if len(found) > 1 else ""
    return replace(found[0], note=f"{path}: {found[0].path.relative_to(path)}{others} is read")


def below(place: Path) -> Iterator[Recording]:
    """The recordings in and below a folder. One that is a folder holds no other; ambiguous text has to be called a log.

    The folder itself is not asked.
    """
    for name, inner, files in os.walk(place):
        folder = Path(name)
        if folder != place and (known := recognize(folder)) is not None:
            yield known
            inner.clear()
            continue
        for file in sorted(files):
            path = folder / file
            found = recognize(path) if path.is_file() else None
            plain = found is not None and (found.title not in _ANY_TEXT or not _LOGS.isdisjoint(path.suffixes))
            if found is not None and plain and not found.beside:
                yield found
        inner.sort()


def _written(path: Path) -> float:
    """When a file was written to last; of a folder, the files in it."""
    try:
        inner = [one.stat().st_mtime for one in path.iterdir()] if path.is_dir() else []
        return max([path.stat().st_mtime, *inner])
    except OSError:
        return 0.0


def import_recording(path: Path, run: Path, pattern: str | None = None) -> Imported:
    """Make the run directory `run` of what lies at `path`; returns what was imported.

    InputError, one line, if it cannot be read, or is none of the formats that can.
    """
    return make_run(must_be_known(path, find(path, pattern)), run)


def must_be_known(path: Path, found: Recording | None) -> Recording:
    """What was found at `path`. InputError, one line, if nothing is there, or none of the formats that can be read."""
    if not path.exists():
        raise InputError(Cause.NO_SUCH_PATH, f"{path}: No such file or directory; give the path of a recording")
    if found is None:
        raise InputError(Cause.UNKNOWN_RECORDING, f"{path}: {unreadable(path)}")
    return found


def make_run(recording: Recording, run: Path) -> Imported:
    """Make the run directory `run` of a recording. InputError, one line, if it cannot be read."""
    made = write_run(recording.read(recording.path), run)
    notes = (*made.notes, recording.note) if recording.note else made.notes
    return replace(made, title=recording.title, notes=notes)


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
    return f"{what}; give a run directory, a profiler trace or a log: `tracelyze import formats` lists what can be read"


def _folder(folder: Path) -> Recording | None:
    for known in _FORMATS:
        if known.folder(folder):
            return known.of(folder)
    stores = [found for file in sorted(folder.glob("*.db")) if file.is_file() and (found := _database(file))]
    return stores[0] if len(stores) == 1 else None


def _file(file: Path) -> Recording | None:
    head = head_of(file)
    if not head.strip():
        return None
    for known in _FORMATS:
        if known.file(file, head):
            return known.of(file)
    if b"\x00" in head or head.startswith(_CONTAINERS):
        return None
    return _text(file, without_colors(head.decode("utf-8", "replace").removeprefix("\ufeff")))


def _text(file: Path, head: str) -> Recording | None:
    """What a text is: a log of what surrounds a training, a format of the table, or else a console log."""
    if surrounding := beside.recognize(head):
        return Recording(file, surrounding, beside.log_of, beside=True)
    for known in _FORMATS:
        if known.text(file, head):
            return known.of(file)
    program = _program(head)
    if program is None and _named_json(file):
        return None
    return Recording(file, f"a console log{f' of {program[1]}' if program else ''}", training_log.read, console=True)


def _program(head: str) -> tuple[str, str] | None:
    """Kind and name of the program that printed a line of the beginning."""
    return next((found for line in head.splitlines() if (found := training_log.program_of(line))), None)


def _database(file: Path) -> Recording | None:
    """A store of MLflow or Trackio; None for another database, and for what is none."""
    return next((known.of(file) for known in _STORES if known.file(file, head_of(file))), None)


def _is_store(kind: str) -> Callable[[Path, bytes], bool]:
    return lambda file, head: head.startswith(databases.MAGIC) and databases.kind_of(file) == kind


def _is_session(kind: str) -> Callable[[Path, bytes], bool]:
    return lambda file, head: head.startswith(archived.MAGIC) and archived.kind_of(file) == kind


def _has_sessions(kind: str) -> Callable[[Path], bool]:
    return lambda folder: any(archived.kind_of(last) == kind for last in archived.find(folder)[-1:])


def _is_event_file(file: Path, head: bytes) -> bool:
    return tensorboard.looks_so(head) or ("tfevents" in file.name and not head.startswith(_CONTAINERS))


def _is_trainer_state(file: Path, head: str) -> bool:
    return ('"log_history"' in head and head.lstrip().startswith("{")) or file.name == trainer_state.FILE


def _is_csv(file: Path, head: str) -> bool:
    """Whether a text is a table; some console logs look like one, and say by a program's line that they are none."""
    return (
        _program(head) is None
        and not _named_json(file)
        and delimited.looks_so(head)
        and not training_log.looks_so(head)
    )


def _named_json(file: Path) -> bool:
    return file.name.removesuffix(".gz").endswith(".json")


_LOGS = frozenset((".log", ".out", ".err", ".jsonl", ".csv"))
_ANY_TEXT = ("a console log", "a log in JSON", "a log in CSV")
"""What many files may be that are no recording: of those in a folder only such count that are called a log."""

_CONTAINERS = (databases.MAGIC, archived.MAGIC, neptune_export.MAGIC)
"""How files begin that hold anything: only what lies inside says whether it is a recording."""

_EVENTS = "TensorBoard event files"
_TABLES = "metrics.csv of Lightning, CSV or JSON lines with a step and a loss"
_IN_DATABASES = "stores of MLflow and Trackio"
_TRACKERS = "offline sessions of Comet and ClearML, runs of SwanLab, repositories of Aim, exports of neptune-exporter"
_CONSOLES = "console logs (Trainer, TRL, torchtitan, Megatron-LM, NeMo, DeepSpeed, nanoGPT, timm, Keras, verl, MLPerf)"
_DUMPS = "dumps of torch's Flight Recorder, a folder with one a rank"

_STORES = (
    Format(title="a store of MLflow", listed=_IN_DATABASES, read=databases.read_mlflow, file=_is_store("mlflow")),
    Format(title="a store of Trackio", listed=_IN_DATABASES, read=databases.read_trackio, file=_is_store("trackio")),
)

_FORMATS = (
    Format(
        title="trainer_state.json of the Hugging Face Trainer",
        listed="trainer_state.json, or a checkpoint folder",
        read=trainer_state.read,
        folder=trainer_state.find,
        text=_is_trainer_state,
    ),
    Format(
        title="an offline run of Weights & Biases",
        listed="W&B offline runs",
        read=wandb_run.read,
        folder=wandb_run.find,
        file=lambda file, head: head.startswith(wandb_run.MAGIC) or file.suffix == wandb_run.SUFFIX,
    ),
    Format(title="metrics.csv of Lightning", listed=_TABLES, read=delimited.read, folder=delimited.find),
    Format(
        title="dumps of torch's Flight Recorder",
        listed=_DUMPS,
        read=flight_recorder.read,
        folder=flight_recorder.find,
    ),
    Format(
        title="a dump of torch's Flight Recorder",
        listed=_DUMPS,
        read=flight_recorder.read,
        file=lambda _, head: flight_recorder.looks_so(head),
    ),
    Format(
        title="a snapshot of torch.cuda.memory",
        listed="snapshots of torch.cuda.memory",
        read=memory_snapshot.read,
        file=lambda _, head: memory_snapshot.looks_so(head),
    ),
    Format(
        title="a file store of MLflow",
        listed=_IN_DATABASES,
        read=mlflow_store.read,
        folder=mlflow_store.find,
    ),
    *_STORES,
    Format(title="TensorBoard event files", listed=_EVENTS, read=tensorboard.read, folder=tensorboard.find),
    Format(title="a TensorBoard event file", listed=_EVENTS, read=tensorboard.read, file=_is_event_file),
    Format(
        title="an export of neptune-exporter",
        listed=_TRACKERS,
        read=neptune_export.read,
        folder=neptune_export.find,
        file=lambda file, head: head.startswith(neptune_export.MAGIC) and neptune_export.looks_so(file),
    ),
    Format(title="a repository of Aim", listed=_TRACKERS, read=own_readers.read_aim, folder=own_readers.find_aim),
    Format(
        title="a run of SwanLab",
        listed=_TRACKERS,
        read=own_readers.read_swanlab,
        folder=own_readers.find_swanlab,
        file=lambda _, head: head.startswith(own_readers.SWANLAB_MAGIC),
    ),
    Format(
        title="an offline session of Comet",
        listed=_TRACKERS,
        read=archived.read,
        folder=_has_sessions("comet"),
        file=_is_session("comet"),
    ),
    Format(
        title="an offline session of ClearML",
        listed=_TRACKERS,
        read=archived.read,
        folder=_has_sessions("clearml"),
        file=_is_session("clearml"),
    ),
    Format(
        title="monitor.csv of Stable-Baselines3",
        listed="monitor.csv of Stable-Baselines3",
        read=monitor_csv.read,
        text=lambda _, head: monitor_csv.looks_so(head),
    ),
    Format(title="an MLPerf log", listed=_CONSOLES, read=mlperf.read, text=lambda _, head: mlperf.MARK in head),
    Format(
        title="the console log of the Hugging Face Trainer",
        listed=_CONSOLES,
        read=console.read,
        text=lambda _, head: console.looks_so(head),
        console=True,
    ),
    Format(title="a log in JSON", listed=_TABLES, read=json_log.read, text=lambda _, head: _JSON.match(head)),
    Format(title="a log in CSV", listed=_TABLES, read=delimited.read, text=_is_csv),
)
"""What can be read, in the order in which it is looked for."""

READABLE = (
    "a run directory",
    "profiler traces (.json, .json.gz, or a folder)",
    *dict.fromkeys(known.listed for known in _FORMATS),
    "lines with a step or an epoch and a loss",
    "logs of the kernel (dmesg, journalctl -k) and dumps of py-spy",
)
