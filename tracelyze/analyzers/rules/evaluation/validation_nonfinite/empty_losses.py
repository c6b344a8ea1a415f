"""Losses of an evaluation over no elements, as of the boxes of a batch without any, or of targets that do not count:
their mean is NaN."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_FIX: Final = (
    "Give this term a value where its mask is empty: add its elements up, and divide by their number, but by no less "
    "than 1. Do so in training as well, where such a batch is rarer."
)
_FIX_IGNORED: Final = (
    "Add up what each target costs, and the number of targets that count, over all batches, and divide once at the "
    "end: a batch without a target then adds nothing."
)
_IGNORED: Final = (
    'total += torch.nn.functional.cross_entropy(scores, targets, reduction="sum")\n'
    "count += (targets != -100).sum()  # -100: the loss's ignore_index\n"
    "val_loss = total / count  # behind the loop over all batches"
)


class Empty(NamedTuple):
    """What is said of it: a sentence, what to change, an example, and the line, where there is only one."""

    told: str
    fix: str
    code: str
    line: Location | None


def seen(process: Process) -> Empty | None:
    """The first such loss; None if none was seen."""
    event = next(iter(process.events_of("empty-loss")), None)
    if event is None:
        return _of_ignored(process)
    name, line = event["name"] or "a loss", script_lines.only(process, "empty-loss")
    where = f" at line {line.line}" if line is not None else ""
    return Empty(
        f"{name}{where} was called with no elements in an evaluation, and the mean of nothing is NaN: a batch in which "
        "a mask chose nothing.",
        _FIX,
        f'term = F.{name}(output[mask], target[mask], reduction="sum") / mask.sum().clamp(min=1)',
        line,
    )


def _of_ignored(process: Process) -> Empty | None:
    """A mean without autograd that is NaN because none of its targets counts."""
    rows = [row for row in process.tables["loss_calls"].records() if not row["training"] and row["ignored"] == 1]
    rows = [row for row in rows if row["value"] is not None and math.isnan(row["value"])]
    if not rows:
        return None
    line = process.site(rows[0]["site"])
    where = f" at line {line.line}" if line is not None else ""
    return Empty(
        f"All targets of {rows[0]['function']}{where} were ignore_index in a batch that was evaluated, and the mean of "
        "nothing is NaN.",
        _FIX_IGNORED,
        _IGNORED,
        line,
    )
