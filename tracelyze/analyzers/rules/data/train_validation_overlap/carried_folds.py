"""Folds of a cross-validation through which one model is carried: it has trained on the validation data of later ones.

Loaders are made anew for each fold. That nothing is shared with the training just before a pass shows folds that are
split well; that the losses go on where the last fold ended shows a model that did not start anew with its fold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.splits import overlap

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.splits.overlap import Overlap, Seen
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Finding

FEW = 3  # losses at the beginning of a fold: later ones may have been learned again
BEFORE = 10  # losses before it
LEARNED = 1.2  # times the level before a fold that the first losses are: else nothing was learned that could be seen
BACK = 0.25  # share of the way back to the first losses: an optimizer that is made anew goes some of it


class Carried(NamedTuple):
    """What the later folds' validation shares with the training of earlier folds."""

    found: Overlap
    first: Seen  # the first pass of these
    loader: int  # whose passes these are
    folds: int


def find(
    process: Process, trained: list[Seen], evaluated: list[Seen], lengths: dict[int, int], folds: int
) -> Carried | None:
    """The later folds, if there are `folds` folds at least, and each begins at the losses that the last one reached."""
    begins: dict[int, int] = {}  # by training loader: steps before its first pass
    for one in trained:
        begins.setdefault(one.loader, one.step)
    pairs: list[tuple[list[Seen], list[Seen]]] = []
    loaders: dict[int, int] = {}  # of validation, by the loader of the training just before
    for index in sorted({one.loader for one in evaluated}):
        ours = [one for one in evaluated if one.loader == index]
        recent = {_latest(trained, one.step) for one in ours}
        fold = recent.pop()
        if recent or fold is None or fold in loaders or index not in lengths:
            return None  # validated beside several trainings, or beside none
        loaders[fold] = index
        pairs.append((ours[:1], [one for one in trained if one.step < begins[fold]]))
    if len(pairs) < folds or len(begins) != len(pairs) or not process.optimizations:
        return None
    if overlap.in_common([ours[0] for ours, _ in pairs]):
        return None  # no folds: drawn anew each time
    later = pairs[1:]
    if not later or not all(_goes_on(process, begins[fold]) for fold in list(loaders)[1:]):
        return None
    return Carried(overlap.compare(later, lengths), later[0][0][0], list(loaders.values())[1], len(pairs))


def told(process: Process, finding: Finding, carried: Carried) -> Finding:
    """The finding of shared samples, in words about folds."""
    return replace(
        finding,
        title=f"One model trains through {carried.folds} folds and is validated on data from earlier folds",
        summary=(
            f"{carried.found.hits:,} of the {carried.found.looked:,} samples that were looked at in the validation of "
            "later folds were met in the training of earlier ones, and in each fold the loss continues where the last "
            "fold ended: the model was not reset. Only the first fold measures samples the model has not seen; the "
            "mean over the folds is too good."
        ),
        fix="Create a new model, optimizer and scheduler inside the loop over the folds.",
        fix_code="for train_index, val_index in folds:\n    model = make_model()\n"
        "    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)",
        diff=None,
        location=process.optimizations[0].made_at or finding.location,
        false_alarm="A model whose later folds are not reported.",
    )


def _latest(trained: list[Seen], step: int) -> int | None:
    """The loader that the training just before a step used."""
    return next((one.loader for one in reversed(trained) if one.step < step), None)


def _goes_on(process: Process, step: int) -> bool:
    """Whether the losses from this step on are those of a model that has learned, as before it."""
    times = np.concatenate([one.steps["time"] for one in process.optimizations])
    losses = np.concatenate([one.steps["loss"] for one in process.optimizations])[np.argsort(times, kind="stable")]
    parts = losses[:FEW], losses[max(0, step - BEFORE) : step], losses[step : step + FEW]
    if not all(len(part) >= FEW and np.isfinite(part).all() for part in parts):
        return False
    start, before, after = (float(np.median(part)) for part in parts)
    return before > 0 and start > LEARNED * before and after - before < BACK * (start - before)
