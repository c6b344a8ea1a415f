"""Dumps of torch's Flight Recorder: the collectives that each rank has enqueued, one file a rank, pickled or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracelyze.errors import Cause, InputError
from tracelyze.importing import reading
from tracelyze.importing.dumps import plain_pickle
from tracelyze.importing.run_builder import Log

_RANK = re.compile(r"(\d+)(?:\.(?:pickle|pkl|json))?$")
_MOST_RANKS = 20_000
_MOST_ENTRIES = 100_000  # of a rank: the ring buffer has 2,000 unless told otherwise
_FRAMES = 12
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python|/torch/|<frozen|\.cpp$|\.cc$|\.h$")


def find(folder: Path) -> dict[int, Path]:
    """The dumps in a folder by rank, as the numbers at the ends of their names tell it; empty if it holds none."""
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        number = _RANK.search(path.name)
        if number and path.is_file() and len(found) < _MOST_RANKS and looks_so(reading.head_of(path)):
            found[int(number[1])] = path
    return found


def looks_so(head: bytes) -> bool:
    """Whether a file begins as a dump does."""
    if head.lstrip()[:1] == b"{":
        return b'"pg_config"' in head or b'"collective_seq_id"' in head
    return plain_pickle.looks_so(head) and b"pg_config" in head


def read(path: Path) -> Log:
    """The dumps of a folder, or a single one, as rows of the table collectives by rank.

    A dump that is damaged is left out, and a note says so; a rank of a group that has no dump is told by the diagnosis.
    """
    files = find(path) if path.is_dir() else {_rank_of(path): path}
    ranks: dict[int, dict[str, list[dict[str, Any]]]] = {}
    notes: list[str] = []
    for rank, file in sorted(files.items()):
        try:
            dump = _load(file)
        except InputError as error:
            notes.append(f"Left out: {error}")
            continue
        ranks[rank] = {"collectives": [*_groups(dump), *_entries(dump)]}
    if not ranks:
        raise InputError(
            Cause.OTHER_CONTENT, notes[0] if notes else f"{path}: holds no dump of torch's Flight Recorder"
        )
    return Log("flight-recorder", path, [], {"dumps": len(ranks)}, tuple(notes), ranks=ranks)


def _rank_of(file: Path) -> int:
    number = _RANK.search(file.name)
    return int(number[1]) if number else 0


def _load(file: Path) -> Mapping[str, Any]:
    if reading.head_of(file).lstrip()[:1] == b"{":
        try:
            dump = json.loads(reading.text_of(file))
        except (ValueError, RecursionError):
            raise InputError(Cause.DAMAGED_LOG, f"{file}: not valid JSON, half-written or damaged") from None
    else:
        dump = plain_pickle.load(file)
    if not isinstance(dump, dict) or not isinstance(dump.get("pg_config"), dict):
        raise InputError(Cause.OTHER_CONTENT, f"{file}: no dump of torch's Flight Recorder: it lacks pg_config")
    return dump


def _groups(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each process group of the rank, with how far it came: the rows without an operation."""
    given = dump.get("pg_status")
    status: dict[str, Any] = given if isinstance(given, dict) else {}
    names = {str(entry.get("pg_id")): _group_of(entry)[0] for entry in _listed(dump)}
    progress = {names[number]: told for number, told in status.items() if number in names and isinstance(told, dict)}
    rows = []
    for name, group in list(dump["pg_config"].items())[:_MOST_RANKS]:
        if not isinstance(group, dict):
            continue
        members = " ".join(re.findall(r"\d+", str(group.get("ranks", "")))[:_MOST_RANKS])
        row = {"group": str(name), "description": _text(group.get("desc")), "members": members}
        told = progress.get(str(name), {})
        rows.append(row | {"enqueued": _whole(told, "last_enqueued_collective"),
                           "completed": _whole(told, "last_completed_collective")})  # fmt: skip
    return rows


def _entries(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for entry in _listed(dump):
        name, description = _group_of(entry)
        created = entry.get("time_created_ns")
        rows.append(
            {
                "group": name,
                "description": description,
                "sequence": _whole(entry, "p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"),
                "p2p": bool(entry.get("is_p2p")),
                "operation": _text(entry.get("profiling_name")).removeprefix("nccl:").removeprefix("gloo:"),
                "sizes": f"{_text(entry.get('input_sizes'))} -> {_text(entry.get('output_sizes'))}",
                "dtype": _text(entry.get("input_dtypes")).strip("[]'"),
                "state": _text(entry.get("state")),
                "created": created / 1e9 if isinstance(created, int) else None,
                "thread": _text(entry.get("thread_name")),
                "stack": _stack(entry.get("frames")),
            }
        )
    return rows


def _listed(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = dump.get("entries")
    return [e for e in entries if isinstance(e, dict)][-_MOST_ENTRIES:] if isinstance(entries, list) else []


def _group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    group = entry.get("process_group")
    return (_text(group[0]), _text(group[1])) if isinstance(group, list | tuple) and len(group) > 1 else ("", "")


def _stack(frames: Any) -> str | None:
    """Lines of a stack, innermost first, of the program's own files where it has any."""
    if not isinstance(frames, list):
        return None
    told = [
        (_text(frame.get("filename")), _whole(frame, "line"), _text(frame.get("name")))
        for frame in frames[:500]
        if isinstance(frame, dict)
    ]
    own = [frame for frame in told if not _LIBRARY.search(frame[0])] or told
    return "\n".join(f"{file}:{line} {name}" for file, line, name in own[:_FRAMES]) or None


def _whole(values: Mapping[str, Any], key: str) -> int | None:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else None


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:200]
