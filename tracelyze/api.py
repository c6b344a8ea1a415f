"""tracelyze from Python: :func:`diagnose` and :func:`load`, as `tracelyze.<name>`.

The package hands these out when they are first asked for (see `tracelyze.__getattr__`), so that `import tracelyze`
inside a training imports neither numpy nor pandas. docs/python.md shows them at work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelyze.errors import Cause, InputError
from tracelyze.run_parts import whole_run
from tracelyze.schema.outside import FOLDER_BESIDE

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Run
    from tracelyze.diagnosis import Diagnosis
    from tracelyze.schema.outside import Beside

    _Mapper = Callable[[Callable[[Any], bytes], Sequence[Any]], Iterable[bytes]]

__all__ = ["diagnose", "load"]


@dataclass(frozen=True)
class _Choice:
    """What the caller wants to know, whatever the path holds."""

    select: Collection[str]
    ignore: Collection[str]
    thresholds: Mapping[str, Mapping[str, float]]
    picture: bool

    def of_traces(self, path: Path) -> Diagnosis:
        from tracelyze.analyzers import kineto

        return kineto.diagnose_traces(
            path, select=self.select, ignore=self.ignore, thresholds=self.thresholds, picture=self.picture
        )

    def of_run(
        self, run: Run | Path, beside: Sequence[Beside], workers: int | None = None, mapper: _Mapper | None = None
    ) -> Diagnosis:
        from tracelyze import analyzers

        return analyzers.diagnose(
            run,
            select=self.select,
            ignore=self.ignore,
            thresholds=self.thresholds,
            picture=self.picture,
            beside=beside,
            workers=workers,
            mapper=mapper,
        )


def diagnose(
    path: str | Path,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    picture: bool = False,
    pattern: str | None = None,
    beside: Sequence[str | Path] = (),
    workers: int | None = None,
    mapper: Callable[[Callable[[Any], bytes], Sequence[Any]], Iterable[bytes]] | None = None,
) -> Diagnosis:
    """What went wrong in what lies at `path`: a run directory, profiler traces, or a recording of another program.

    What it is is recognised by its content, and said in the notes of the diagnosis. `select` limits the diagnosis to
    these rule ids, `ignore` leaves some out, `thresholds[rule][name]` overrides a number of a rule. `picture`: with the
    timelines that only a page shows. `pattern`: a regular expression with the groups `step` and `loss` for the lines of
    a text log. `beside`: logs of what surrounded the job, and dumps of its stacks (dmesg, SLURM's, py-spy's), which are
    joined to it by process, job and time; those in the folder `beside` of a run are always read. `workers`: processes
    that share the folders of a run of many ranks, by default as many as it is worth; `mapper(function, tasks)` gives
    the answers of the picklable function to all tasks, in order: on a cluster, say (docs/fleet.md). No configuration
    file is read. Raises :class:`tracelyze.InputError`, one line, for what cannot be read and for unknown rules and
    thresholds.

    >>> diagnosis = tracelyze.diagnose("runs/train-20260101-120000")  # doctest: +SKIP
    >>> diagnosis.verdict  # doctest: +SKIP
    'critical'
    >>> [(finding.rule, finding.first_step) for finding in diagnosis.roots()]  # doctest: +SKIP
    [('missing-zero-grad', 1)]
    """
    from tracelyze import analyzers
    from tracelyze.analyzers import kineto

    path = whole_run(path)
    choice = _Choice(select, ignore, thresholds or {}, picture)
    surroundings = _beside(path, beside)
    if pattern is None and kineto.is_trace(path):
        if surroundings:
            raise InputError(
                Cause.WRONG_OPTION, f"{path}: a profiler trace takes nothing beside it; give a run or a log"
            )
        return choice.of_traces(path)
    if pattern is None and (not path.exists() or analyzers.is_run(path)):
        return choice.of_run(path, surroundings, workers, mapper)
    return _diagnose_recording(path, pattern, choice, surroundings)


def _diagnose_recording(path: Path, pattern: str | None, choice: _Choice, surroundings: Sequence[Beside]) -> Diagnosis:
    """The diagnosis of a file or folder that another program wrote: it becomes a run directory that is thrown away."""
    from tracelyze import analyzers
    from tracelyze.analyzers import kineto
    from tracelyze.importing import recordings

    found = recordings.find(path, pattern)
    if found is None and kineto.is_named_like_trace(path):
        return choice.of_traces(path)  # which says why it is none
    recording = recordings.must_be_known(path, found)
    if recording.console:
        from tracelyze.importing.job_logs import beside

        surroundings = [*surroundings, *beside.own(recording.path)]
    with tempfile.TemporaryDirectory(prefix="tracelyze-") as folder:
        imported = recordings.make_run(recording, Path(folder) / "run")
        run = analyzers.load(Path(folder) / "run")
        notes = [f"read as {imported.title}", *imported.notes, *run.notes]
        return choice.of_run(replace(run, path=path, notes=notes), surroundings)


def _beside(path: Path, given: Sequence[str | Path]) -> Sequence[Beside]:
    """What the files given beside a run hold, and those in its folder for them."""
    folder = path / FOLDER_BESIDE
    paths = [*map(Path, given), *([folder] if folder.is_dir() else [])]
    if not paths:
        return ()
    from tracelyze.importing.job_logs import beside

    return beside.read(paths)


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
