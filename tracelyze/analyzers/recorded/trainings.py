"""The trainings of a process, each to be judged by itself: sweeps, folds, models that are trained side by side.

Optimizers that share a model, or whose models one backward ran through, are one training if they took turns; those
that stepped one after the other are not. Where a run does not tell what an optimizer holds, whatever steps between its
steps is taken to be part of the same training: rules that expect one optimizer then leave it alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.recorded.run import Columns, Floats, Mask, Process, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 500  # trainings that are judged one by one; more of them are judged as one process


def parts(process: Process) -> list[Process]:
    """One process view per training, in the order of their first steps; the process itself if it made only one."""
    steps = process.steps
    if len(steps) == 0 or len(process.optimizers) == 1 or not steps.has("optimizer"):
        return [process]
    optimizer = steps["optimizer"]
    known = np.unique(optimizer[np.isfinite(optimizer)])
    if len(known) < 2:
        return [process]
    groups = _groups(process, {int(index): np.flatnonzero(optimizer == index) for index in known})
    if not 1 < len(groups) <= MOST:
        return [process]
    return [
        _part(process, group, np.isin(optimizer, list(group)), f"training {number} of {len(groups)}")
        for number, group in enumerate(groups, start=1)
    ]


def _groups(process: Process, rows: Mapping[int, np.ndarray]) -> list[frozenset[int]]:
    """The optimizers of each training. `rows`: the rows of the table steps that belong to each optimizer."""
    span = {index: (int(of_it[0]), int(of_it[-1])) for index, of_it in rows.items()}
    group = {index: index for index in rows}

    def find(index: int) -> int:
        while group[index] != index:
            index = group[index]
        return index

    def join(one: int, other: int) -> None:
        if one in span and other in span and span[one][0] <= span[other][1] and span[other][0] <= span[one][1]:
            first, second = sorted((find(one), find(other)))
            group[second] = first

    told = set()
    links = process.tables.get("links")
    for row in links.records() if links is not None else ():
        if row["model"] is not None:
            told.add(row["optimizer"])
        else:
            join(row["optimizer"], row["other"])
    ordered = sorted(rows, key=lambda index: span[index])
    for untold in (index for index in ordered if index not in told):
        for other in ordered:
            join(untold, other)
    found: dict[int, set[int]] = {}
    for index in ordered:
        found.setdefault(find(index), set()).add(index)
    return [frozenset(members) for members in found.values()]


def _part(process: Process, group: frozenset[int], rows: Mask, label: str) -> Process:
    """The training of these optimizers, whose steps are in `rows` (shape [steps of the process]), as a process."""
    done_before = np.concatenate(([0], np.cumsum(rows)))  # steps of the part, by steps of the process
    evals = process.evals
    shift = {"after_step": done_before}
    tables = dict(process.tables)
    tables["steps"] = Table(process.steps.spec, _Rows(process.steps, rows, {}))
    tables["evals"] = Table(evals.spec, _Rows(evals, _own_evals(process, group, rows), shift))
    return replace(process, tables=tables, part=label)


def _own_evals(process: Process, group: frozenset[int], rows: Mask) -> Mask:
    """The evaluation passes of a training, shape [evals]: of its models; of nobody's models, while it is under way."""
    evals = process.evals
    of = evals["optimizer"]
    own = np.isin(of, list(group))
    at = np.flatnonzero(rows)
    after = evals["after_step"]
    under_way = (after > at[0]) & (after <= at[-1] + 1)
    return np.asarray(own | (np.isnan(of) & under_way), dtype=bool)


class _Rows(Columns):
    """Some rows of a table; numbers of steps of the process (`shift`) become numbers of steps of the part."""

    def __init__(self, table: Table, rows: Mask, shift: Mapping[str, np.ndarray]) -> None:
        self._table = table
        self._index = np.flatnonzero(rows)
        self._shift = shift
        self.rows = len(self._index)

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        if self._table.spec.column(name).type == "string":
            values = self._table.text(name)
            return [values[index] for index in self._index]
        numbers, known = self._table[name][self._index], self._table.known(name)[self._index]
        if name in self._shift:
            done = self._shift[name]
            inside = np.clip(np.nan_to_num(numbers), 0, len(done) - 1).astype(int)
            numbers = np.where(np.isfinite(numbers), done[inside].astype(float), numbers)
        return numbers, known
