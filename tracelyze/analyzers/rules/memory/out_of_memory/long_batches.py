"""A training whose batches are as long as their longest sample, and that died in a forward which asked for far more
than all before it: one sample is likely to be far longer than the others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

FEWEST: Final = 20  # steps that fitted: a model or a batch that is too large does not fit at once
LENGTHS: Final = 3  # of batches with as many rows: fields of one width do not vary
_SHAPE: Final = re.compile(r"(\d+)x(\d+)(?:x\d+)*")
CODE: Final = (
    "def collate(samples):\n"
    "    samples = [(x[-max_len:], y) for x, y in samples]  # before they are padded, as the first thing"
)


@dataclass(frozen=True)
class LongBatch:
    """Rows of the batches that fitted, and their least and greatest length. `made_at`: what puts them together."""

    rows: int
    least: int
    most: int
    made_at: Location | None

    @property
    def why(self) -> str:
        """A sentence about it."""
        return (
            f"Batches of {self.rows} that were looked at before had lengths of {self.least} to {self.most}: one sample "
            "that is far longer makes the whole batch as long, and is the likely reason."
        )

    @property
    def fix(self) -> str:
        """What to change."""
        where = f" (line {self.made_at.line})" if self.made_at is not None else ""
        return (
            f"Cut samples to a length, or leave out longer ones, where batches are put together{where}; print the "
            "lengths of all samples to see the longest."
        )


def of(process: Process, step: int | None, trace: str) -> LongBatch | None:
    """The batches that a training was given before the forward that failed; None where they did not vary in length."""
    if not step or step < FEWEST or not _in_training(process, trace):
        return None
    by_field: dict[tuple[str, int], set[int]] = {}
    loader = None
    for row in process.tables["batches"].records():
        found = _SHAPE.fullmatch(str(row["shape"] or "")) if row["trained"] else None
        if found:
            loader = row["loader"]
            by_field.setdefault((str(row["field"]), int(found[1])), set()).add(int(found[2]))
    varied = [(rows, lengths) for (_, rows), lengths in by_field.items() if len(lengths) >= LENGTHS]
    if not varied:
        return None
    rows, lengths = max(varied, key=lambda one: len(one[1]))
    fed = next((one for one in process.loaders.records() if one["loader"] == loader), {})
    return LongBatch(rows, min(lengths), max(lengths), process.site(fed.get("collated_by")))


def _in_training(process: Process, trace: str) -> bool:
    """Whether the exception came through the line that calls the model in training, and none that evaluates."""
    through = {(name.rpartition("/")[2], int(line)) for name, line in re.findall(r'File "([^"]+)", line (\d+)', trace)}
    called, measured = (
        {(one.file.rpartition("/")[2], one.line) for one in process.locations(role)}
        for role in ("training-call", "evaluation")
    )
    return bool(through & called) and not through & measured
