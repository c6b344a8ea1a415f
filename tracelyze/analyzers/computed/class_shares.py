"""The most frequent class among the targets of a cross-entropy, where no batch shows its targets."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.computed.data import loss_calls

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

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


def rows_with_a_class(process: Process) -> set[int] | None:
    """How many samples the training's losses are given a class each of; None where no call of a loss was seen.

    Other integers of a batch, one for each sample, are lengths or numbers of samples, where the targets are a class for
    each token, or numbers.
    """
    calls = [row for row in process.tables["loss_calls"].records() if row["training"]]
    found = set()
    if any(row["target_shape"] is None for row in calls):
        return None
    for row in calls:
        sizes = loss_calls.sizes(row["target_shape"])
        if row["function"] in _CLASSIFY and sizes and (len(sizes) == 1 or not row["target_integer"]):
            found.add(sizes[0])
    return found if calls else None


def _is_one_each(shape: str | None) -> bool:
    return str(shape or "").isdigit()
