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


def diagnose_row(row: Mapping[str, Any], filesystem: FileSystem | None = None) -> dict[str, Any]:
    """The diagnosis of the run at `row["path"]`, as a row: for the `map` of Ray, Dask, Spark, Daft or a process pool.

    Pure and picklable: the answer depends on the run alone, and holds numbers, text, lists and dictionaries. It is the
    given row, with `run`, `status` ("judged" or "error"), `verdict`, `error` and `checks`, a list with one dictionary
    per check: the rows of the table of `tracelyze fleet`, whose columns docs/fleet.md lists. A run that cannot be
    judged raises nothing: it has the status "error" and one check that says why.

    `filesystem`: where the path lies, else its URI or this machine says it.

    >>> paths = [{"path": "runs/a"}, {"path": "runs/b"}]
    >>> rows = [check for row in map(tracelyze.diagnose_row, paths) for check in row["checks"]]  # doctest: +SKIP
    """
    path = str(row.get("path", row.get("item", "")))
    result = {**row, "path": path, "run": path, "status": "judged", "verdict": None, "error": None}
    try:
        diagnosis = _diagnose(path, filesystem)
    except InputError as error:
        return {**result, "status": "error", "error": str(error), "checks": [table.error_row(path, str(error))]}
    except Exception as error:  # a fleet outlives whatever one of its runs holds
        reason = f"tracelyze failed on it: {type(error).__name__}: {error}"
        return {**result, "status": "error", "error": reason, "checks": [table.error_row(path, reason)]}
    return {**result, "verdict": diagnosis.verdict, "checks": table.rows_of(path, diagnosis)}


def _diagnose(path: str, filesystem: FileSystem | None) -> Diagnosis:
    from tracelyze import api
    from tracelyze.fleet import storage

    if filesystem is None and not storage.is_remote(path):
        return api.diagnose(Path(path), workers=1)
    with storage.mirrored(path, filesystem) as folder:
        try:
            return api.diagnose(folder, workers=1)
        except InputError as error:  # speaks of the mirror
            raise InputError(error.cause, str(error).replace(str(folder), path)) from None
