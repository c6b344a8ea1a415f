"""The trainings of a process, each to be judged by itself: sweeps, folds, models that are trained side by side.

Optimizers that share a model, or whose models one backward ran through, are one training if they took turns; those
that stepped one after the other are not. Where a run does not record what an optimizer holds, whatever steps between
its steps is taken to be part of the same training: rules that expect one optimizer then leave it alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.recorded.table import Columns, Floats, Mask, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 500  # trainings that are judged one by one; more of them are judged as one process


def tables_of_each(tables: Mapping[str, Table]) -> list[Mapping[str, Table]]:
    """The tables of each training of a process, in the order of their first steps; none if it made only one."""
    steps = tables["steps"]
    if len(steps) == 0 or len(tables["optimizers"]) == 1 or not steps.has("optimizer"):
        return []
    optimizer = steps["optimizer"]
    known = np.unique(optimizer[np.isfinite(optimizer)])
    if len(known) < 2:
        return []
    rows = {int(index): np.flatnonzero(optimizer == index) for index in known}
    groups = _groups(tables.get("links"), rows)
    if not 1 < len(groups) <= MOST:
        return []
    return [_part(tables, group, np.isin(optimizer, list(group))) for group in groups]


def _groups(links: Table | None, rows: Mapping[int, np.ndarray]) -> list[frozenset[int]]:
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

    linked = set()
    for row in links.records() if links is not None else ():
        if row["model"] is not None:
            linked.add(row["optimizer"])
        else:
            join(row["optimizer"], row["other"])
    ordered = sorted(rows, key=lambda index: span[index])
    for alone in (index for index in ordered if index not in linked):
        for other in ordered:
            join(alone, other)
    found: dict[int, set[int]] = {}
    for index in ordered:
        found.setdefault(find(index), set()).add(index)
    return [frozenset(members) for members in found.values()]


def _part(tables: Mapping[str, Table], group: frozenset[int], rows: Mask) -> Mapping[str, Table]:
    """The tables of the training of these optimizers, whose steps are in `rows` (shape [steps of the process])."""
    done_before = np.concatenate(([0], np.cumsum(rows)))  # steps of the part, by steps of the process
    steps, evals = tables["steps"], tables["evals"]
    own = _own_evals(evals, group, rows)
    return {
        **tables,
        "steps": Table(steps.spec, _Rows(steps, rows, {})),
        "evals": Table(evals.spec, _Rows(evals, own, {"after_step": done_before})),
    }


def _own_evals(evals: Table, group: frozenset[int], rows: Mask) -> Mask:
    """The evaluation passes of a training, shape [evals]: of its models; of nobody's models, while it is under way."""
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
