"""A batch of one sample that ended the program, or made a validation no number: whether it was the last of its pass,
and the loader without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.script.editing import loader_arguments

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

FIX: Final = (
    "Look at what is computed within a batch: the last one holds one sample. Take a deviation that was computed once, "
    "of the training data, or one without Bessel's correction; or have the loader leave that batch out."
)
_UNBIASED: Final = "spread = target.std(dim=0, unbiased=False).clamp_min(1e-3)  # 0 of one sample, and no NaN"
_LOADER: Final = "val_loader = DataLoader(val_set, batch_size=32, drop_last=True)"
MOSTLY = "Mostly it is the last batch of an epoch, when the number of samples divides with remainder one."


def which(process: Process) -> str:
    """A sentence on which batch of the epoch it was, by the batches that the training had fetched before."""
    if not was_last(process):
        return MOSTLY
    length, size = (process.longest.loader[name] for name in ("length", "batch_size"))
    return (
        f"It was the last of the epoch's {length:,} batches: the number of samples, divided by {size}, leaves one over."
    )


def was_last(process: Process) -> bool:
    """Whether the batch after that of the last step was the last of its epoch, and may be smaller than others."""
    if not process.optimizations:
        return False
    steps, loader = process.longest.steps, process.longest.loader
    begun = np.flatnonzero(np.nan_to_num(steps["loader_first"]) == 1)
    length, size = loader.get("length"), loader.get("batch_size")
    fetched = int(np.nansum(steps["loader_batches"][begun[-1] :])) if len(begun) else 0
    return bool(length and size and size > 1 and not loader.get("drop_last") and fetched + 1 == length)


def left_out(process: Process) -> tuple[Diff | None, Location | None]:
    """The training loader without its last, incomplete batch, and the line that makes it."""
    if not process.optimizations:
        return None, None
    made_at = process.site(process.longest.loader.get("made_at"))
    diff = loader_arguments.with_arguments(process, made_at, {"drop_last": "True"})
    return diff, made_at if diff is not None else None


def example(process: Process) -> str:
    """The script's own statement that makes the training loader, without its last batch; empty where none is known."""
    if not process.optimizations or process.longest.loader.get("made_at") is None:
        return ""
    return loader_arguments.example(process, process.longest.loader, {"drop_last": "True"})


class Ending(NamedTuple):
    """Validation passes whose last batch holds one sample: a sentence, what to change, an example, and the line that
    makes the loader, where it can be changed."""

    told: str
    fix: str
    code: str
    line: Location | None
    diff: Diff | None


def ending(process: Process, row: int | None = None) -> Ending | None:
    """How the pass in this row of evals ended in a batch of one sample, or the first pass whose loss is NaN; None where
    no loader leaves one sample over."""
    evals = process.evals
    rows = np.flatnonzero(evals.known("loss") & np.isnan(evals["loss"])).tolist() if row is None else [row]
    found = {one["loader"]: one for one in process.loaders.records()}
    loader = found.get(evals["loader"][rows[0]]) if rows else None
    if loader is None or not _leaves_one(loader, evals["samples"][rows[0]], evals["forwards"][rows[0]]):
        return None
    place = process.site(loader.get("made_at"))
    diff = loader_arguments.with_arguments(process, place, {"drop_last": "True"})
    dropped = loader_arguments.example(process, loader, {"drop_last": "True"}) if place is not None else _LOADER
    return Ending(
        "The last batch of a pass holds a single sample: a deviation within it is 0 / 0 where it is divided by n - 1, "
        "as torch's std() and var() are.",
        FIX,
        f"{_UNBIASED}\n{dropped}  # or this, in place of it",
        place if diff is not None else None,
        diff,
    )


def _leaves_one(loader: dict[str, Any], samples: float, forwards: float) -> bool:
    """Whether the batches of a pass are full but for the last, which holds one sample; a model may be called several
    times with each."""
    size, length = loader.get("batch_size"), loader.get("length")
    times = forwards // length if length and forwards % length == 0 else 1
    return bool(size and size > 1 and forwards and samples == times * (size * (forwards / times - 1) + 1))
