"""The inputs of training and validation side by side: whether one of the two was normalised and the other was not."""

from __future__ import annotations

from math import hypot, isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.rules.data.input_normalization import inputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

_NORMALISES: Final = ("LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm")  # by each sample alone
_CENTRED: Final = 0.25  # of the mean of what was standardised, and of its deviation from one: augmentation shifts them
_UNIT: Final = (0.0, 1.0)
_TIED: Final = 0.1  # of the range, by which extremes may miss those of the other set: they are of other samples
_ANY_CENTRE: Final = 100  # times as wide: no two sets of one kind differ so, wherever their middle is


class Side(NamedTuple):
    """One field of training or of validation over all looks: its mean, its whole deviation and its range."""

    batches: int
    mean: float
    std: float
    low: float
    high: float

    @property
    def is_standard(self) -> bool:
        """Whether the mean is zero and the deviation one, or nearly."""
        return abs(self.mean) <= _CENTRED and abs(self.std - 1) <= _CENTRED

    @property
    def is_normalised(self) -> bool:
        """Whether this is what normalising gives: zero mean and unit deviation, or the range from 0 or -1 to 1."""
        at_an_end = self.low in (-_UNIT[1], _UNIT[0]) or self.high == _UNIT[1]
        return self.is_standard or (at_an_end and self.low >= -_UNIT[1] and self.high <= _UNIT[1])


class Ranges(NamedTuple):
    """A field whose two sides do not belong together; `loader`: of the validation, below zero where it has none."""

    field: str
    training: Side
    validation: Side
    loader: float
    ratio: float

    @property
    def raw(self) -> str:
        """The side that looks raw: the one that is not normalised, or not as far; of two alike the wider one."""
        for done in ("is_standard", "is_normalised"):
            if getattr(self.training, done) != getattr(self.validation, done):
                return "validation" if getattr(self.training, done) else "training"
        return "validation" if self.validation.std > self.training.std else "training"


def found(process: Process, limits: Limits) -> Ranges | None:
    """The first field of numbers that has another range in validation than in training, beyond what augmentation,
    other samples or another source do to it; None where the model evens them out sample by sample."""
    met = inputs.first_layer(process)
    if met is not None and any(kind in met.normalised for kind in _NORMALISES):
        return None
    for name, (trained, evaluated, loader) in _pairs(process).items():
        training, validated = _side(trained), _side(evaluated)
        if training is None or validated is None or min(training.batches, validated.batches) < limits["looks"]:
            continue
        ratio = _ratio(training, validated, limits)
        if ratio is not None:
            return Ranges(name, training, validated, loader, ratio)
    return None


def _pairs(process: Process) -> dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], float]]:
    """Looks at each field, of batches that were trained on and of those of the loader that validates most often, where
    both have the same shape but for the number of samples."""
    training, evals = validation.training_loaders(process), process.evals
    loaders = evals["loader"][validation.passes(process)]
    loaders = loaders[~np.isin(loaders, training)] if len(training) else loaders[~np.isfinite(loaders)]
    if not len(loaders):
        return {}
    numbers, counts = np.unique(np.nan_to_num(loaders, nan=-1.0), return_counts=True)
    loader = float(numbers[int(np.argmax(counts))])
    measures = _measuring(process)
    sides: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
    for row in process.tables["batches"].records():
        name, made_by = str(row["field"]), -1.0 if row["loader"] is None else float(row["loader"])
        if "float" not in str(row["dtype"]) or name.lower() in inputs.TARGETS or row["alert"]:
            continue
        if not row["trained"] and made_by < 0 and not measures(row["time"]):
            continue
        trains = bool(row["trained"]) and (made_by in training if len(training) else made_by < 0)
        if trains or (row["trained"] is not None and not row["trained"] and made_by == loader):
            sides.setdefault(name, ([], []))[0 if trains else 1].append(row)
    alike = {name: pair for name, pair in sides.items() if len({_sample(row) for rows in pair for row in rows}) == 1}
    return {name: (trained, evaluated, loader) for name, (trained, evaluated) in alike.items()}


def _measuring(process: Process) -> Callable[[float | None], bool]:
    """Whether the last pass that began before a time computed a loss: one that computes none may be given what the
    model itself made, as where it draws samples, and that is no validation data."""
    begun, losses = process.evals["time_start"], np.nan_to_num(process.evals["losses"])

    def measures(time: float | None) -> bool:
        before = np.flatnonzero(begun <= time) if time is not None else np.array([], dtype=np.intp)
        return not len(before) or bool(losses[before[np.argmax(begun[before])]] > 0)

    return measures


def _sample(row: dict[str, Any]) -> str:
    """The shape of one sample."""
    return str(row["shape"] or "").partition("x")[2]


def _side(rows: list[dict[str, Any]]) -> Side | None:
    """Over all looks, with what the batches differ by: each may hold a class of its own."""
    seen = [row for row in rows if None not in (row["mean"], row["std"], row["min"], row["max"])]
    seen = [row for row in seen if not row["nonfinite"] and isfinite(row["mean"]) and isfinite(row["std"])]
    if not seen:
        return None
    means = np.array([row["mean"] for row in seen], dtype=np.float64)
    within = float(np.sqrt(np.mean([row["std"] ** 2 for row in seen])))
    low, high = min(row["min"] for row in seen), max(row["max"] for row in seen)
    return Side(len(seen), float(means.mean()), hypot(within, float(means.std())), float(low), float(high))


def _ratio(training: Side, validated: Side, limits: Limits) -> float | None:
    """How many times as wide one side is as the other, where that is no sample of the other: one of them is normalised,
    and the other is far wider and lies elsewhere, or is the same values by their extremes before they were scaled."""
    narrow, wide = sorted((training, validated), key=lambda side: side.std)
    if narrow.std <= 0 or not (narrow.is_normalised or wide.is_normalised):
        return None
    ratio, apart = wide.std / narrow.std, abs(wide.mean - narrow.mean)
    elsewhere = apart >= limits["apart"] * narrow.std
    far = narrow.is_normalised and ratio >= limits["wider"] and (elsewhere or ratio >= _ANY_CENTRE)
    tied = all(
        abs(wide.mean + ratio * (end - narrow.mean) - other) <= _TIED * (wide.high - wide.low)
        for end, other in ((narrow.low, wide.low), (narrow.high, wide.high))
    )
    standard = training.is_normalised != validated.is_normalised or {narrow.low, narrow.high} == set(_UNIT)
    return ratio if far or (tied and standard and elsewhere and ratio >= limits["tied"]) else None
