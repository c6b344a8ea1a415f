"""Whether samples that no loader made come again one by one: each time in another batch, and behind another sample."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.data.passes import BLANK, prints_of
from tracelyze.analyzers.computed.once import measured_once

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

FEWEST: Final = 50  # samples that came again
# Share of them behind the same sample as before: of windows of a series, and of blocks, nearly all are.
_TOGETHER: Final = 0.1


@measured_once
def sizes(process: Process) -> dict[int, int]:
    """How many such samples a model was trained on, by the number of steps that were done before; empty if they were
    not drawn one by one. What lies along the first dimension comes again alone only if it is the samples."""
    prints = prints_of(process)
    rows = [row for row in process.tables["batches"].shared_records() if row["loader"] is None and row["trained"]]
    rows = [row for row in rows if row["prints"] and str(row["shape"]).count("x") > 1]
    if not rows or len({row["field"] for row in rows}) > 1:
        return {}
    behind: dict[str, set[str]] = {}
    again = together = 0
    for batch in (prints[row["prints"]] for row in rows):
        for before, sample in pairwise(batch):
            if BLANK in (before, sample):
                continue
            met = behind.setdefault(sample, set())
            again += bool(met)
            together += before in met
            met.add(before)
    if again < FEWEST or together > _TOGETHER * again:
        return {}
    return {int(row["step"]): len(prints[row["prints"]]) for row in rows}
