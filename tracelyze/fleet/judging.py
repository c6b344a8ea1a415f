"""One run of a fleet: a row with its path in, the same row with its checks out, whatever the run is like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelyze.errors import InputError
from tracelyze.fleet import table

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from tracelyze.diagnosis import Diagnosis


def judge_row(row: Mapping[str, Any], filesystem: FileSystem | None = None) -> dict[str, Any]:
    """See :func:`tracelyze.diagnose_row`. `filesystem`: where the path lies, else its URI or this machine says it."""
    path = str(row.get("path", row.get("item", "")))
    told = {**row, "path": path, "run": path, "status": "judged", "verdict": None, "error": None}
    try:
        diagnosis = _diagnose(path, filesystem)
    except InputError as error:
        return {**told, "status": "error", "error": str(error), "checks": [table.error_row(path, str(error))]}
    except Exception as error:  # a fleet outlives whatever one of its runs holds
        reason = f"tracelyze failed on it: {type(error).__name__}: {error}"
        return {**told, "status": "error", "error": reason, "checks": [table.error_row(path, reason)]}
    return {**told, "verdict": diagnosis.verdict, "checks": table.rows_of(path, diagnosis)}


def _diagnose(path: str, filesystem: FileSystem | None) -> Diagnosis:
    from tracelyze import api
    from tracelyze.fleet import storage

    if filesystem is None and not storage.is_remote(path):
        return api.diagnose(Path(path))
    with storage.mirrored(path, filesystem) as folder:
        try:
            return api.diagnose(folder)
        except InputError as error:  # speaks of the mirror
            raise InputError(str(error).replace(str(folder), path)) from None
