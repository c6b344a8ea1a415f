"""tracelyze from Python: :func:`diagnose` and :func:`load`, as `tracelyze.<name>`.

The package hands these out when they are first asked for (see `tracelyze.__getattr__`), so that `import tracelyze`
inside a training imports neither numpy nor pandas. docs/python.md shows them at work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelyze.errors import Cause, InputError
from tracelyze.schema.outside import FOLDER_BESIDE

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Run
    from tracelyze.diagnosis import Diagnosis
    from tracelyze.schema.outside import Beside

__all__ = ["diagnose", "load"]


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

    path = Path(path)
    chosen: dict[str, Any] = {"select": select, "ignore": ignore, "thresholds": thresholds or {}, "picture": picture}
    chosen["beside"] = _beside(path, beside)
    if pattern is None and kineto.is_trace(path):
        if chosen.pop("beside"):
            raise InputError(
                Cause.WRONG_OPTION, f"{path}: a profiler trace takes nothing beside it; give a run or a log"
            )
        return kineto.diagnose_traces(path, **chosen)
    if pattern is None and (not path.exists() or analyzers.is_run(path)):
        return analyzers.diagnose(path, **chosen, workers=workers, mapper=mapper)
    return _diagnose_recording(path, pattern, chosen)


def _diagnose_recording(path: Path, pattern: str | None, chosen: Mapping[str, Any]) -> Diagnosis:
    """The diagnosis of a file or folder that another program wrote: it becomes a run directory that is thrown away."""
    from tracelyze import analyzers
    from tracelyze.analyzers import kineto
    from tracelyze.importing import recordings

    recording = recordings.recognize(path, pattern)
    if recording is None and kineto.is_named_like_trace(path):
        chosen = {name: value for name, value in chosen.items() if name != "beside"}
        return kineto.diagnose_traces(path, **chosen)  # which says why it is none
    if recording is not None and recording.console:
        from tracelyze.importing.surroundings import beside

        chosen = {**chosen, "beside": [*chosen["beside"], *beside.own(path)]}
    with tempfile.TemporaryDirectory(prefix="tracelyze-") as folder:
        said = recordings.import_recording(path, Path(folder) / "run", pattern)
        run = analyzers.load(Path(folder) / "run")
        notes = [line for line in said.splitlines() if not line.startswith("imported ")]
        return analyzers.diagnose(replace(run, path=path, notes=[*notes, *run.notes]), **chosen)


def _beside(path: Path, given: Sequence[str | Path]) -> Sequence[Beside]:
    """What the files given beside a run hold, and those in its folder for them."""
    folder = path / FOLDER_BESIDE
    paths = [*map(Path, given), *([folder] if folder.is_dir() else [])]
    if not paths:
        return ()
    from tracelyze.importing.surroundings import beside

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
