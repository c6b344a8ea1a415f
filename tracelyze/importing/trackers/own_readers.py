"""Runs of SwanLab and repositories of Aim, read by their own packages: neither says what its files look like."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tracelyze.errors import Cause, InputError
from tracelyze.formatting import size
from tracelyze.importing.reading import LARGEST, Numbers
from tracelyze.importing.run_builder import Log
from tracelyze.importing.trackers import own_process

SWANLAB_MAGIC: Final = b":SWL"
_SWANLAB: Final = ".swanlab"
_AIM: Final = ".aim"
_HERE: Final = Path(__file__).parent
_NOT_COPIED: Final = shutil.ignore_patterns("locks", "check_ins", "progress", "*.lock")


def find_swanlab(folder: Path) -> list[Path]:
    """The runs in a folder: that of a run, or a folder `swanlog` or the one around it; the newest at the end."""
    for pattern in (f"*{_SWANLAB}", f"run-*/*{_SWANLAB}", f"swanlog/run-*/*{_SWANLAB}"):
        if found := sorted(folder.glob(pattern)):
            return sorted(found, key=lambda file: file.stat().st_mtime)
    return []


def read_swanlab(path: Path) -> Log:
    """The scalars of a run, as far as its file goes; of several runs in a folder, those of the last one."""
    found = find_swanlab(path) if path.is_dir() else [path]
    file = found[-1] if found else path
    own_process.require("swanlab", file, "a run of SwanLab")
    notes = [f"{path}: holds {len(found)} runs; the last one, {file.stem}, is read"] if len(found) > 1 else []
    rows, facts, trouble = _read("swanlab", file, file)
    if not rows:
        raise InputError(
            Cause.MISSING_PACKAGE,
            f"{file}: swanlab could not read it ({trouble or 'it holds no scalars'}); use the release that wrote it",
        )
    return Log("swanlab", file, rows, {"run": file.stem, **facts}, tuple(notes))


def find_aim(folder: Path) -> Path | None:
    """The folder `.aim` of a repository, whether it is given itself or the one around it."""
    found = folder if folder.name == _AIM else folder / _AIM
    return found if (found / "VERSION").is_file() and (found / "meta").is_dir() else None


def read_aim(path: Path) -> Log:
    """The metrics of the run that began last."""
    repository = find_aim(path)
    if repository is None:
        raise InputError(Cause.OTHER_CONTENT, f"{path}: no repository of Aim; give the folder that holds .aim")
    own_process.require("aim", path, "a repository of Aim")
    held = sum(file.stat().st_size for file in repository.rglob("*") if file.is_file())
    if held > LARGEST:
        raise InputError(
            Cause.TOO_LARGE, f"{path}: has {size(held)}, more than {size(LARGEST)}; copy a run with `aim runs cp`"
        )
    with tempfile.TemporaryDirectory() as copied:  # Aim takes locks and writes an index where it reads
        shutil.copytree(repository, Path(copied) / _AIM, ignore=_NOT_COPIED)
        rows, facts, trouble = _read("aim", path, Path(copied))
    if not rows:
        raise InputError(
            Cause.MISSING_PACKAGE,
            f"{path}: aim could not read it ({trouble or 'it holds no metrics'}); aim 3.29 or later is needed",
        )
    several = facts.get("runs", 1) > 1
    notes = (f"{path}: holds {facts['runs']} runs; the last one, {facts['run']}, is read",) if several else ()
    return Log("aim", repository, rows, facts, notes)


def _read(package: str, named: Path, path: Path) -> tuple[list[Numbers], dict[str, Any], str]:
    """Rows by step, and what else the reader printed."""
    rows: dict[float, Numbers] = {}
    facts: dict[str, Any] = {}
    # -P: the folder of the script holds a module called tensorboard, which must not stand for that package.
    arguments = ["-P", str(_HERE / f"{package}_records.py"), str(path.resolve())]
    _, trouble = own_process.read(package, named, arguments, _taking(rows, facts))
    start = min((row["elapsed_s"] or 0.0 for row in rows.values()), default=0.0)
    return (
        [{**rows[step], "elapsed_s": (rows[step]["elapsed_s"] or 0.0) - start} for step in sorted(rows)],
        facts,
        trouble,
    )


def _taking(rows: dict[float, Numbers], facts: dict[str, Any]) -> Callable[[Any], None]:
    def take(record: Any) -> None:
        if isinstance(record, dict):
            facts.update(record)
        elif isinstance(record, list) and len(record) == 4:
            name, step, value, seconds = record
            rows.setdefault(float(step), {"step": float(step), "elapsed_s": float(seconds or 0.0)})[str(name)] = value

    return take
