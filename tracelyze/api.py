"""tracelyze from Python: :func:`diagnose`, :func:`load` and :func:`diagnose_row`, as `tracelyze.<name>`.

The package hands these out when they are first asked for (see `tracelyze.__getattr__`), so that `import tracelyze`
inside a training imports neither numpy nor pandas. docs/python.md shows them at work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Run
    from tracelyze.diagnosis import Diagnosis

__all__ = ["diagnose", "diagnose_row", "load"]


def diagnose(
    path: str | Path,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    picture: bool = False,
) -> Diagnosis:
    """What went wrong in the run directory, profiler trace or folder of traces at `path`.

    `select` limits the diagnosis to these rule ids, `ignore` leaves some out, `thresholds[rule][name]` overrides a
    number of a rule. `picture`: with the timelines that only a page shows. No configuration file is read. Raises
    :class:`tracelyze.InputError`, one line, for what cannot be read and for unknown rules and thresholds.

    >>> diagnosis = tracelyze.diagnose("runs/train-20260101-120000")  # doctest: +SKIP
    >>> diagnosis.verdict  # doctest: +SKIP
    'critical'
    >>> [(finding.rule, finding.first_step) for finding in diagnosis.roots()]  # doctest: +SKIP
    [('missing-zero-grad', 1)]
    """
    from tracelyze import analyzers
    from tracelyze.analyzers import kineto

    path = Path(path)
    is_trace = kineto.is_trace(path) or (path.exists() and not path.is_dir())  # which says why a file is none
    judge = kineto.diagnose_traces if is_trace else analyzers.diagnose
    return judge(path, select=select, ignore=ignore, thresholds=thresholds or {}, picture=picture)


def load(run: str | Path) -> Run:
    """The recorded run in the directory `run`; its tables are read when they are asked for.

    `to_pandas(table)` of the result makes a pandas DataFrame of all processes' rows; `processes` are the processes,
    each with `tables`. `tracelyze schema` prints every table and column. Raises :class:`tracelyze.InputError`, one
    line, for what is not a readable run.

    >>> run = tracelyze.load("runs/train-20260101-120000")  # doctest: +SKIP
    >>> run.to_pandas("steps")[["rank", "step", "loss", "grad_norm"]].tail(1)  # doctest: +SKIP
         rank  step   loss  grad_norm
    999     0  1000  0.231       1.07
    """
    from tracelyze import analyzers

    return analyzers.load(run)


def diagnose_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The diagnosis of the run at `row["path"]`, as a row: for the `map` of Ray, Dask, Spark, Daft or a process pool.

    Pure and picklable: the answer depends on the run alone, and holds numbers, text, lists and dictionaries. It is the
    given row, with `run`, `status` ("judged" or "error"), `verdict`, `error` and `checks`, a list with one dictionary
    per check: the rows of the table of `tracelyze fleet`, whose columns docs/fleet.md lists. A run that cannot be
    judged raises nothing: it has the status "error" and one check that says why.

    >>> paths = [{"path": "runs/a"}, {"path": "runs/b"}]
    >>> rows = [check for row in map(tracelyze.diagnose_row, paths) for check in row["checks"]]  # doctest: +SKIP
    """
    from tracelyze.fleet.judging import judge_row

    return judge_row(row)
