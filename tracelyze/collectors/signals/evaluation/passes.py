"""Evaluation passes: the calls that make one up, and the row that is recorded of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracelyze.collectors.program.call import GRAD, Call, EvaluatedLosses

NO_GRAPH = 3  # schema.GRAD_MODE
NOTHING_FOUND = EvaluatedLosses()  # of a call that was made as in training, and led to no backward


def are_one(call: Call, following: Call) -> bool:
    """Whether a call goes on with the pass of the one before."""
    if call.declared or following.declared:
        return call.declared == following.declared
    if call.batch is not None and following.batch is not None and call.batch.epoch != following.batch.epoch:
        return False
    return call.step == following.step and call.loader == following.loader


def parted(calls: list[Call]) -> list[list[Call]]:
    """Consecutive calls by the pass that they belong to: another split, or another model, is evaluated apart."""
    return [one for several in _by_line(calls) for one in _by_model(several)]


def row_of(calls: list[Call], holders: Mapping[int, int | None]) -> dict[str, Any]:
    """The row of one pass, in the columns of `evals`. `holders`: by the number of each model that was called, the
    optimizer that holds it."""
    found = [_found(call) for call in calls]
    return {
        "time_start": calls[0].start,
        "time_end": calls[-1].end,
        "after_step": calls[0].step,
        "forwards": len(calls),
        "samples": sum(call.batch_size or 0 for call in calls),
        "loader": calls[0].loader,
        "purpose": calls[-1].declared[1] if calls[-1].declared else None,
        **_models(calls, holders),
        **_modes(calls),
        **_inputs(found),
        **_losses(found),
        **_reads(found),
    }


def _models(calls: list[Call], holders: Mapping[int, int | None]) -> dict[str, Any]:
    """The main one of the models that were called: one that an optimizer holds, and whose mode matters most."""
    last = {call.model.number: call for call in calls}
    main = max(last.values(), key=lambda call: (holders[call.model.number] is not None, call.sensitive.number))
    return {
        "model": main.model.number,
        "trained": any(holder is not None for holder in holders.values()),
        "optimizer": holders[main.model.number] if main.holder is None else main.holder,
        "model_in_train": any(call.in_train for call in calls if call.model is main.model),
        "modules_sensitive": sum(call.sensitive.number for call in last.values()),
    }


def _modes(calls: list[Call]) -> dict[str, Any]:
    in_train: dict[int, int] = {}  # the most modules of each model
    for call in calls:
        in_train[call.model.number] = max(in_train.get(call.model.number, 0), call.sensitive.in_train)
    return {
        "grad_mode": _grad_mode(calls),
        "modules_in_train": sum(in_train.values()),
        "modules": max((call.sensitive.kinds for call in calls), key=len) or None,
        "dropouts": sum(call.dropouts for call in calls),
        "statistics": sum(call.statistics for call in calls),
    }


def _inputs(found: list[EvaluatedLosses]) -> dict[str, Any]:
    placed = next((one for one in found if one.site is not None), None)
    return {
        "repeats": sum(one.repeats for one in found),
        "same_input": sum(one.same_input for one in found),
        "site": None if placed is None else placed.site,
        "compared": None if placed is None else placed.compared,
    }


def _losses(found: list[EvaluatedLosses]) -> dict[str, Any]:
    losses = sum(one.count for one in found)
    unread = any(one.unread for one in found)
    return {
        "losses": losses,
        "loss": None if unread or not losses else sum(one.total for one in found) / losses,
        "loss_is_whole": found[-1].is_whole,
    }


def _reads(found: list[EvaluatedLosses]) -> dict[str, Any]:
    """Numbers that the script read back, and the line of the first that is no number, or of the first one."""
    read = [one for one in found if one.reads]
    worst = next((one for one in read if not math.isfinite(one.read_sum)), read[0] if read else None)
    return {
        "reads": sum(one.reads for one in read),
        "read_sum": sum(one.read_sum for one in read) if read else None,
        "read_site": None if worst is None else worst.read_site,
    }


def on_device(calls: list[Call]) -> dict[str, list[Any]]:
    """Sums that are on a device still, by the column that they are to be added to."""
    found = [_found(call) for call in calls]
    late = {
        "loss": [one.on_device for one in found if one.on_device is not None],
        "read_sum": [one.read_on_device for one in found if one.reads and one.read_on_device is not None],
    }
    return {name: values for name, values in late.items() if values}


def add_late(row: dict[str, Any], names: list[str], values: list[float]) -> None:
    """Fill in what was on a device, which has arrived."""
    for name, value in zip(names, values, strict=True):
        row[name] = value / row["losses"] if name == "loss" else (row[name] or 0.0) + value


def _found(call: Call) -> EvaluatedLosses:
    return call.evaluated or NOTHING_FOUND


def _grad_mode(calls: list[Call]) -> int:
    """The mode in which most was kept. With autograd on, outputs without a graph come of weights that are frozen."""
    if any(call.mode == GRAD and call.hooked for call in calls):
        return GRAD
    return max(NO_GRAPH if call.mode == GRAD else call.mode for call in calls)


def _by_line(calls: list[Call]) -> list[list[Call]]:
    """Calls without a loader, parted where a model begins to be called from another line: another split is evaluated.

    Not where lines take turns, as they do when one batch is evaluated in two ways. The first one of a pass that is made
    as in training may have been taken for training: its line was not noted, and is that of the next.
    """
    paths: dict[int, list[tuple[tuple[int, int], ...]]] = {}
    for call in calls:
        of_model, path = paths.setdefault(call.model.number, []), _found(call).path
        if path and (not of_model or of_model[-1] != path):
            of_model.append(path)
    most = max(map(len, paths.values()))
    if most <= 1 or any(len(of_model) != len(set(of_model)) for of_model in paths.values()):
        return [calls]
    parts: list[list[Call]] = [[]]
    latest: dict[int, tuple[tuple[int, int], ...]] = {}
    for call in calls:
        path = _found(call).path
        if path and latest.get(call.model.number, path) != path:
            parts.append([])
            latest = {}
        if path:
            latest[call.model.number] = path
        parts[-1].append(call)
    return parts


def _by_model(calls: list[Call]) -> list[list[Call]]:
    """The calls of a pass by the model whose losses they led to: a live and an averaged one are evaluated apart."""
    judged = list(dict.fromkeys([call.model.number for call in calls if _found(call).count]))
    if len(judged) < 2 or any(call.declared for call in calls):
        return [calls]
    parts: dict[int, list[Call]] = {number: [] for number in judged}
    waiting: list[Call] = []
    for call in calls:
        waiting.append(call)
        if _found(call).count:
            parts[call.model.number] += waiting
            waiting = []
    parts[judged[-1]] += waiting
    return list(parts.values())
