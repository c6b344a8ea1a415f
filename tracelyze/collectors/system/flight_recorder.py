"""Dumps of torch's Flight Recorder, taken in the process or read from a file: rows of the table collectives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_MOST_GROUPS = 20_000
_MOST_ENTRIES = 100_000  # of a rank: the ring buffer has 2,000 unless configured otherwise
_FRAMES = 12
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python|/torch/|<frozen|\.cpp$|\.cc$|\.h$")


def rows(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each process group of the rank, then one for each collective that it had enqueued."""
    return [*_groups(dump), *_entries(dump)]


def _groups(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each process group of the rank, with how far it came: the rows without an operation."""
    given = dump.get("pg_status")
    status: dict[str, Any] = given if isinstance(given, dict) else {}
    names = {str(entry.get("pg_id")): _group_of(entry)[0] for entry in _listed(dump)}
    nameless = _nameless(dump, names)
    progress = {names[number]: group for number, group in status.items() if number in names and isinstance(group, dict)}
    of_gloo: dict[str, int] = {}
    for entry in _listed(dump):
        if _text(entry.get("profiling_name")).startswith("gloo:"):
            group = _group_of(entry)[0]
            of_gloo[group] = max(of_gloo.get(group, 0), _whole(entry, "collective_seq_id") or 0)
    rows = []
    for name, group in list(dump["pg_config"].items())[:_MOST_GROUPS]:
        if not isinstance(group, dict):
            continue
        members = " ".join(re.findall(r"\d+", str(group.get("ranks", "")))[:_MOST_GROUPS])
        name = str(name) or nameless
        row: dict[str, Any] = {"group": name, "description": _text(group.get("desc")), "members": members}
        enqueued = progress.get(name, {})
        row["enqueued"] = _whole(enqueued, "last_enqueued_collective")
        row["completed"] = _whole(enqueued, "last_completed_collective")
        last = of_gloo.get(name)
        if last is not None:  # Gloo counts all operations here, and keeps no entries of sends and receives
            row["unseen"] = max((_whole(row, "enqueued") or 0) - last, 0)
            row["enqueued"] = last
        rows.append(row)
    return rows


def _nameless(dump: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """What entries call the group that has no name in the list of groups: Gloo's default one."""
    unlisted = {name for name in names.values() if name and name not in dump["pg_config"]}
    return unlisted.pop() if len(unlisted) == 1 else ""


def _entries(dump: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for entry in _listed(dump):
        name, description = _group_of(entry)
        created = entry.get("time_created_ns")
        operation = _text(entry.get("profiling_name"))
        done = operation.startswith("gloo:") and entry.get("retired") is True  # its state stays what it was
        rows.append(
            {
                "group": name,
                "description": description,
                "sequence": _whole(entry, "p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"),
                "p2p": bool(entry.get("is_p2p")),
                "operation": operation.removeprefix("nccl:").removeprefix("gloo:"),
                "sizes": f"{_text(entry.get('input_sizes'))} -> {_text(entry.get('output_sizes'))}",
                "dtype": _text(entry.get("input_dtypes")).strip("[]'"),
                "state": "completed" if done else _text(entry.get("state")),
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
    named = [
        (_text(frame.get("filename")), _whole(frame, "line"), _text(frame.get("name")))
        for frame in frames[:500]
        if isinstance(frame, dict)
    ]
    own = [frame for frame in named if not _LIBRARY.search(frame[0])] or named
    return "\n".join(f"{file}:{line} {name}" for file, line, name in own[:_FRAMES]) or None


def _whole(values: Mapping[str, Any], key: str) -> int | None:
    value = values.get(key)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):  # as dumps in JSON have some numbers
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62 else None


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:200]
