"""Reads a run directory (see :mod:`tracelyze.schema`) into a :class:`run.Run`, whatever state it was left in."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracelyze import reading, schema
from tracelyze.analyzers.recorded import continuations, logged, summed_losses, trainings
from tracelyze.analyzers.recorded.columns import FileColumns, ParquetPart, Part, StreamPart
from tracelyze.analyzers.recorded.compaction import compact_process
from tracelyze.analyzers.recorded.exits import exit_of, lives, may_live, stop_of, text_of
from tracelyze.analyzers.recorded.run import Process, Run
from tracelyze.analyzers.recorded.table import Table
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import plural
from tracelyze.schema import manifests

PART = re.compile(
    r"(?P<table>[a-z_]+)(?:-(?P<number>\d{1,9}))?"
    rf"(?:{re.escape(schema.TABLE_SUFFIX)}|{re.escape(schema.STREAM_SUFFIX)})"
)
HELD = frozenset(f"{table.name}{end}" for table in schema.TABLES for end in (schema.TABLE_SUFFIX, schema.STREAM_SUFFIX))
HELD |= {schema.PROCESS_FILE}
CALLED_MODELS = "imported torch and ran"
OUT_OF_REACH = "a script that sets PYTHONPATH anew instead of extending it, env -i, sudo, or python -I, -E or -S"
STOPPED = "recording stopped at step"
COULD_NOT_WRITE = "a process began to record and could write nothing"
"""Words of notes on processes that may have trained although no step was seen."""


def load(path: str | Path) -> Run:
    """The run in the directory `path`. Columns are read later, when they are asked for.

    Rows of a program that died are moved from its stream to Parquet files on the way, where the folder can be written.
    InputError, in one line, for everything that is not a readable run.
    """
    root = Path(path)
    manifest, wrong = _manifest(root)
    processes = []
    for folder in _process_folders(root):
        processes.append(process(folder))
        processes[-1].forget()
    processes.sort(key=lambda one: (one.rank, one.attempt, one.name))
    of_processes = [note for one in processes for note in one.notes]
    return Run(root, manifest, processes, notes(root, manifest, wrong, of_processes, bool(processes)))


def opened(root: Path) -> tuple[dict[str, Any], list[str], list[tuple[Path, dict[str, Any], int]]]:
    """The manifest of a run, notes on what is wrong with it, and its process folders with their manifests and bytes.

    No table is read. InputError, in one line, for everything that is not a run.
    """
    manifest, wrong = _manifest(root)
    return manifest, wrong, [(folder, _facts(folder)[0], _bytes(folder)) for folder in _process_folders(root)]


def notes(
    root: Path, manifest: dict[str, Any], wrong: list[str], of_processes: Sequence[str], trained: bool
) -> list[str]:
    """The notes of a run: on its manifest (`wrong`), of its processes, and of programs that did not train."""
    found = [*wrong, *of_processes, *_what_was_seen(root, errors_only=trained)]
    return found if trained or len(found) > len(wrong) else [*found, _why_unseen(root, manifest)]


def is_run(path: str | Path) -> bool:
    """Whether `path` is a run directory: it holds a manifest, a folder of a process, or a note of a program."""
    root = Path(path)
    if not root.is_dir():
        return False
    return (root / schema.RUN_FILE).exists() or bool(_process_folders(root)) or any(root.glob(schema.SEEN_FILES))


def compact(path: str | Path) -> None:
    """Turn the streams of all dead processes of a run into Parquet files; see :func:`compact_process`.

    InputError if there is no run at `path`.
    """
    root = Path(path)
    _manifest(root)
    for folder in _process_folders(root):
        facts, _ = _json(folder / schema.PROCESS_FILE, manifests.PROCESS)
        if not may_live(folder, facts):
            compact_process(folder)


def _manifest(root: Path) -> tuple[dict[str, Any], list[str]]:
    if not root.exists():
        raise InputError(
            Cause.NO_SUCH_PATH, f"{root}: no such folder; give the run directory that `tracelyze collect` printed"
        )
    if not root.is_dir():
        raise InputError(
            Cause.NOT_A_RUN, f"{root}: a file, not a run directory; give the folder, or import the file first"
        )
    if not is_run(root):
        what = "an empty folder" if not any(root.iterdir()) else f"no run directory (it holds no {schema.RUN_FILE})"
        raise InputError(Cause.NOT_A_RUN, f"{root}: {what}; record a run with `tracelyze collect -- python train.py`")
    return _json(root / schema.RUN_FILE, manifests.RUN)


def _process_folders(root: Path) -> list[Path]:
    """Folders of processes: those that hold a process file or a table, whatever they are called."""
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    return [folder for folder in folders if not HELD.isdisjoint(_names(folder)) or _stopped_before_a_file(folder)]


def _stopped_before_a_file(folder: Path) -> bool:
    """Whether a process made its folder, and its recording stopped before it could describe itself there."""
    stopped = folder / schema.STOPPED_FILE
    return bool(schema.PROCESS_FOLDER.fullmatch(folder.name) and text_of(stopped))


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _json(path: Path, shape: manifests.Shape) -> tuple[dict[str, Any], list[str]]:
    """A manifest as a dictionary, and a note on every field of a wrong type, which is left out.

    Empty if the file does not exist.
    """
    try:
        text = reading.read_text(path)
        if not text.strip("\0 \r\n\t"):
            return {}, []  # its name reached the disk before a power cut, its text did not
        data = reading.parse_json(text)
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        raise InputError(
            Cause.of_reading(error), f"{path}: cannot be read ({error.strerror}); check the permissions"
        ) from error
    except ValueError as error:
        raise InputError(
            Cause.DAMAGED_RUN,
            f"{path}: not valid JSON, half-written or damaged; delete it to read the tables without it",
        ) from error
    if not isinstance(data, dict):
        raise InputError(
            Cause.DAMAGED_RUN,
            f"{path}: not a manifest (a JSON {type(data).__name__}); delete it to read the tables without it",
        )
    version = data.get("schema_version", schema.SCHEMA_VERSION)
    if not isinstance(version, int) or version > schema.SCHEMA_VERSION:
        raise InputError(
            Cause.NEWER_FORMAT,
            f"{path}: written in format version {version}, this tracelyze reads up to {schema.SCHEMA_VERSION}; "
            "upgrade tracelyze",
        )
    data, wrong = manifests.conformed(data, shape)
    return data, [f"{path.name}: {clause}; it is left out" for clause in wrong]


def _facts(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The manifest of a process, completed by the name of its folder, and notes on what is wrong with it."""
    facts, wrong = _json(folder / schema.PROCESS_FILE, manifests.PROCESS)
    name = schema.PROCESS_FOLDER.fullmatch(folder.name)
    for key, value in (name.groupdict() if name else {}).items():
        facts.setdefault(key, int(value or 1))
    return facts, wrong


