"""A log that another program wrote, as a run directory.

A value that the log lacks stays null, a NaN stays a NaN. What a run needs and a log leaves out is added: steps are
counted on over epochs (`numbering`), an evaluation counts as one of a model that trains, and a time that is the same in
all rows is left out. Readers may compute more, where a program logs only parts; a note says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tracelyze import schema
from tracelyze.collectors.storage.stream import record_batch
from tracelyze.collectors.system.identity import write_json
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import plural
from tracelyze.importing.columns import Plan, Row, is_reward, plan
from tracelyze.importing.numbering import BY_EPOCH, Rows, numbered
from tracelyze.version import __version__

_BATCH = 50_000
_SCALARS = 5_000_000  # values of columns that no rule knows by a column of its own; more are left out, and said
_PURPOSES: Mapping[str, str] = {"train": "training", "eval": "validation", "test": "test"}
Tables = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Log:
    """What a log says. `rows` map the log's own column names to numbers, None where nothing was written.

    `kind` names the format; `facts` are kept in run.json; `notes` are said to the user. `tables` are rows of tables of
    the run directory that the format itself has, by name: the events of a console log. `of_training`: the format says
    that it is of a training, whatever was logged; of any other a loss, a gradient norm or a reward has to say so.
    `ranks`: rows of tables by rank and table, of a format that has nothing else.
    """

    kind: str
    file: Path
    rows: list[dict[str, float | None]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tables: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    of_training: bool = False
    ranks: Mapping[int, Mapping[str, list[dict[str, Any]]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Imported:
    """What became a run directory: how many rows, and what the user should know of it.

    `title`: what was read; `columns`: our names with the log's; `ranks`: how many ranks, of a format that has nothing
    but their dumps.
    """

    steps: int = 0
    evals: int = 0
    ranks: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    title: str = ""

    def words(self) -> str:
        """A line on what was read, one on what was made of it, and the notes."""
        used = ", ".join(f"{ours} from {theirs}" if ours != theirs else ours for ours, theirs in self.columns.items())
        made = f"imported {self.steps} steps and {self.evals} evaluations" + (f": {used}" if used else "")
        if self.ranks:
            made = f"imported the dumps of {plural(self.ranks, 'rank')}"
        return "\n".join([f"read as {self.title}", made, *self.notes])


def write_run(log: Log, run: Path) -> Imported:
    """Make the run directory `run` from `log`; returns what it holds.

    InputError if the log has no steps or nothing that speaks of a training, or if `run` cannot be made.
    """
    source = {"kind": log.kind, "file": str(log.file), **log.facts}
    if log.ranks:
        write_tables(run, sorted(log.ranks.items()), source)
        return Imported(ranks=len(log.ranks), notes=log.notes)
    rows, numbering = numbered(log.rows)
    counted = {"counts": "epochs"} if numbering == BY_EPOCH else {}
    chosen = plan(rows)
    if not log.of_training and not any(log.tables.values()):
        _require(log.file, rows, chosen)
    tables = _tables(rows, chosen, chosen.step) if chosen.step else {}
    tables = {name: tables.get(name, []) + list(log.tables.get(name, [])) for name in {*tables, *log.tables}}
    write_tables(run, [(0, tables)], source | {"columns": chosen.named(), **counted})
    return Imported(
        steps=len(tables.get("steps", [])),
        evals=len(tables.get("evals", [])),
        columns=chosen.named(),
        notes=(*log.notes, *([f"{log.file}: {numbering}"] if numbering else [])),
    )


def write_tables(
    run: Path, ranks: Sequence[tuple[int, Mapping[str, list[dict[str, Any]]]]], source: Mapping[str, Any]
) -> None:
    """Make the run directory `run` of rows by rank and table. InputError if it cannot be made or holds something."""
    common = {"schema_version": schema.SCHEMA_VERSION, "tracelyze_version": __version__, "source": source}
    _make(run)
    try:
        for rank, tables in ranks:
            folder = run / schema.process_folder(rank, attempt=0, pid=0)
            folder.mkdir()
            for table in schema.TABLES:
                if table.name in ("steps", "evals") or tables.get(table.name):
                    _write(table, tables.get(table.name, []), folder)
            facts = {**common, "rank": rank, "attempt": 0, "pid": None, "world_size": len(ranks)}
            write_json(folder / schema.PROCESS_FILE, facts)
        write_json(run / schema.RUN_FILE, {**common, "command": []})
    except OSError as error:
        raise InputError(
            Cause.UNWRITABLE, f"{run}: {error.strerror or error}; choose a folder that can be written"
        ) from None


def _require(file: Path, rows: Rows, chosen: Plan) -> None:
    """InputError if the rows number no steps, or nothing in them speaks of a training."""
    seen = list(dict.fromkeys(name for row in rows for name in row))
    shown = ", ".join(name[:40] for name in seen[:12]) + (", ..." if len(seen) > 12 else "")
    if not rows:
        raise InputError(Cause.NOTHING_LOGGED, f"{file}: holds no rows; give the log of a training that has made steps")
    if chosen.step is None:
        raise InputError(
            Cause.NO_STEP_OR_LOSS,
            f"{file}: has no column that numbers the steps; rename one to 'step' (it has: {shown})",
        )
    rewarded = any(map(is_reward, chosen.scalars))
    if not (chosen.steps.keys() & {"loss", "grad_norm"} or chosen.evaluations or chosen.players or rewarded):
        raise InputError(
            Cause.NO_STEP_OR_LOSS,
            f"{file}: has no loss; rename the column to 'loss' or 'val_loss' (it has: {shown})",
        )


def _tables(rows: Rows, chosen: Plan, step: str) -> Tables:
    """Rows of the tables steps, evals, scalars and optimizers; `step` is the column that numbers the steps."""
    time = chosen.steps.get("time", "")
    placed = [
        _Placed(int(number), row.get(time), row)
        for row in rows
        if (number := row.get(step)) is not None and abs(number) < 2**53  # one that counts steps
    ]
    tables = {
        "steps": _step_rows(placed, chosen),
        "evals": _evaluation_rows(placed, chosen),
        "scalars": list(itertools.islice(_scalar_rows(placed, chosen), _SCALARS)),
    }
    players = [{"optimizer": number, "name": f"the {player}"} for number, player in enumerate(chosen.players)]
    return _without_write_times(tables) | {"optimizers": players}


class _Placed(NamedTuple):
    """A row of the log with the step and the time that it is of."""

    step: int
    time: float | None
    row: Row


def _step_rows(placed: Iterable[_Placed], chosen: Plan) -> list[dict[str, Any]]:
    """Rows of steps. Loggers write one step's values in several rows: those are put together."""
    ours = {name: theirs for name, theirs in chosen.steps.items() if name != "time"}
    steps: list[dict[str, Any]] = []
    for step, time, row in placed:
        values = {name: value for name, theirs in ours.items() if (value := row.get(theirs)) is not None}
        if values and not chosen.players:
            last = steps[-1] if steps else {}
            if last.get("step") == step and not last.keys() & values.keys():
                last |= values
            else:
                steps.append({"optimizer": 0, "step": step, "time": time, **values})
        for number, name in enumerate(chosen.players.values()):
            if (loss := row.get(name)) is not None:
                steps.append({"optimizer": number, "step": step, "time": time, **values, "loss": loss})
    return steps


