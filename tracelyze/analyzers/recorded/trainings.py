"""The trainings of a process, each to be judged by itself: sweeps, folds, models that are trained side by side.

Optimizers that share a model, or whose models one backward ran through, are one training if they took turns; those
that stepped one after the other are not. Where a run does not record what an optimizer holds, whatever steps between
its steps is taken to be part of the same training: rules that expect one optimizer then leave it alone.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.recorded.table import Columns, Floats, Mask, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracelyze.diagnosis import Location

BY_HAND = "ByHand"  # as the collector calls updates without an optimizer (manual_updates.py)
FEW = 20  # trainings: of more of them, a sweep, the passes between two are not told apart
LOSSES = ("loss_graphs", "counted_targets", "references")  # tables that say of a step what its loss was made of
CALLS = "loss_calls"  # says so, too, of trainings that follow one another: a call comes some time before its step
MOST = 500  # trainings that are judged one by one; more of them are judged as one process


def without_a_lone_change(tables: Mapping[str, Table]) -> Mapping[str, Table]:
    """The tables of a process without a first "step" by hand that no second one followed, but steps of an optimizer.

    Weights that were changed once before an optimizer's first step were not trained by that: sharpness-aware
    minimisation moves them away and back at every step, and others set them after a first backward.
    """
    names = {row["optimizer"]: row["name"] for row in tables["optimizers"].records()}
    steps = tables["steps"]
    if BY_HAND not in names.values() or len(names) < 2 or not len(steps):
        return tables
    first = steps["optimizer"][0]
    alone = steps["optimizer"] == first
    if names.get(first) != BY_HAND or alone.sum() > 1 or len(steps) < 2:
        return tables
    kept = tables["optimizers"].where(tables["optimizers"]["optimizer"] != first)
    return {**_part(tables, ~alone, np.ones(len(tables["evals"]), dtype=bool)), "optimizers": kept}


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
    parts = [np.isin(optimizer, list(group)) for group in groups]
    own = [_own_evals(tables["evals"], group, part) for group, part in zip(groups, parts, strict=True)]
    for earlier, later in itertools.permutations(range(len(groups)), 2) if len(groups) <= FEW else ():
        between = _of_the_later(tables, parts[earlier], parts[later], own[earlier], own[later])
        own[earlier], own[later] = own[earlier] & ~between, own[later] | between
    return [_part(tables, part, evals) for part, evals in zip(parts, own, strict=True)]


def own_line(
    lines: Sequence[Location],
    optimizers: Sequence[Mapping[str, Any]],
    site: Callable[[Any], Location | None],
    others: Sequence[Mapping[str, Any]] = (),
) -> Location | None:
    """The first of some lines in a function that makes the steps of these optimizers or their backwards; else in a file
    that does; else the first of all. None in a function in which the optimizers of `others` alone step: what a line
    does is recorded of the whole process, and the one that clips for a teacher is not the one that clips for its
    student.
    """
    taken = {row.get("backward_site") for row in others}  # lines are looked up now and then: it may be theirs alone
    own = [{**row, "backward_site": None} if row.get("backward_site") in taken else row for row in optimizers]
    functions = _stepping(own, site)
    apart = {one for one in _stepping(others, site) if one[1] not in ("", "<module>")}.difference(functions)
    lines = [line for line in lines if line.file_function not in apart]
    beside = [line for function in functions for line in lines if line.file_function == function]
    beside += [line for file, _ in functions for line in lines if line.file == file]
    return next(iter([*beside, *lines]), None)


def own_backward(
    known: Location | None, step: Location | None, lines: Sequence[Location], earlier: Sequence[Location | None]
) -> Location | None:
    """The backward of an optimizer. `known`: the one that was recorded of it; `lines`: all backwards.

    Where `earlier` optimizers, which step at these lines, have the same one recorded, it is the last backward above the
    `step`; none where they step in the function of that line, and this one does not.
    """
    if not earlier or known is None or step is None:
        return known
    inside = known.file_function == step.file_function
    above = [one for one in lines if one.file_function == step.file_function]
    above = [one for one in above if known.line * inside < one.line <= step.line]
    beside_others = any(one is not None and one.file_function == known.file_function for one in earlier)
    return max(above, key=lambda line: line.line, default=None if beside_others and not inside else known)


def _stepping(optimizers: Sequence[Mapping[str, Any]], site: Callable[[Any], Location | None]) -> list[tuple[str, str]]:
    """The functions, each with its file, that make the steps of these optimizers or their backwards."""
    own = [site(row.get(name)) for name in ("site", "backward_site") for row in optimizers]
    return [one.file_function for one in own if one is not None]


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


def _part(tables: Mapping[str, Table], rows: Mask, own: Mask) -> Mapping[str, Table]:
    """The tables of one training: its steps (`rows`, shape [steps of the process]) and passes (`own`, [evals])."""
    done_before = np.concatenate(([0], np.cumsum(rows)))  # steps of the part, by steps of the process
    steps, evals = tables["steps"], tables["evals"]
    made_of = {
        name: _of_steps(tables[name], rows, done_before)
        for name in LOSSES
        if name in tables and tables[name].has("step")
    }
    if CALLS in tables and tables[CALLS].has("step") and _in_one_piece(rows):
        made_of[CALLS] = _calls_of_steps(tables[CALLS], rows, done_before)
    return {
        **tables,
        **made_of,
        "steps": Table(steps.spec, _Rows(steps, rows, {}, _begun_anew(tables, rows))),
        "evals": Table(evals.spec, _Rows(evals, own, {"after_step": done_before})),
    }


def _begun_anew(tables: Mapping[str, Table], rows: Mask) -> bool:
    """Whether the last of some steps (`rows`, shape [steps of the process]) is one by hand that another training
    follows: such a step is noticed at the next backward, which may be that of another program, minutes later."""
    last = int(np.flatnonzero(rows)[-1])
    made = {row["optimizer"]: row["name"] for row in tables["optimizers"].shared_records()}
    return made.get(tables["steps"]["optimizer"][last]) == BY_HAND and last + 1 < len(rows)


def _of_steps(table: Table, rows: Mask, done_before: np.ndarray) -> Table:
    """The rows of a table that belong to steps of a training: `step` counts those of the process done before."""
    at = np.clip(np.nan_to_num(table["step"]), 0, len(rows) - 1).astype(int)
    return Table(table.spec, _Rows(table, rows[at] & table.known("step"), {"step": done_before}))


def _in_one_piece(rows: Mask) -> bool:
    """Whether no other training steps between the first of these steps and the last."""
    at = np.flatnonzero(rows)
    return bool(len(at)) and len(at) == at[-1] - at[0] + 1


def _calls_of_steps(table: Table, rows: Mask, done_before: np.ndarray) -> Table:
    """The calls of losses in a training: those that led to its steps, and those without autograd between two of them.
    Whose a call without autograd is that stands between the steps of two trainings is not known: it is nobody's."""
    done = np.clip(np.nan_to_num(table["step"]), 0, len(rows)).astype(int)
    ahead = np.append(rows, rows[-1])[done]
    behind = np.append(rows[0], rows)[done]
    own = ahead & (behind | (table["training"] == 1)) & table.known("step")
    return Table(table.spec, _Rows(table, own, {"step": done_before}))