def _bytes(folder: Path) -> int:
    """How much the process recorded."""
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())


def process(folder: Path) -> Process:
    """The process that recorded in `folder`. Columns are read later, when they are asked for."""
    facts, wrong = _facts(folder)
    if not may_live(folder, facts):
        compact_process(folder)
    stems = _stems(folder)
    tables = {spec.name: Table(spec, _columns(folder, spec, stems)) for spec in schema.TABLES}
    tables, joined, remade = continuations.joined(trainings.without_a_lone_change(tables))
    tables, incomplete = logged.completed(tables)
    tables, averaged = summed_losses.averaged(tables)
    notes = [*wrong, *incomplete, *joined, *logged.ignored(tables["events"])]
    stopped = text_of(folder / schema.STOPPED_FILE)
    if stopped:
        notes.append(_stop_note(stopped, tables["steps"]))
    facts = facts | ({"evaluated_losses": averaged} if averaged else {})
    return Process(folder.name, facts, tables, exit_of(folder, facts, tables["events"]), notes, remade=remade)


def _columns(folder: Path, spec: schema.Table, stems: Mapping[str, list[str]]) -> FileColumns:
    columns = FileColumns(spec, [_part(folder / stem) for stem in stems.get(spec.name, ())])
    columns.check()
    return columns


