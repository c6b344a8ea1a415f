"""What the script logged itself (table scalars) stands in for what the hooks did not see: losses, steps, batches.

Nothing is counted twice: where the hooks measured a training loss, or a validation loss, logged ones are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tracelyze import schema
from tracelyze.analyzers.recorded.table import MemoryColumns, Table

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats, Mask

# Values under these names fill the columns of steps that exist only because they were logged.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "grad_norm": ("grad_norm",),
    "lr": ("lr", "learning_rate"),
    "scale": ("loss_scale",),
}


def completed(tables: Mapping[str, Table]) -> tuple[dict[str, Table], list[str]]:
    """The tables of a process with logged losses where the hooks saw none, and sentences on what that means."""
    whole = dict(tables)
    notes: list[str] = []
    scalars = tables["scalars"]
    if len(scalars) == 0:
        return whole, notes
    values = _values(scalars, "train", "loss")
    asked = [str(row["name"]) for row in tables["events"].records() if row["kind"] == "functional-gradients"]
    if len(tables["steps"]) == 0:
        if values.any():
            whole["steps"] = Table(schema.STEPS, _steps(scalars, values))
            by = f"calls of {asked[0]}" if asked else "those for which the script logged a loss"
            notes.append(f"no optimizer step was seen: the steps are {by}")
    elif values.any() and not tables["steps"].has("loss"):
        whole["steps"] = Table(schema.STEPS, _WithLoss(tables["steps"], scalars, values))
        by = f"{asked[0]} was asked for the gradients of" if asked else "the script logged"
        notes.append(f"no backward with a loss was seen: the training loss is the one that {by}")
    judged = _values(scalars, "eval", "loss")
    if judged.any() and not tables["evals"].has("loss"):
        whole["evals"] = Table(schema.EVALS, _evals(tables["evals"], scalars, judged, whole["steps"]))
        notes.append("no validation loss was seen: it is the one that the script logged")
    return whole, notes


def ignored(events: Table) -> list[str]:
    """Sentences on what `tracelyze.log` was given and could not record."""
    return [f"tracelyze.log: {row['text']}" for row in events.records() if row["kind"] == "log-ignored"]


def batches(process: Process, rows: list[int]) -> list[str]:
    """The batches of these rows of the only training, as the script identifies them; without those it did not name."""
    scalars = process.scalars
    if len(process.optimizations) != 1 or len(scalars) == 0:
        return []
    known = scalars.matches("phase", "train")
    index = _own_groups(scalars, known)[0] if isinstance(process.steps.source, _Logged) else _row_of(scalars, known)
    wanted: dict[int, str] = {}
    names = scalars.text("batch")
    for place, row in zip(np.flatnonzero(known), index, strict=True):
        name = names[place]
        if name is not None:
            wanted.setdefault(int(row), name)
    return [wanted[row] for row in rows if row in wanted]


def _values(scalars: Table, phase: str, name: str) -> Mask:
    """Rows of the table scalars that hold this value, shape [scalars]."""
    return scalars.matches("phase", phase) & scalars.matches("name", name) & scalars.known("value")


def _row_of(scalars: Table, chosen: Mask) -> Floats:
    """The row of the table steps to which each chosen row of the table scalars belongs, shape [chosen].

    A loop logs after its step, when as many steps are done as the step's number, or before it, when it is one fewer:
    then the very first call comes when no step is done.
    """
    done = scalars["step"][chosen]
    before = bool((done == 0).any())
    return np.asarray(done if before else done - 1, dtype=np.float64)


def _own_groups(scalars: Table, chosen: Mask) -> tuple[Floats, Floats]:
    """For steps known by logging alone: the step of each chosen row, and each step's number, counted from 0 and given.

    Rows belong together if they bear the same step number of the script; without numbers, if they come from one call.
    """
    own, time = scalars["own_step"][chosen], scalars["time"][chosen]
    keys = own if scalars.known("own_step")[chosen].all() else time
    index = np.concatenate(([0], np.cumsum(keys[1:] != keys[:-1]))).astype(np.float64)
    first = np.unique(index, return_index=True)[1]
    numbers = own[first]
    rising = np.isfinite(numbers).all() and (np.diff(numbers) > 0).all()
    return index, numbers if rising else np.arange(1, len(first) + 1, dtype=np.float64)


def _means(index: Floats, values: Floats, count: int) -> Floats:
    """Mean of the values with each index, NaN without any (and where one is NaN), shape [count]."""
    inside = (index >= 0) & (index < count)
    places = index[inside].astype(np.int64)
    sums = np.bincount(places, weights=values[inside], minlength=count)
    seen = np.bincount(places, minlength=count)
    means: Floats = np.divide(sums, seen, out=np.full(count, np.nan), where=seen > 0)
    return means


class _Logged:
    """Steps that nobody saw but the script. Implements :class:`run.Columns`."""

    def __init__(self, columns: Mapping[str, tuple[Floats, Mask]], rows: int) -> None:
        self._columns = columns
        self.rows = rows

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        if schema.STEPS.column(name).type == "string":
            return [None] * self.rows
        return self._columns.get(name) or (np.full(self.rows, np.nan), np.zeros(self.rows, dtype=bool))


def _steps(scalars: Table, values: Mask) -> _Logged:
    index, numbers = _own_groups(scalars, values)
    count, time = len(numbers), scalars["time"]
    ends = np.zeros(count)
    ends[index.astype(np.int64)] = time[values]  # the last row of each wins
    everywhere = np.ones(count, dtype=bool)
    columns = {
        "optimizer": (np.zeros(count), everywhere),
        "step": (numbers, everywhere),
        "time": (ends, everywhere),
        "seconds": (np.diff(ends, prepend=np.nan), np.arange(count) > 0),
        "loss": (_means(index, scalars["value"][values], count), everywhere),
    }
    for column, names in COLUMNS.items():
        for name in names:
            rows = _values(scalars, "train", name)
            if rows.any():
                place = np.searchsorted(ends, time[rows])  # the call of the loss, or one before it
                found = _means(place.astype(np.float64), scalars["value"][rows], count)
                columns[column] = (found, np.isin(np.arange(count), place))
    return _Logged(columns, count)


class _WithLoss:
    """The table steps as it was recorded, with logged losses in its empty column. Implements :class:`run.Columns`."""

    def __init__(self, steps: Table, scalars: Table, values: Mask) -> None:
        self._steps = steps
        self._scalars = scalars
        self._values = values
        self.rows = len(steps)

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        return self._loss if name == "loss" else self._steps.source.read(name)

    @cached_property
    def _loss(self) -> tuple[Floats, Mask]:
        index = _row_of(self._scalars, self._values)
        losses = _means(index, self._scalars["value"][self._values], self.rows)
        return losses, np.isin(np.arange(self.rows), index)


def _evals(evals: Table, scalars: Table, judged: Mask, steps: Table) -> MemoryColumns:
    """The table evals with a loss for every pass that the script logged one of; passes that were not seen are added."""
    rows = list(evals.records())
    free = [row for row in rows if row["trained"]]
    for start, end, after, losses in _logged_passes(scalars, judged, steps):
        same = [row for row in free if row["after_step"] == after and row["time_start"] <= end]
        said = {"losses": len(losses), "loss": float(np.mean(losses))}
        if same:
            same[-1].update(said)
            free.remove(same[-1])
        else:
            rows.append({"time_start": start, "time_end": end, "after_step": after, "trained": True, **said})
    rows.sort(key=lambda row: row["time_start"])
    return MemoryColumns(schema.EVALS, {c.name: [row.get(c.name) for row in rows] for c in schema.EVALS.columns})


def _logged_passes(scalars: Table, judged: Mask, steps: Table) -> list[tuple[float, float, int, Floats]]:
    """Begin, end, steps done before, and the losses of each logged pass: those between two training steps."""
    time, value = scalars["time"][judged], scalars["value"][judged]
    if isinstance(steps.source, _Logged):
        last = np.searchsorted(steps["time"], time, side="right") - 1
        after = np.where(last >= 0, steps["step"][np.maximum(last, 0)], 0)
    else:
        after = scalars["step"][judged]
    parts = np.split(np.arange(len(time)), np.flatnonzero(np.diff(after)) + 1)
    return [(float(time[part[0]]), float(time[part[-1]]), int(after[part[0]]), value[part]) for part in parts]
