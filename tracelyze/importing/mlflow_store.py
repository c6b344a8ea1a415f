"""MLflow's file store: a folder `mlruns/<experiment>/<run>/metrics` with a text file per metric."""

from __future__ import annotations

from pathlib import Path

from tracelyze.errors import InputError
from tracelyze.importing.reading import Numbers, lines_of, number
from tracelyze.importing.run_builder import Log


def find(folder: Path) -> list[Path]:
    """The runs in a folder: the run itself, those of an experiment, or those of the whole store."""
    for pattern in (".", "*", "*/*"):
        runs = [path for path in sorted(folder.glob(pattern)) if (path / "metrics").is_dir() and (path / "meta.yaml").is_file()]
        if runs:
            return runs
    return []


def read(path: Path) -> Log:
    """The metrics of the only run in the folder: lines of timestamp (ms), value and step."""
    runs = find(path)
    if len(runs) != 1:
        named = ", ".join(run.name for run in runs[:8])
        raise InputError(f"{path}: holds {len(runs)} runs ({named}); give the folder of one")
    folder = runs[0] / "metrics"
    rows: dict[float, Numbers] = {}
    start: float | None = None
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        for line in lines_of(file):
            told = [number(word) for word in line.split()]
            if len(told) not in (2, 3) or told[0] is None or (step := told[2] if len(told) == 3 else 0.0) is None:
                continue
            start = told[0] if start is None else min(start, told[0])
            rows.setdefault(step, {"step": step, "elapsed_s": told[0]})[name] = told[1]
    for row in rows.values():
        row["elapsed_s"] = ((row["elapsed_s"] or 0.0) - (start or 0.0)) / 1e3
    return Log("mlflow", runs[0], [rows[step] for step in sorted(rows)], {"run": runs[0].name})