def _stems(folder: Path) -> dict[str, list[str]]:
    """Names of each table's parts without suffix, in order: steps, steps-00001, steps-00002, ..."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for name in _names(folder):
        match = PART.fullmatch(name)
        if match:
            found[match["table"]][name.split(".")[0]] = int(match["number"] or 0)
    return {table: sorted(stems, key=lambda stem: stems[stem]) for table, stems in found.items()}


def _part(stem: Path) -> Part:
    """The Parquet file of a part, or its stream where there is no readable Parquet file (interrupted conversion)."""
    table, stream = stem.with_name(stem.name + schema.TABLE_SUFFIX), stem.with_name(stem.name + schema.STREAM_SUFFIX)
    if not stream.exists():
        return ParquetPart(table)
    try:
        if table.exists():
            return ParquetPart(table)
    except InputError:
        return StreamPart(stream)
    part = StreamPart(stream)
    # Empty, and there is a table by now: another reader, or the program itself, has just converted it.
    return ParquetPart(table) if part.rows == 0 and table.exists() else part


def _stop_note(stopped: str, steps: Table) -> str:
    """The stop file holds the step and the reason, of which a torn file may have less."""
    stop = stop_of(stopped)
    step = stop.get("step")
    known = step if isinstance(step, int) else len(steps)
    return f"{STOPPED} {known:,}: {' '.join(str(stop['reason']).split())}"


def _what_was_seen(root: Path, errors_only: bool) -> list[str]:
    """Sentences about programs that were started under the collector but did not train, from their seen-*.json."""
    notes = []
    for path in sorted(root.glob(schema.SEEN_FILES)):
        try:
            seen, _ = _json(path, manifests.SEEN)
        except InputError:
            continue  # it says nothing of a training
        if not seen or (errors_only and not seen.get("error")):
            continue
        words = seen.get("argv") or []
        program = words if isinstance(words, str) else " ".join(map(str, words)) or "a program"
        notes.append(f"{program} {_seen(seen)}")
    return notes


def _why_unseen(root: Path, manifest: dict[str, Any]) -> str:
    """A sentence about a command in which no process imported torch where the collector could see it."""
    if any(schema.PROCESS_FOLDER.fullmatch(path.name) for path in root.iterdir() if path.is_dir()):
        return f"{COULD_NOT_WRITE}: a full disk, a quota, or too many open files"
    if manifest.get("obstacle"):
        return f"the collector could not get in: {manifest['obstacle']}"
    if lives(manifest):
        return "the program is still running, and no model was trained in it so far"
    return (
        "the command left no word of its end: it was killed before it trained (SIGKILL or SIGTERM, a time limit, no "
        "memory left), it imported no torch, or the collector could not reach its Python process: "
        f"what keeps it out is {OUT_OF_REACH}"
    )


def _seen(seen: dict[str, Any]) -> str:
    if seen.get("error"):
        return f"could not be recorded ({seen['error']})"
    if not seen.get("torch"):
        return f"never imported torch (if a process that it started did: what keeps us out is {OUT_OF_REACH})"
    forwards, backwards = seen.get("forwards") or 0, seen.get("backwards") or 0
    if not forwards and not backwards:
        return "imported torch but called no model, and no optimizer stepped"
    ran = f"{plural(forwards, 'forward pass')} and {plural(backwards, 'backward pass') if backwards else 'no backward'}"
    return f"{CALLED_MODELS} {ran}, but no optimizer stepped"
