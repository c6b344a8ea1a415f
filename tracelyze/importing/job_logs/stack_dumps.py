"""Dumps of py-spy (`py-spy dump`, as text or --json): on which line each thread of a process stood."""

from __future__ import annotations

import re
from typing import Any

from tracelyze import reading
from tracelyze.schema import outside

_PROCESS = re.compile(r"Process (\d{1,10}): ")
_THREAD = re.compile(r"Thread (?P<id>\w{1,20}) \((?P<status>[\w+]+)\)(?:: \"(?P<name>.*)\")?\s*$")
_FRAME = re.compile(r"    (?P<function>\S.*) \((?P<file>.*?)(?::(?P<line>\d{1,9}))?\)\s*$")
_RANK = re.compile(r"rank[-_ ]?(\d{1,9})", re.IGNORECASE)
_LONGEST = 2_000  # characters of a line that are looked at
_MOST = 2_000  # threads and frames of one that are kept


def looks_so(head: str) -> bool:
    """Whether a file begins as such a dump does, after what sudo or a shell may have said."""
    if head.lstrip().startswith("["):
        return all(f'"{word}"' in head for word in ("thread_id", "owns_gil", "frames"))
    lines = head.splitlines()
    begins = next((place for place, line in enumerate(lines[:20]) if _PROCESS.match(line)), None)
    return begins is not None and any(line.startswith("Python v") for line in lines[begins + 1 : begins + 3])


def read(name: str, text: str) -> list[outside.Stack]:
    """The processes of a file called `name`. ValueError for JSON that is damaged."""
    rank = _RANK.search(name)
    number = int(rank[1]) if rank else None
    return _of_json(name, text, number) if text.lstrip().startswith("[") else _of_text(name, text, number)


def _of_text(name: str, text: str, rank: int | None) -> list[outside.Stack]:
    found: list[outside.Stack] = []
    pid: int | None = None
    threads: list[tuple[str, str, list[outside.Frame]]] = []

    def close() -> None:
        if threads:
            found.append(
                outside.Stack(name, pid, rank, tuple(outside.Thread(n, s, tuple(frames)) for n, s, frames in threads))
            )
            threads.clear()

    for whole in text.splitlines():
        line = whole[:_LONGEST]
        if process := _PROCESS.match(line):
            close()
            pid = int(process[1])
        elif thread := _THREAD.match(line):
            if len(threads) < _MOST:
                threads.append((thread["name"] or thread["id"], thread["status"], []))
        elif threads and len(threads[-1][2]) < _MOST and (frame := _FRAME.match(line)):
            threads[-1][2].append(outside.Frame(frame["function"], frame["file"], int(frame["line"] or 0)))
    close()
    return found


def _of_json(name: str, text: str, rank: int | None) -> list[outside.Stack]:
    value = reading.parse_json(text)
    by_process: dict[int | None, list[outside.Thread]] = {}
    for entry in (value if isinstance(value, list) else [])[:_MOST]:
        if isinstance(entry, dict) and isinstance(entry.get("frames"), list):
            status = ("active" if entry.get("active") else "idle") + ("+gil" if entry.get("owns_gil") else "")
            frames = tuple(_frame(frame) for frame in entry["frames"][:_MOST] if isinstance(frame, dict))
            thread = outside.Thread(str(entry.get("thread_name") or entry.get("thread_id"))[:100], status, frames)
            by_process.setdefault(_whole(entry.get("pid")), []).append(thread)
    return [outside.Stack(name, pid, rank, tuple(threads)) for pid, threads in by_process.items()]


def _frame(frame: dict[str, Any]) -> outside.Frame:
    file = frame.get("short_filename") or frame.get("filename") or ""
    return outside.Frame(str(frame.get("name"))[:200], str(file)[:500], _whole(frame.get("line")) or 0)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
