"""Dumps of torch's Flight Recorder: the collectives that each rank has enqueued, one file a rank, pickled or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracelyze.collectors.system.flight_recorder import rows
from tracelyze.errors import Cause, InputError
from tracelyze.importing import reading
from tracelyze.importing.dumps import plain_pickle
from tracelyze.importing.run_builder import Log

_RANK = re.compile(r"(\d+)(?:\.(?:pickle|pkl|json))?$")
_MOST_RANKS = 20_000


def find(folder: Path) -> dict[int, Path]:
    """The dumps in a folder by rank, from the numbers at the ends of their names; empty if it holds none."""
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

    A dump that is damaged is left out, and a note says so; the diagnosis names the ranks of a group that have no dump.
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
        ranks[rank] = {"collectives": rows(dump)}
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
