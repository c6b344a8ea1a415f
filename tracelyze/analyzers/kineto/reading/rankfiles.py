"""Which files are traces, which rank each is, and what the hardware is called."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracelyze import reading, schema
from tracelyze.analyzers.kineto.reading.source import BYTE_ORDER_MARK, GZIP_MAGIC
from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    from tracelyze.analyzers.kineto.timeline.trace import Trace

STORED: Final = "trace-"
"""What the names of the folders of imported traces begin with."""

_HEAD: Final = 1 << 20
_KEYS: Final = re.compile(rb'"(traceEvents|deviceProperties|distributedInfo|schemaVersion)"\s*:')
_SUFFIXES: Final = (".json", ".json.gz", ".trace", ".gz")
_OTHER_MAKER: Final = re.compile(r"AMD|Radeon|Instinct|gfx\d", re.IGNORECASE)
"""AMD's devices count their capability in numbers of their own."""

_STAMPED: Final = re.compile(r"(?P<worker>.+)\.\d{13,19}\.pt\.trace\.json(\.gz)?$")
"""Names as torch.profiler's tensorboard_trace_handler makes them."""

_RANK: Final = re.compile(r"(?:rank|worker)[-_ ]?(\d{1,6})", re.IGNORECASE)


def is_trace(path: Path | str) -> bool:
    """Whether `path` is a Kineto trace, a folder with at least one directly in it, or a run that was imported from
    some. Reads the first MiB."""
    path = Path(path)
    if path.is_dir():
        if (path / schema.RUN_FILE).exists():
            return bool(stored_in(path))
        return any(_looks_like_trace(file) for file in _candidates(path))
    return path.is_file() and _looks_like_trace(path)


def is_named_like_trace(path: Path) -> bool:
    """Whether the name of a file is one that profilers give their traces, so that a reader can say why it is none."""
    return path.is_file() and path.name.endswith(_SUFFIXES)


def stored_in(run: Path) -> list[Path]:
    """The folders of the traces that were imported into the run directory `run`, in their order; often none."""
    return sorted(folder for folder in run.glob(f"{STORED}*") if is_stored(folder))


def left_out(run: Path) -> list[str]:
    """Why files were left out when the run directory `run` was imported."""
    try:
        facts = reading.parse_json(reading.read_text(run / schema.RUN_FILE))
        return [str(reason) for reason in facts["source"]["left_out"]]
    except (InputError, OSError, ValueError, KeyError, TypeError):
        return []


def is_stored(folder: Path) -> bool:
    """Whether `folder` holds an imported trace."""
    return (folder / schema.TRACE_FILE).is_file()


def trace_files(paths: Sequence[Path | str]) -> list[Path]:
    """The trace files that `paths` (files and folders) stand for, in order, each once; folders of imported traces stand
    for themselves. InputError if one holds none."""
    files: dict[Path, None] = {}
    for path in map(Path, paths):
        if is_stored(path):
            files[path] = None
        elif path.is_dir():
            found = stored_in(path) or [file for file in _candidates(path) if _looks_like_trace(file)]
            if not found:
                raise InputError(
                    Cause.NO_TRACE_FOUND,
                    f"{path}: no trace in this folder; it should hold the profiler's .json or .json.gz files",
                )
            files.update(dict.fromkeys(found))
        else:
            files[path] = None
    if not files:
        raise InputError(Cause.NO_TRACE_FOUND, "no trace was named; give a trace file or a folder of them")
    return list(files)


def positions(files: Sequence[Path]) -> list[int]:
    """For each trace file a number for the process that wrote it, from 0, in the order of the files.

    A process that writes several windows puts the time of each behind its own name; other names stand for themselves.
    """
    workers: dict[tuple[Path, str], int] = {}
    return [
        workers.setdefault(
            (file.parent, found["worker"] if (found := _STAMPED.match(file.name)) else file.name), len(workers)
        )
        for file in files
    ]


def rank_of(trace: Trace, position: int) -> int:
    """The rank that the file holds, else the one in its name, else `position`."""
    if trace.rank is not None:
        return trace.rank
    rank = _distributed(trace).get("rank")
    if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
        return rank
    named = _RANK.search(trace.file)
    return int(named.group(1)) if named else position


def world_size(trace: Trace) -> int | None:
    """How many ranks the job has, if the file says so."""
    size = _distributed(trace).get("world_size")
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def device_names(trace: Trace, devices: Sequence[str]) -> list[str]:
    """What each of `devices` (numbers as text) is called in the trace's list of hardware; "device N" if it is not."""
    listed = trace.properties.get("deviceProperties")
    known = {
        str(entry.get("id")): str(entry.get("name"))
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict) and entry.get("name")
    }
    return [known.get(device, f"device {device}") for device in devices]


def capability(trace: Trace) -> tuple[int, int] | None:
    """The lowest compute capability of the trace's NVIDIA devices; None where it holds others, or does not say."""
    listed = trace.properties.get("deviceProperties")
    found = []
    for entry in listed if isinstance(listed, list) else []:
        if not isinstance(entry, dict):
            continue
        major, minor = entry.get("computeMajor"), entry.get("computeMinor")
        if _OTHER_MAKER.search(str(entry.get("name"))) or not isinstance(major, int) or not isinstance(minor, int):
            return None
        found.append((major, minor))
    return min(found, default=None)


def _distributed(trace: Trace) -> dict[str, Any]:
    facts = trace.properties.get("distributedInfo")
    return facts if isinstance(facts, dict) else {}


def _candidates(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.is_file() and file.name.endswith(_SUFFIXES))
    except OSError as error:
        raise InputError(
            Cause.of_reading(error), f"{folder}: cannot be read ({error.strerror}); check the permissions"
        ) from error


def _looks_like_trace(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    if head.startswith(GZIP_MAGIC):
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
        except zlib.error:
            return False
    head = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if head.startswith(b"["):
        return b'"ph"' in head
    return head.startswith(b"{") and _KEYS.search(head) is not None
