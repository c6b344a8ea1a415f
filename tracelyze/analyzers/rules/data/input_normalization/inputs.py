"""What a model is given: the first field of its batches, and the layer that meets it in an early forward."""

from __future__ import annotations

from math import hypot, inf, isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_PASSING: Final = ("Flatten", "Unflatten", "Dropout", "Identity", "Pool", "Pad", "ReLU", "GELU", "ELU", "SiLU")
_WEIGHTED: Final = ("Linear", "Conv")
_SQUASHING: Final = ("Tanh", "Sigmoid")
_BRIGHT: Final = 200  # of 255: what at least one pixel of some dozens of pictures reaches
_LARGEST_BYTE: Final = 255  # 8 bits
_OF_PICTURES: Final = 3  # times "x" in the shape of a batch of them
_CHANNELS: Final = frozenset({"1", "3", "4"})
_DEVIATIONS: Final = (0.15, 0.55)  # of data sets of pictures in 0..1: 0.2 to 0.35; 0.5 maps them to -1..1
_MEANS: Final = (0.1, 0.9)
TARGETS: Final = ("y", "label", "labels", "target", "targets", "mask", "weight", "weights")


class Field(NamedTuple):
    """A field of the batches that were trained on: medians over the measurements, and the range of all of them.

    `scale` is the root mean square of its elements.
    """

    name: str
    batches: int
    mean: float
    std: float
    low: float
    high: float
    scale: float
    shape: str = ""

    def called(self, by_loader: bool) -> str:
        """The field at the beginning of a sentence: its number alone would read as that of a column."""
        if not by_loader:
            return f"Input {self.name} of the model"
        inside = f"ield {self.name} of the batches"
        return f"The inputs (f{inside})" if self.name.isdecimal() else f"F{inside}"

    @property
    def holds_bytes(self) -> bool:
        """Whether these are pixels from 0 to 255: no picture but a dark one stays below 200."""
        return self.low >= 0 and _BRIGHT <= self.high <= _LARGEST_BYTE

    @property
    def shifted_bytes(self) -> tuple[float, float] | None:
        """The mean and deviation by which pixels from 0 to 255 come to lie where these do, if they are some of values
        from 0 to 1: ImageNet's take them to -2 and 1,136. Of several channels the range is that of all."""
        channels = self.shape.split("x")[1:2] + self.shape.split("x")[-1:]
        if self.shape.count("x") != _OF_PICTURES or not _CHANNELS.intersection(channels) or self.high <= self.low:
            return None
        deviation = _LARGEST_BYTE / (self.high - self.low)
        mean = -self.low * deviation
        meant = _DEVIATIONS[0] <= deviation <= _DEVIATIONS[1] and _MEANS[0] <= mean <= _MEANS[1]
        return (mean, deviation) if meant else None


class Met(NamedTuple):
    """The first layer and the root mean square of what it puts out (infinite if that overflowed).

    `normalised`: it, or what follows it, is a normalisation. `next_scale`: what the next linear layer or convolution
    puts out, None if there is none that says so. `squashed`: a tanh or sigmoid is between the two, whose output is
    small however large its input is.
    """

    name: str
    scale: float
    normalised: str
    next_scale: float | None
    squashed: bool


def first_field(process: Process) -> Field | None:
    """The first field of floating-point numbers, or bytes, that is no target by its name; None without any."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in process.tables["batches"].records():
        real = "float" in str(row["dtype"]) or row["dtype"] == "uint8"
        if row["trained"] and real and str(row["field"]).lower() not in TARGETS:
            rows.setdefault(str(row["field"]), []).append(row)
    for name, found in rows.items():
        seen = [row for row in found if None not in (row["mean"], row["std"], row["min"], row["max"])]
        seen = [row for row in seen if not row["nonfinite"] and isfinite(row["mean"]) and isfinite(row["std"])]
        if not seen:
            return None
        mean, std = (float(np.median([row[key] for row in seen])) for key in ("mean", "std"))
        scale = float(np.median([hypot(row["mean"], row["std"]) for row in seen]))
        low, high = min(row["min"] for row in seen), max(row["max"] for row in seen)
        return Field(name, len(seen), mean, std, low, high, scale, str(seen[0]["shape"] or ""))
    return None


def first_layer(process: Process) -> Met | None:
    """None where the first call of the forward was not looked at: nothing was, or only some of many modules."""
    rows = [row for row in process.tables["activations"].records() if row["module"] is not None and not row["alert"]]
    if not rows:
        return None
    earliest = min(row["step"] for row in rows)
    rows = sorted((row for row in rows if row["step"] == earliest), key=lambda row: row["order"])
    names = [row["module"] for row in rows]
    if rows[0]["order"] != 1:  # some modules were left out
        return None
    leaves = [row for row in rows if not any(_inside(other, row["module"]) for other in names)]
    layers = [row for row in leaves if not any(mark in str(row["kind"]) for mark in _PASSING)]
    if not layers:
        return None
    norm = next((f"{row['module']}: {row['kind']}" for row in layers[:2] if "Norm" in str(row["kind"])), "")
    first, *later = layers
    after = next((row for row in later if any(mark in str(row["kind"]) for mark in _WEIGHTED)), None)
    between = later[: later.index(after)] if after is not None else []
    name = f"{first['module']} ({first['kind']})" if first["module"] else f"the model ({first['kind']})"
    squashed = any(str(row["kind"]) in _SQUASHING for row in between)
    return Met(name, _scale(first), norm, None if after is None else _scale(after), squashed)


def _inside(name: str, container: str) -> bool:
    return name != container and (not container or name.startswith(f"{container}."))


def _scale(row: dict[str, Any]) -> float:
    scale = hypot(row["mean"] or 0.0, row["std"] or 0.0)
    return scale if isfinite(scale) and not row["nonfinite"] else inf
