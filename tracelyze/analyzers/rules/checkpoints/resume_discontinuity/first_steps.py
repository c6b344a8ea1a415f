"""A training that goes on from a file without all of its state: what the first step after it shows."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]

_ENDS_LOW: Final = ("CosineAnnealingLR", "OneCycleLR", "PolynomialLR")
_STATELESS: Final = ("SGD",)  # without momentum
AVERAGE_KEY: Final = re.compile(r"(?:^|_)ema(?:_|$)|averag|shadow", re.IGNORECASE)
PROGRESS_KEY: Final = re.compile(r"^(?:\w*_)?(?:epochs?|steps?|iter(?:ation)?s?)$", re.IGNORECASE)


def after_files(process: Process) -> dict[tuple[str, int], Row]:
    """What the first step after each file showed, by the file's name and the step before."""
    events = process.events_of("resumed")
    return {(row["name"], facts["step"]): facts for row in events if (facts := json.loads(row["text"]))}


def nothing_fitted(process: Process, row: Row) -> bool:
    """Whether no load of a model's weights between the file and the next step found a name of that model."""
    loads = [one for one in process.tables["loads"].records() if one["step"] == row["step"]]
    loads = [one for one in loads if (one["time"] or 0.0) >= (row["time"] or 0.0)]
    return bool(loads) and all(one["missing"] == one["expected"] for one in loads)


def has_state(process: Process) -> bool:
    """Whether an optimizer keeps more than its parameters: moments, momentum."""
    for row in process.optimizers.records():
        options = json.loads(row["options"] or "{}")
        if str(row["name"]) not in _STATELESS or options.get("momentum"):
            return True
    return False


def is_second_phase(process: Process, facts: Row) -> bool:
    """Whether the optimizer that steps is set for something else: a lower rate, other parameters than the file's or
    other groups of them, or another method than that of the training before it in this program. The state of other
    groups, or of another method, it cannot take in. Or the schedule of the training before it was over."""
    if not facts:
        return False
    rate, of_file = facts.get("rate"), facts.get("file_rate")
    lower = rate is not None and of_file is not None and rate < of_file
    methods = [str(one["name"]) for one in process.optimizers.records() if one["optimizer"] <= facts["optimizer"]]
    another = len(methods) > 1 and methods[-1] != methods[-2]
    others = any(facts.get(name) != facts.get(f"file_{name}") for name in ("parameters", "groups"))
    return bool(lower or another or others or _schedule_was_over(process, facts))


def _schedule_was_over(process: Process, facts: Row) -> bool:
    """Whether the optimizer before the one that steps had come to the low end of its schedule: nothing was left of it.

    What stepped on past its end goes in cycles, or holds its last rate.
    """
    rows = [row for row in process.tables["schedules"].records() if not row["inner"]]
    before = [row for row in rows if row["optimizer"] is not None and row["optimizer"] < facts["optimizer"]]
    latest = max((row["optimizer"] for row in before), default=None)
    own = [row for row in before if row["optimizer"] == latest and row["name"] in _ENDS_LOW and row["horizon"]]
    return bool(own) and own[-1]["steps"] - own[-1]["horizon"] in (0, 1)


def on_other_data(process: Process, step: int) -> bool:
    """Whether the steps from this one on are fed by a loader of other data than those before: a second phase. A loader
    that is made again over the same data has as many batches."""
    rows, fed = {row["loader"]: row for row in process.loaders.records()}, process.steps["loader"]
    known = [part[np.isfinite(part)] for part in (fed[:step], fed[step:])]
    if not all(len(part) for part in known):
        return False
    before, after = rows.get(known[0][-1]), rows.get(known[1][0])
    names = ("dataset", "length")
    return before is not None and after is not None and any(before[name] != after[name] for name in names)


def has_new_part(facts: Row) -> bool:
    """Whether parameters are trained that took in nothing of any file: a new head on weights from another task."""
    return bool(facts.get("fresh"))


def never_read(facts: Row) -> list[str]:
    """Averages of the weights, else numbers of epochs or steps, that the script writes into the file and never reads.

    An optimizer that had stepped before goes back a few steps, in a loop that counts on.
    """
    unread = facts.get("unread", []) if facts.get("steps") == 1 else []
    return [key for key in unread if AVERAGE_KEY.search(key)] or [key for key in unread if PROGRESS_KEY.search(key)]


def has_average(facts: Row) -> bool:
    """Whether an average of the weights is among what is never read."""
    return any(AVERAGE_KEY.search(key) for key in facts.get("unread", []))


def goes_on_from_weights(process: Process, row: Row, saves: list[Row], facts: Row) -> bool:
    """Whether a training takes in the newest weights of a file, without an optimizer's state, and writes it again.

    In one process: where the optimizer is made by the line, and with the settings, of the one before. So does a
    training in stages, from one to the next.
    """
    same = [one for one in saves if one["file"] and one["file"] == row["file"]]
    before = [one["step"] for one in same if one["step"] <= row["step"]]
    again = any(one["step"] > row["step"] and not one["optimizer"] for one in same)
    if not facts.get("same_model") or has_new_part(facts) or facts.get("restored_lr") is not None or not again:
        return False
    made = {one["optimizer"]: one for one in process.optimizers.records()}
    own = made.pop(facts["optimizer"], None)
    if own is None or not before:
        return own is not None and row["step"] == 0 == len([at for at in made if at < own["optimizer"]])
    names = ("made_at", "name", "options", "parameters")
    twins = [one for at, one in made.items() if at < own["optimizer"] and all(one[n] == own[n] for n in names)]
    return bool(twins) and own["made_at"] is not None and max(before) == row["step"] > 0


def rates_repeat(process: Process, facts: Row, rates: int) -> bool:
    """Whether the rates after a file was taken in are those of the first steps again: so many different ones."""
    restored = facts.get("restored_lr")
    if restored is None or facts.get("anew"):
        return False
    lr, step = process.steps["lr"], int(facts["step"])
    before, after = _different(lr[:step]), _different(lr[step:])
    after = after[1:] if after and after[0] == restored else after
    first = after[:rates]
    return len(first) == rates and first[0] != restored and first in (before[:rates], before[1 : rates + 1])


def starts_over(process: Process, facts: Row) -> bool:
    """Whether the first rate after a file was taken in is that of the first step of all, and not the one before."""
    lr, step = process.steps["lr"], int(facts["step"])
    known = 0 < step < len(lr) and bool(np.isfinite(lr[[0, step - 1, step]]).all())
    return known and bool(lr[step] == lr[0] != lr[step - 1])


def _different(rates: Any) -> list[float]:
    """Rates in their order, each once for as long as it stays."""
    known = rates[np.isfinite(rates)]
    return [float(rate) for at, rate in enumerate(known) if not at or rate != known[at - 1]]