def _evaluation_rows(placed: Iterable[_Placed], chosen: Plan) -> list[dict[str, Any]]:
    return [
        {
            "after_step": step,
            "loss": loss,
            "trained": True,
            "time_end": time,
            "purpose": _PURPOSES[phase],
            "set": held or None,
        }
        for step, time, row in placed
        for name, (phase, held) in chosen.evaluations.items()
        if (loss := row.get(name)) is not None
    ]


def _scalar_rows(placed: Iterable[_Placed], chosen: Plan) -> Iterator[dict[str, Any]]:
    return (
        {"time": time, "step": step, "own_step": step, "phase": phase, "name": metric, "value": value}
        for step, time, row in placed
        for name, (phase, metric) in chosen.scalars.items()
        if (value := row.get(name)) is not None
    )


def _without_write_times(tables: Tables) -> Tables:
    """The tables; without times if all steps have the same one: the log was written then, the steps were not made."""
    steps = tables["steps"]
    if len(steps) < 2 or len({row["time"] for row in steps}) > 1:
        return tables
    return {name: [_timeless(row) for row in rows] for name, rows in tables.items()}


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    timed = [column for column in ("time", "time_end") if row.get(column) is not None]
    return row | dict.fromkeys(timed) if timed else row


def _make(run: Path) -> Path:
    try:
        run.mkdir(parents=True, exist_ok=True)
        if any(run.iterdir()):
            raise InputError(Cause.NOT_EMPTY, f"{run}: is not empty; name a new folder for the run")
    except OSError as error:
        raise InputError(Cause.UNWRITABLE, f"{run}: {error.strerror}; choose a folder that can be written") from None
    return run


def _write(table: schema.Table, rows: list[dict[str, Any]], folder: Path) -> None:
    import pyarrow.parquet

    empty = record_batch(table, [])
    target = folder / f"{table.name}{schema.TABLE_SUFFIX}"
    with pyarrow.parquet.ParquetWriter(target, empty.schema, compression="zstd") as writer:
        for begin in range(0, len(rows), _BATCH):
            writer.write_batch(record_batch(table, rows[begin : begin + _BATCH]))
