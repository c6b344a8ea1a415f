"""One class that a model answers to everything, in training and in validation; and a sampler that draws it the more."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.rules.data.class_imbalance import class_shares
from tracelyze.analyzers.script import recorded_text
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

_LOOKED_AT: Final = 64  # targets of a call, at most, that its spread is of
SAMPLER: Final = "WeightedRandomSampler"
FIX: Final = (
    "Weight each sample by 1 / the number of samples of its class: the sampler draws in proportion to the weights."
)
_SOUGHT: Final = (rf"\b{SAMPLER}\s*\(", r"^\s*weights\s*=(?!=)")  # the latter in a call over several lines
Row = dict[str, Any]


def always(process: Process, most: str, share: float, limits: Limits) -> str:
    """When the model answered next to nothing but the most frequent class, in words: after the first third of the run,
    or in validation then. Empty where it did not, as far as was looked at.

    Where the batches of the training are to hold too few others, those of the validation may hold enough.
    """
    calls = [row for row in process.tables["loss_calls"].records() if row.get("answer") is not None]
    late = [row for row in calls if row["input_shape"] and row["step"] >= limits["late"] * len(process.steps)]
    trained, held_out = ([row for row in late if bool(row["training"]) == training] for training in (True, False))
    if trained and not _answer_one(trained, most, limits["answered"] * (1 - share)):
        return ""
    others = any(row["target_varies"] for row in trained)  # of batches that hold one class nothing else is right
    if others and sum(map(_samples, trained)) * (1 - share) >= limits["rare"]:
        return "After the first third of the run"
    rare = [_share_of_others(row) * min(_samples(row), _LOOKED_AT) for row in held_out]
    answered = limits["answered"] * sum(rare) / max(sum(min(_samples(row), _LOOKED_AT) for row in held_out), 1)
    if sum(rare) < limits["rare"] or not _answer_one(held_out, most, answered):
        return ""
    return "After the first third of the run" if trained else "In validation after the first third of the run"


def _answer_one(rows: list[Row], most: str, others: float) -> bool:
    """Whether all answer this class, except for a share of the samples that is no larger than `others`."""
    answered = [row["answer_same"] for row in rows if str(row["answer"]) == most.removesuffix(".0")]
    return len(answered) == len(rows) and 1 - float(sum(answered)) / len(answered) <= others


def _samples(row: Row) -> int:
    return loss_calls.sizes(row["input_shape"])[0]


def _share_of_others(row: Row) -> float:
    """At least so many targets are not of the most frequent class: two of them differ with twice that probability, at
    most."""
    return float(row["target_varies"] or 0.0) ** 2 / 2


class Drawn(NamedTuple):
    """A weighted sampler that draws the frequent class more often than it comes: words, and the line of its weights."""

    said: str
    place: Location | None


def drawn(process: Process, most: str, share: float, limits: Limits) -> Drawn | None:
    """Where the validation data hold far fewer of the class than the sampler of the training draws."""
    loader, fields = process.longest.loader, list(class_shares.fields(process))
    if loader.get("sampler") != SAMPLER or len(fields) != 1:
        return None
    counts: Counter[str] = Counter()
    for row in process.tables["batches"].records():
        if not row["trained"] and row["classes"] and str(row["field"]) == fields[0]:
            counts.update(json.loads(row["classes"]))
    if counts.total() < limits["targets"] or (1 - counts[most] / counts.total()) < limits["fewer"] * (1 - share):
        return None
    made = process.site(loader.get("made_at"))
    lines = recorded_text.of_function(process, made) if made is not None else {}
    at = next((at for sought in _SOUGHT for at, line in lines.items() if re.search(sought, line)), None)
    place = replace(made, line=at, source=lines[at].strip()) if made is not None and at is not None else made
    held = percent(counts[most] / counts.total())
    return Drawn(
        f" Of the validation data {held} are: the {SAMPLER} draws this class more often than it comes there.", place
    )
