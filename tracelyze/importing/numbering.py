"""What numbers the steps of a log: a column of its own, a position within an epoch, or only the epoch."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from tracelyze.importing import columns

BY_EPOCH = "it has no steps: epochs number them"
IN_EPOCH = "steps in epoch"  # column in which a reader leaves how many steps a line says that an epoch has
_FALLS = 0.5  # of the epochs that begin, the share at which the number of the step falls: it counts within an epoch
_ROWS = 2  # of an epoch: its training and its evaluation
Rows = list[dict[str, float | None]]


def numbered(rows: Rows) -> tuple[Rows, str]:
    """Rows with steps that count on over epochs, and a sentence on it; those given where they do already.

    A step that begins anew with every epoch is put behind those of the epochs before. Without a step, epochs number
    the rows, or their order does where an epoch has many.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    step, epoch = columns.step_among(names), next((n for n in names if columns.is_epoch(n)), None)
    lengths = [length for row in rows if (length := row.get(IN_EPOCH))]
    if IN_EPOCH in names:
        rows = [{name: value for name, value in row.items() if name != IN_EPOCH} for row in rows]
    if epoch is None:
        return rows, ""
    if step is None:
        return _by_epoch(rows, epoch)
    losses = [n for n in names if (what := columns.meaning(n)).column == "loss" and what.phase == "train"]
    training = [row for row in rows if any(row.get(name) is not None for name in losses)]
    places = [(e, s) for row in training if (e := row.get(epoch)) is not None and (s := row.get(step)) is not None]
    if not _restarts(places):
        return rows, ""
    length = max(lengths) if lengths else max(s for _, s in places) + (min(s for _, s in places) == 0)
    first = min(e for e, _ in places)
    inside, reached = {id(row) for row in training}, 0.0
    counted: Rows = []
    for row in rows:
        number, passed = row.get(step), row.get(epoch)
        if number is None or passed is None:
            counted.append(row)
            continue
        place = (passed - first) * length + number
        if id(row) in inside:
            reached = place
        # An evaluation may count its own batches, and stands where it was made.
        counted.append({**row, step: max(place, reached)})
    return counted, f"steps are counted within epochs of {length:,.0f} and put one behind the other"


def _restarts(places: Sequence[tuple[float, float]]) -> bool:
    """Whether the step falls where an epoch begins, and nowhere else; epochs are whole numbers that never fall."""
    begins = falls = 0
    for (epoch, step), (next_epoch, next_step) in itertools.pairwise(places):
        if next_epoch < epoch or not next_epoch.is_integer() or (next_epoch == epoch and next_step < step):
            return False
        begins += next_epoch > epoch
        falls += next_epoch > epoch and next_step <= step
    return begins > 0 and falls >= _FALLS * begins


def _by_epoch(rows: Rows, epoch: str) -> tuple[Rows, str]:
    values = [value for row in rows if (value := row.get(epoch)) is not None]
    if not values:
        return rows, ""
    if max(Counter(values).values()) <= _ROWS and all(value.is_integer() for value in values):
        return _with_steps(rows, epoch, values), BY_EPOCH
    return _with_steps(rows, epoch, range(1, len(values) + 1)), "it has no steps: its lines number them"


def _with_steps(rows: Rows, epoch: str, numbers: Iterable[float]) -> Rows:
    """The rows; each of those with an epoch has the next of the numbers as its step."""
    following = iter(numbers)
    return [row if row.get(epoch) is None else {**row, "step": float(next(following))} for row in rows]
