"""MLflow's file store: a folder `mlruns/<experiment>/<run>/metrics` with a text file per metric."""

from __future__ import annotations

from pathlib import Path

from tracelyze.errors import Cause, InputError
from tracelyze.importing.reading import Numbers, lines_of, number
from tracelyze.importing.run_builder import Log


def find(folder: Path) -> list[Path]:
    """The runs in a folder: the run itself, those of an experiment, or those of the whole store."""
    for below in ([folder], folder.glob("*"), folder.glob("*/*")):
        runs = [path for path in below if (path / "metrics").is_dir() and (path / "meta.yaml").is_file()]
        if runs:
            return sorted(runs)
    return []


def read(path: Path) -> Log:
    """The metrics of the run in the folder that was written to last: lines of timestamp (ms), value and step."""
    runs = sorted(find(path), key=lambda run: (run / "metrics").stat().st_mtime)
    if not runs:
        raise InputError(
            Cause.NOTHING_LOGGED, f"{path}: holds no run of MLflow; give a folder with metrics and meta.yaml"
        )
    note = (f"{path}: holds {len(runs)} runs; the last one, {runs[-1].name}, is read",) if len(runs) > 1 else ()
    folder = runs[-1] / "metrics"
    rows: dict[float, Numbers] = {}
    start: float | None = None
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        for line in lines_of(file):
            parts = [number(word) for word in line.split()]
            if len(parts) not in (2, 3) or parts[0] is None or (step := parts[2] if len(parts) == 3 else 0.0) is None:
                continue
            start = parts[0] if start is None else min(start, parts[0])
            rows.setdefault(step, {"step": step, "elapsed_s": parts[0]})[name] = parts[1]
    for row in rows.values():
        row["elapsed_s"] = ((row["elapsed_s"] or 0.0) - (start or 0.0)) / 1e3
    return Log("mlflow", runs[-1], [rows[step] for step in sorted(rows)], {"run": runs[-1].name}, note)
