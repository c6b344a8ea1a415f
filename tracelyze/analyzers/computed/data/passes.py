"""Passes over the loaders that feed a training, by the content of their batches: a print of each that was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

BLANK = "-"  # the print of a sample whose elements are all equal


@dataclass
class Pass:
    """One pass over a loader. `batches`: by place in it, from 0, the prints of a batch's fields."""

    loader: int
    epoch: int
    step: int  # optimizer steps done before it
    batches: dict[int, str] = field(default_factory=dict)
    samples: int = 0  # distinct samples that were looked at in its fullest batch

    @property
    def distinctive(self) -> int:
        """Batches that differ from all others of the pass: equal ones say nothing about an order."""
        contents = list(self.batches.values())
        return sum(contents.count(one) == 1 for one in contents)

    def common(self, other: Pass) -> list[int]:
        """Places that were looked at in both."""
        return sorted(self.batches.keys() & other.batches.keys())

    def agreement(self, other: Pass) -> float:
        """Share of the common places at which both had the same content; 0 without any."""
        places = self.common(other)
        return sum(self.batches[at] == other.batches[at] for at in places) / len(places) if places else 0.0


def of_training(process: Process) -> list[Pass]:
    """The passes whose batches were trained on, in order. Batches of blank samples, or of no loader, are left out."""
    rows: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for row in process.tables["batches"].records():
        if row["loader"] is not None and row["print"] and row["trained"] is not None and row["trained"]:
            rows.setdefault((int(row["loader"]), int(row["epoch"]), int(row["batch"])), []).append(row)
    passes: dict[tuple[int, int], Pass] = {}
    for (loader, epoch, batch), fields in rows.items():
        if any(set((row["prints"] or "").split()) - {BLANK} for row in fields):
            one = passes.setdefault((loader, epoch), Pass(loader, epoch, int(fields[0]["step"])))
            one.samples = max(one.samples, *(len(set((row["prints"] or "").split()) - {BLANK}) for row in fields))
            one.batches[batch] = " ".join({str(row["field"]): str(row["print"]) for row in fields}.values())
    return sorted(passes.values(), key=lambda one: one.step)
