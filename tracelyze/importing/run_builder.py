"""A log that another program wrote, as a run directory: which of its columns mean what, and writing them down.

Nothing is computed and nothing is filled in: a value that the log lacks stays null, a NaN stays a NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tracelyze
from tracelyze import schema
from tracelyze.collectors.storage.stream import record_batch
from tracelyze.collectors.system.identity import write_json
from tracelyze.errors import InputError

_BATCH = 50_000
_TRAINING = re.compile(r"(?:train|training)_(.+)|(.+?)_(?:train|training)")
_VALIDATION = re.compile(r"(?:val|valid|validation|eval|dev)_(.+)|(.+?)_(?:val|valid|validation|eval|dev)")
# Names as Trainer, Lightning, Weights & Biases, TensorBoard and hand-written loops have them; the first counts.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "steps", "iteration", "iter", "iter_num", "update", "num_updates"),
    "loss": ("loss", "loss_step", "total_loss"),
    "grad_norm": ("grad_norm", "gradient_norm", "gradnorm", "global_grad_norm", "grad_2_0_norm_total", "gnorm"),
    "lr": ("lr", "learning_rate"),
    "scale": ("loss_scale", "grad_scale", "scaler_scale", "amp_scale", "scale"),
    "time": ("runtime", "elapsed_s", "elapsed_seconds"),
}


@dataclass(frozen=True)
class Log:
    """What a log says. `rows` map the log's own column names to numbers, None where nothing was written.

    `kind` names the format; `facts` are kept in run.json; `notes` are said to the user.
    """

    kind: str
    file: Path
    rows: list[dict[str, float | None]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def write_run(log: Log, run: Path) -> str:
    """Make the run directory `run` from `log`; returns a sentence on what it holds.

    InputError if the log has no steps or nothing that speaks of a training, or if `run` cannot be made.
    """
    columns = recognised(name for row in log.rows for name in row)
    _require(log, columns)
    steps, evals = _tables(log, columns)
    folder = _make(run) / "rank00000-attempt0-pid0"
    source = {"kind": log.kind, "file": str(log.file), "columns": columns, **log.facts}
    common = {"schema_version": schema.SCHEMA_VERSION, "tracelyze_version": tracelyze.__version__, "source": source}
    try:
        folder.mkdir()
        _write(schema.STEPS, steps, folder)
        _write(schema.EVALS, evals, folder)
        write_json(folder / schema.PROCESS_FILE, {**common, "rank": 0, "attempt": 0, "pid": None})
        write_json(run / schema.RUN_FILE, {**common, "command": []})
    except OSError as error:
        raise InputError(f"{run}: {error.strerror or error}; choose a folder that can be written") from None
    used = ", ".join(f"{ours} from {theirs}" if ours != theirs else ours for ours, theirs in columns.items())
    return "\n".join([f"imported {len(steps)} steps and {len(evals)} evaluations: {used}", *log.notes])


def recognised(names: Iterable[str]) -> dict[str, str]:
    """For each column of ours that the log has: the log's name for it. `val_loss` stands for the table evals' loss."""
    found: dict[str, str] = {}
    ranks: dict[str, int] = {}
    for name in dict.fromkeys(names):
        meaning = _meaning(name)
        if meaning is not None and meaning[1] < ranks.get(meaning[0], 1000):
            found[meaning[0]], ranks[meaning[0]] = name, meaning[1]
    return {ours: found[ours] for ours in (*_NAMES, "val_loss") if ours in found}


def _meaning(name: str) -> tuple[str, int] | None:
    """Our column for the log's `name`, and how well it fits (0 is best); None if it is none of ours."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    validation = _VALIDATION.fullmatch(plain)
    if validation:
        rest = validation[1] or validation[2]
        return ("val_loss", 0) if rest in ("loss", "loss_epoch") else None
    training = _TRAINING.fullmatch(plain)
    base = (training[1] or training[2]) if training else plain
    for ours, theirs in _NAMES.items():
        if base in theirs:
            return ours, 2 * theirs.index(base) + bool(training)
    return ("lr", 100) if re.fullmatch(r"lr_[a-z0-9_]+|lr0", base) else None


def _require(log: Log, columns: Mapping[str, str]) -> None:
    seen = list(dict.fromkeys(name for row in log.rows for name in row))
    shown = ", ".join(name[:40] for name in seen[:12]) + (", ..." if len(seen) > 12 else "")
    if not log.rows:
        raise InputError(f"{log.file}: holds no rows; give the log of a training that has made steps")
    if "step" not in columns:
        raise InputError(f"{log.file}: has no column that numbers the steps; rename one to 'step' (it has: {shown})")
    if not columns.keys() & {"loss", "grad_norm", "val_loss"}:
        raise InputError(f"{log.file}: has no loss; rename the column to 'loss' or 'val_loss' (it has: {shown})")


def _tables(log: Log, columns: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the tables steps and evals. Loggers write one step's values in several rows: those are put together."""
    ours = [name for name in columns if name not in ("step", "val_loss", "time")]
    steps: list[dict[str, Any]] = []
    evals: list[dict[str, Any]] = []
    for row in log.rows:
        step = row.get(columns["step"])
        if step is None or not abs(step) < 2**53:  # no number, or none that counts steps
            continue
        time = row.get(columns.get("time", ""))
        values = {name: value for name in ours if (value := row.get(columns[name])) is not None}
        if values:
            last = steps[-1] if steps else {}
            if last.get("step") == int(step) and not last.keys() & values.keys():
                last |= values
            else:
                steps.append({"optimizer": 0, "step": int(step), "time": time, **values})
        loss = row.get(columns.get("val_loss", ""))
        if loss is not None:
            evals.append({"after_step": int(step), "loss": loss, "trained": True, "time_end": time})
    return steps, evals


def _make(run: Path) -> Path:
    try:
        run.mkdir(parents=True, exist_ok=True)
        if any(run.iterdir()):
            raise InputError(f"{run}: is not empty; name a new folder for the run")
    except OSError as error:
        raise InputError(f"{run}: {error.strerror}; choose a folder that can be written") from None
    return run


def _write(table: schema.Table, rows: list[dict[str, Any]], folder: Path) -> None:
    import pyarrow.parquet

    empty = record_batch(table, [])
    target = folder / f"{table.name}{schema.TABLE_SUFFIX}"
    with pyarrow.parquet.ParquetWriter(target, empty.schema, compression="zstd") as writer:
        for begin in range(0, len(rows), _BATCH):
            writer.write_batch(record_batch(table, rows[begin : begin + _BATCH]))
