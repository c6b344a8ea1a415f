"""Classes among the targets: which field of a batch holds them, and what the loss shows where none does."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze import reading
from tracelyze.analyzers.computed.data import loss_calls

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Row
    from tracelyze.analyzers.recorded.run import Process

BINARY: Final = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
_LOOKED_AT: Final = 64  # targets of a call, at most, that its spread is of
_OF_CLASSES: Final = ("cross_entropy", "nll_loss")
_CLASSIFY: Final = (*_OF_CLASSES, "binary_cross_entropy", "binary_cross_entropy_with_logits", "multi_margin_loss")


class Most(NamedTuple):
    """A class, the least share of the targets that it makes up, and how many targets that is known of."""

    name: str
    share: float
    targets: int


def at_the_loss(process: Process, pure: int) -> Most | None:
    """The class that fills batches alone, `pure` of them at least, where no other does; None if that is not seen.

    Two targets of a call are of one class with probability 1 - target_varies², the sum of the squared shares of the
    classes. The largest share is no smaller than that sum, so the mean over the calls is a lower bound.
    """
    lines = [line for line in loss_calls.lines(process, _OF_CLASSES) if line.training]
    if len(lines) != 1:
        return None
    rows = [row for row in lines[0].rows if _is_one_each(row["target_shape"]) and row["target_integer"]]
    known = [row for row in rows if row["target_lowest"] is not None and row["target_varies"] is not None]
    alone = [row["target_lowest"] for row in known if row["target_lowest"] == row["target_highest"]]
    if len(alone) < pure or len(set(alone)) > 1 or alone[0] < 0:
        return None
    name = alone[0]
    if not all(row["target_lowest"] <= name <= row["target_highest"] for row in known) or len(alone) == len(known):
        return None
    share = fmean(1.0 - row["target_varies"] ** 2 for row in known)
    return Most(f"{name:.0f}", share, sum(min(int(row["target_shape"]), _LOOKED_AT) for row in known))


def _is_one_each(shape: str | None) -> bool:
    return str(shape or "").isdigit()


def fields(process: Process) -> dict[str, list[Row]]:
    """The looks at fields of batches that were trained on, which hold a class for each sample, by field.

    One whole number for each sample may be the length of a sequence or a place in a table as well. What the loss was
    given tells: the same numbers at the same step, or else as many of them, and none that it has no score for.
    """
    found: dict[str, list[Row]] = {}
    trained = [row for row in process.tables["batches"].records() if row["trained"]]
    for row in trained:
        if row["classes"]:
            found.setdefault(str(row["field"]), []).append(row)
    calls = [row for row in process.tables["loss_calls"].records() if row["training"]]
    if not calls or any(row["target_shape"] is None for row in calls):
        return {name: rows for name, rows in found.items() if not _are_lengths(name, rows, trained)}
    scored = [row for row in calls if _is_of_classes(row)]
    return {name: rows for name, rows in found.items() if _is_target(rows, scored)}


def _is_of_classes(call: Row) -> bool:
    """Whether a call of a loss has one class for each sample as its target, or the shares of all classes (smoothed)."""
    shape = str(call["target_shape"])
    one_each = _is_one_each(shape.removesuffix("x1"))
    return call["function"] in _CLASSIFY and (one_each or not (call["target_integer"] or call["function"] in BINARY))


def _is_target(rows: list[Row], scored: list[Row]) -> bool:
    """Whether the looks at a field are looks at the target of one of these calls."""
    seen = {row["step"]: [float(one) for one in reading.parse_object(row["classes"])] for row in rows}
    whole = [row for row in scored if row["target_integer"] and row["target_lowest"] is not None]
    beside = [row for row in whole if seen.get(row["step"])]
    if beside:
        return any(
            (min(seen[row["step"]]), max(seen[row["step"]])) == (row["target_lowest"], row["target_highest"])
            for row in beside
        )
    most = max((max(values) for values in seen.values() if values), default=0.0)
    largest = max(loss_calls.sizes(row["shape"])[0] for row in rows)
    for row in scored:
        shape = loss_calls.sizes(row["input_shape"])
        scores = 2 if row["function"] in BINARY else shape[1] if len(shape) > 1 else None
        if loss_calls.sizes(row["target_shape"])[0] <= largest and (scores is None or most < scores):
            return True
    return False


def _are_lengths(name: str, rows: list[Row], trained: list[Row]) -> bool:
    """Whether a field is named after lengths, or its largest number always is the longest sequence of the batch."""
    if "len" in name.lower():
        return True
    longest: dict[tuple[int, int], set[int]] = {}
    for row in trained:
        longest.setdefault((row["loader"], row["step"]), set()).update(loss_calls.sizes(row["shape"])[1:2])
    highest = [(row, max(float(one) for one in reading.parse_object(row["classes"]))) for row in rows]
    return all(most in longest[row["loader"], row["step"]] for row, most in highest)