def _own_evals(evals: Table, group: frozenset[int], rows: Mask) -> Mask:
    """The evaluation passes of a training, shape [evals]: of its models; of nobody's models, while it is under way."""
    of = evals["optimizer"]
    own = np.isin(of, list(group))
    at = np.flatnonzero(rows)
    after = evals["after_step"]
    under_way = (after > at[0]) & (after <= at[-1] + 1)
    return np.asarray(own | (np.isnan(of) & under_way), dtype=bool)


def _of_the_later(tables: Mapping[str, Table], earlier: Mask, later: Mask, own: Mask, others: Mask) -> Mask:
    """Passes between two trainings of a model that belong to the later one, shape [evals].

    The model is known by its earlier optimizer until the later one steps. Before that, a pass is the later one's where
    its loader feeds that one's steps, or where its line evaluates the model as that one goes on and never did before:
    the first rollout of a policy, say. `own`, `others`: the passes of the earlier training, and of the later one.
    """
    steps, evals = tables["steps"], tables["evals"]
    last, after = int(np.flatnonzero(earlier)[-1]) + 1, evals["after_step"]
    between = own & (after == last) & np.isin(evals["model"], evals["model"][others])
    if np.flatnonzero(later)[0] < last or not between.any():
        return np.zeros(len(evals), dtype=bool)
    feeds = np.setdiff1d(steps["loader"][later], steps["loader"][earlier])
    goes_on = np.setdiff1d(evals["site"][others], evals["site"][own & (after < last)])
    fed, again = np.isin(evals["loader"], feeds), np.isin(evals["site"], goes_on)  # NaN is in nothing
    return np.asarray(between & (fed | again), dtype=bool)


class _Rows(Columns):
    """Some rows of a table; numbers of steps of the process (`shift`) become numbers of steps of the part. `untimed`:
    how long the last of them took is not known."""

    def __init__(self, table: Table, rows: Mask, shift: Mapping[str, np.ndarray], untimed: bool = False) -> None:
        self._table = table
        self._index = np.flatnonzero(rows)
        self._shift = shift
        self._untimed = untimed
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
        if self._untimed and name == "seconds":  # both are copies
            numbers[-1], known[-1] = np.nan, False
        return numbers, known
