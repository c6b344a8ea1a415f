"""Passes over the loaders that feed a training, by the content of their batches: a print of each that was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.once import measured_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process

BLANK = "-"  # the print of a sample whose elements are all equal
# Share of the largest variance between two bounds: two values reach it, and rounding takes off less than that.
_OF_TWO_VALUES = 0.99
_OF_IDS = 4.0  # standard deviation from which on two ids agree by chance once in 14 pairs, a batch of eight never
_FEWEST_IDS = 8  # ids in a batch
_WIDEST = 8.0  # standard deviations from the least id to the largest: beyond it a few values are far from the others
_MOSTLY = 0.5  # share of the ids that are 0
NO_LOADER = -1  # stands for the loader of batches that none made


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


@measured_once
def prints_of(process: Process) -> dict[str, list[str]]:
    """The prints of the samples of each batch that was looked at, by the text that holds them."""
    texts = process.tables["batches"].text("prints") if len(process.tables["batches"]) else []
    return {text: text.split() for text in texts if text}


@measured_once
def of_training(process: Process) -> list[Pass]:
    """The passes whose batches were trained on, in order. Batches of blank samples, or of no loader, are left out."""
    rows: dict[tuple[int, int, int], list[Mapping[str, Any]]] = {}
    for row in process.tables["batches"].shared_records():
        if row["loader"] is not None and row["print"] and row["trained"] is not None and row["trained"]:
            rows.setdefault((int(row["loader"]), int(row["epoch"]), int(row["batch"])), []).append(row)
    passes: dict[tuple[int, int], Pass] = {}
    prints = prints_of(process)
    for (loader, epoch, batch), fields in rows.items():
        distinct = max(_distinct(row, prints) for row in fields)
        if distinct:
            one = passes.setdefault((loader, epoch), Pass(loader, epoch, int(fields[0]["step"])))
            one.samples = max(one.samples, distinct)
            one.batches[batch] = " ".join({str(row["field"]): str(row["print"]) for row in fields}.values())
    return sorted(passes.values(), key=lambda one: one.step)


def without_loader(process: Process) -> list[Pass]:
    """What models were trained on that no loader made, by step, as one pass: batches with several samples.

    Of a step that has several, the first. Ranks that call a model more often (to validate, say) stay comparable.
    """
    places: dict[int, int] = {}
    fields: dict[int, list[Mapping[str, Any]]] = {}
    for row in process.tables["batches"].shared_records():
        if row["loader"] is None and row["print"] and row["trained"]:
            step, batch = int(row["step"]), int(row["batch"] or 0)
            if batch == places.setdefault(step, batch):
                fields.setdefault(step, []).append(row)
    one = Pass(NO_LOADER, 0, min(fields, default=0))
    prints = prints_of(process)
    for step, rows in fields.items():
        distinct = max(_distinct(row, prints) for row in rows)
        if distinct > 1:
            one.samples = max(one.samples, distinct)
            one.batches[step] = " ".join({str(row["field"]): str(row["print"]) for row in rows}.values())
    return [one] if one.batches else []


def _distinct(row: Mapping[str, Any], prints: dict[str, list[str]]) -> int:
    """Distinct samples of a field of a batch, without blank ones; at least so many where samples have few elements."""
    if row["prints"]:
        found = set(prints[row["prints"]])
        return len(found) - (BLANK in found)
    return 2 if _measured(row) else 0


def _measured(row: Mapping[str, Any]) -> bool:
    """Whether a field holds numbers that agree by chance in no other batch: floats, or ids, of more than two values.

    Such samples have a print together, though one of less than four elements has none of its own: coordinates, the
    columns of a small table, users and items. Targets that are 0 or 1 agree by chance too often, and so do counts that
    are nearly all alike.
    """
    dtype, spread = str(row["dtype"]), row["std"]
    if not spread or not dtype.startswith(("float", "bfloat", "int", "uint")):
        return False
    largest = (row["mean"] - row["min"]) * (row["max"] - row["mean"])  # variance; only two values reach it
    if spread**2 >= _OF_TWO_VALUES * largest:
        return False
    return dtype.startswith(("float", "bfloat")) or _are_ids(row)


def _are_ids(row: Mapping[str, Any]) -> bool:
    """Whether integers are spread over many values, and hardly any of them is frequent."""
    rows = str(row["shape"]).partition("x")[0]
    even = row["max"] - row["min"] < _WIDEST * row["std"] and (row["zeros"] or 0.0) < _MOSTLY
    return bool(even and row["std"] >= _OF_IDS and rows.isdecimal() and int(rows) >= _FEWEST_IDS)


def paired(process: Process, loaders: set[int]) -> bool:
    """Whether a batch holds two fields of real numbers of the same shape: an input, and the clean one."""
    shapes: dict[tuple[Any, ...], list[str]] = {}
    for row in process.tables["batches"].records():
        if row["loader"] in loaders and str(row["dtype"] or "").startswith(("float", "bfloat")) and row["prints"]:
            shapes.setdefault((row["loader"], row["epoch"], row["batch"]), []).append(str(row["shape"]))
    return any(len(found) > len(set(found)) for found in shapes.values())
