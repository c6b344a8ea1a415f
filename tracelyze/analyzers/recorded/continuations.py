"""Optimizers that carry on what another began: a script that makes a new one for every epoch trains once, not often.

Such optimizers hold the same model, step on the same line with the same options but the learning rate, one after the
other, and their losses go on where those before them ended. A model whose weights were drawn anew for the next fold or
the next run of a sweep begins again at the loss of the beginning.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze import reading
from tracelyze.analyzers.recorded.table import Columns, Floats, Mask, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPARED = ("name", "groups", "parameters", "elements", "device", "dtype", "site")
RATES = ("lr", "initial_lr", "max_lr", "min_lr")  # options that may differ
SHARE, FEWEST, MOST = 0.1, 3, 50  # losses at each end of an optimizer's steps that say where it began and ended
MOST_OPTIMIZERS = 1_000_000  # they are numbered from 0; larger numbers were not written by the collector
REFERRING = ("steps", "evals", "parameters", "reach", "schedules", "links")  # tables with a column `optimizer`
COUNTING = ("steps", "parameters")  # and those whose column `step` counts the steps of one optimizer


def joined(tables: Mapping[str, Table]) -> tuple[dict[str, Table], list[str], dict[int, list[int]]]:
    """The tables of a process with such optimizers as one, sentences that say so, and at which of its steps, counted
    from 1, each of the others began."""
    whole = dict(tables)
    rows = {int(row["optimizer"]): row for row in tables["optimizers"].records() if row["optimizer"] is not None}
    if len(rows) < 2 or not tables["steps"].has("loss") or not 0 <= min(rows) <= max(rows) < MOST_OPTIMIZERS:
        return whole, [], {}
    first = _first_of_each(rows, _models(tables["links"]), tables["steps"])
    if all(index == beginning for index, beginning in first.items()):
        return whole, [], {}
    index, count = np.unique(tables["steps"]["optimizer"], return_counts=True)
    renamed = _Renamed(first, dict(zip(index.astype(int).tolist(), count.tolist(), strict=True)))
    for name in REFERRING:
        if name in whole:
            whole[name] = Table(whole[name].spec, _Columns(whole[name], renamed, counts=name in COUNTING))
    kept = [int(one) == first.get(int(one), int(one)) for one in tables["optimizers"]["optimizer"]]
    whole["optimizers"] = tables["optimizers"].where(np.array(kept, dtype=bool))
    chains = {beginning: chain for beginning, chain in _chains(first).items() if len(chain) > 1}
    begun = {one: [int(renamed.offsets[later]) + 1 for later in chain[1:]] for one, chain in chains.items()}
    return whole, [_note(rows[beginning], len(chain)) for beginning, chain in chains.items()], begun


def _first_of_each(
    rows: Mapping[int, Mapping[str, Any]], models: Mapping[int, set[int]], steps: Table
) -> dict[int, int]:
    """By optimizer: the one that began what it carries on, itself if it began something."""
    of, losses, known = steps["optimizer"], steps["loss"], steps.known("loss")
    own = {index: np.flatnonzero(of == index) for index in rows}
    stepped = sorted((index for index in rows if len(own[index])), key=lambda index: int(own[index][0]))
    first = {index: index for index in rows}
    latest: dict[tuple[Any, ...], int] = {}  # by what has to be the same: the optimizer that stepped last
    for index in stepped:
        held = models.get(index)
        if not held:
            continue
        key = (*(rows[index][name] for name in COMPARED), _options(rows[index]), frozenset(held))
        before = latest.get(key)
        latest[key] = index
        if before is not None and own[before][-1] < own[index][0]:
            began, ended, begins = (losses[at[known[at]]] for at in (own[first[before]], own[before], own[index]))
            if goes_on(began, ended, begins):
                first[index] = first[before]
    return first


def goes_on(beginning: Floats, before: Floats, after: Floats) -> bool:
    """Whether the losses `after` begin nearer to where `before` ended than to where the `beginning` of it all began.

    Shapes [steps], measured losses only, NaN among them. Losses that had not moved further than they scatter do
    not decide it, and are taken to go on.
    """
    edges = [_edge(beginning), _edge(before[::-1]), _edge(after)]
    if not all(map(len, edges)):
        return False
    began, ended, begins = (float(np.median(edge)) for edge in edges)
    if not np.isfinite(ended):
        return not np.isfinite(begins)
    scatter = max(_error(edge) for edge in edges[:2])
    return abs(ended - began) <= 2 * scatter or abs(begins - ended) <= abs(begins - began)


def _edge(losses: Floats) -> Floats:
    return losses[: max(FEWEST, min(MOST, round(SHARE * len(losses))))]


def _error(losses: Floats) -> float:
    """Standard error of a mean of these losses."""
    finite = losses[np.isfinite(losses)]
    return float(finite.std() / np.sqrt(len(finite))) if len(finite) else 0.0


def _options(row: Mapping[str, Any]) -> str:
    options = reading.parse_object(row["options"])
    if not options:
        return str(row["options"])
    return json.dumps({name: value for name, value in options.items() if name not in RATES}, sort_keys=True)


def _models(links: Table) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for row in links.records():
        if row["model"] is not None and row["optimizer"] is not None:
            found.setdefault(int(row["optimizer"]), set()).add(int(row["model"]))
    return found


def _chains(first: Mapping[int, int]) -> dict[int, list[int]]:
    chains: dict[int, list[int]] = {}
    for index, beginning in sorted(first.items()):
        chains.setdefault(beginning, []).append(index)
    return chains


def _note(row: Mapping[str, Any], times: int) -> str:
    return (
        f"{times} optimizers ({row['name']}) were made for the same model, one after the other: they are judged as one "
        "training; each began without the momentum and averages of the one before"
    )


class _Renamed:
    """What an optimizer is called after joining, and how many steps were made under that name before its own."""

    def __init__(self, first: Mapping[int, int], counts: Mapping[int, int]) -> None:
        size = max(first) + 1
        self.names, self.offsets = np.arange(size), np.zeros(size)
        for beginning, chain in _chains(first).items():
            done = 0
            for index in chain:
                self.names[index], self.offsets[index] = beginning, done
                done += counts.get(index, 0)


class _Columns(Columns):
    """A table whose optimizers are called as after joining."""

    def __init__(self, table: Table, renamed: _Renamed, *, counts: bool) -> None:
        self._table = table
        self._renamed = renamed
        self._counts = counts
        self.rows = len(table)

    def read(self, name: str) -> tuple[Floats, Mask] | list[str | None]:
        if self._table.spec.column(name).type == "string":
            return self._table.text(name)
        numbers, known = self._table[name], self._table.known(name)
        if name in ("optimizer", "other"):
            return _by(self._renamed.names, numbers, numbers), known
        if name == "step" and self._counts:
            return numbers + _by(self._renamed.offsets, self._table["optimizer"], np.zeros(self.rows)), known
        return numbers, known


def _by(values: np.ndarray, optimizer: Floats, otherwise: Floats) -> Floats:
    """`values` of each row's optimizer, shape [rows]; `otherwise` where that is not known."""
    inside = np.isfinite(optimizer) & (optimizer >= 0) & (optimizer < len(values))
    at = np.where(inside, optimizer, 0).astype(int)
    return np.where(inside, values[at].astype(float), otherwise)
