"""Offline sessions of Comet and ClearML: JSON in a ZIP archive, or in the folder that it is made of.

ClearML's client can only upload one; Comet's also prints it (`comet offline`), without the steps. So Python's own
modules unpack and parse them, within limits.
"""

from __future__ import annotations

import json
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tracelyze import reading
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import size
from tracelyze.importing.reading import LARGEST, Numbers, number
from tracelyze.importing.run_builder import Log

MAGIC: Final = b"PK\x03\x04"
_MEMBERS: Final[Mapping[str, tuple[str, str]]] = {  # by what a session is recognised: its manifest and its values
    "comet": ("experiment.json", "messages.json"),
    "clearml": ("task.json", "metrics.jsonl"),
}
_DAMAGED: Final = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
"""What unpacking raises: RuntimeError for archives with a password, or packed in a way that Python does not know."""
_MOST_MEMBERS: Final = 100_000
_FIRST: Final = 256  # characters of the values, by which they differ from other files of these names
_SPEAKS: Final[Mapping[str, str]] = {"comet": '"payload"', "clearml": '"task"'}
_MONITOR: Final = ":monitor:"  # metrics of the machine that ClearML takes by itself

Value = tuple[str, float, float | None, float]  # name, step, value, milliseconds since 1970


def kind_of(path: Path) -> str:
    """comet, clearml, or "" for anything else."""
    try:
        names = {child.name for child in path.iterdir()} if path.is_dir() else _names(path)
        for kind, members in _MEMBERS.items():
            if names.issuperset(members):
                first = next(_lines(path, members[1]), "")[:_FIRST]
                return kind if not first or _SPEAKS[kind] in first else ""
    except (*_DAMAGED, InputError):
        pass
    return ""


def find(folder: Path) -> list[Path]:
    """The sessions in a folder: itself, or the archives in it, the one that was written last at the end."""
    if kind_of(folder):
        return [folder]
    archives = [path for path in sorted(folder.glob("*.zip"))[:_MOST_MEMBERS] if path.is_file() and kind_of(path)]
    return sorted(archives, key=lambda path: path.stat().st_mtime)


def read(path: Path) -> Log:
    """The metrics of a session; of several in a folder, those of the last one."""
    found = find(path) if path.is_dir() else [path]
    file = found[-1] if found else path
    notes = [f"{path}: holds {len(found)} sessions; the last one, {file.name}, is read"] if len(found) > 1 else []
    kind = kind_of(file)
    if not kind:
        raise InputError(Cause.OTHER_CONTENT, f"{file}: no offline session of Comet or ClearML; give its .zip")
    values: list[Value] = []
    damaged = 0
    take: Callable[[Any], Iterator[Value]] = _comet if kind == "comet" else _clearml
    try:
        for line in _lines(file, _MEMBERS[kind][1]):
            try:
                values += take(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                damaged += 1
    except _DAMAGED as error:
        raise InputError(Cause.DAMAGED_LOG, f"{file}: damaged ({error}); give a whole copy of the session") from None
    if damaged:
        notes.append(f"{file}: {damaged} damaged lines are left out")
    if kind == "clearml":
        notes.append("ClearML writes NaN and infinities as 0 unless the program says otherwise: a loss of 0 may be one")
    return Log(kind, file, _rows(values), {"session": file.stem}, tuple(notes))


def _comet(message: Any) -> Iterator[Value]:
    """Of one message: a metric, its step, and its value, where NaN is the text "NaN"."""
    payload = message["payload"] if message["type"] == "metric_msg" else {}
    metric = payload.get("metric")
    if metric and isinstance(metric["step"], int):
        given = metric["metricValue"]
        value = number(given) if isinstance(given, str) else None if given is None else float(given)
        yield str(metric["metricName"]), float(metric["step"]), value, float(payload["local_timestamp"])


def _clearml(events: Any) -> Iterator[Value]:
    """Of the events that were written together: scalars under their title and series, as `title/series`."""
    for event in events:
        title, series = str(event.get("metric")), str(event.get("variant"))
        if event.get("type") == "training_stats_scalar" and not title.startswith(_MONITOR):
            name = title if title == series else f"{title}/{series}"
            yield name, float(event["iter"]), float(event["value"]), float(event["timestamp"])


def _rows(values: Sequence[Value]) -> list[Numbers]:
    start = min((time for *_, time in values), default=0.0)
    rows: dict[float, Numbers] = {}
    for name, step, value, time in values:
        rows.setdefault(step, {"step": step, "elapsed_s": (time - start) / 1e3})[name] = value
    return [rows[step] for step in sorted(rows)]


def _names(file: Path) -> set[str]:
    with reading.open_file(file) as stream, zipfile.ZipFile(stream) as archive:
        return set(archive.namelist()[:_MOST_MEMBERS])


def _lines(path: Path, name: str) -> Iterator[str]:
    """The lines of a member of the session. InputError where it unpacks to more than is read of any file."""
    read = 0
    if path.is_dir():
        with reading.open_file(path / name) as stream:
            yield from (line.decode("utf-8", "replace") for line in stream)
        return
    with reading.open_file(path) as packed, zipfile.ZipFile(packed) as archive, archive.open(name) as member:
        while line := member.readline(LARGEST + 1):
            read += len(line)
            if read > LARGEST:
                raise InputError(Cause.TOO_LARGE, f"{path}: {name} in it has more than {size(LARGEST)}; log less of it")
            yield line.decode("utf-8", "replace")
