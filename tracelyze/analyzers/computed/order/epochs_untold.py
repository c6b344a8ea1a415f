"""Samplers that draw their order from the number of the epoch, where nobody tells them that number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence.datasets import loader_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location


_OF_THE_LOADER: Final = re.compile(r"(?<!batch_sampler)\.sampler\.set_epoch\s*\(")


@dataclass(frozen=True)
class Untold:
    """Why the order repeats, what to change, and where. `certain`: torch's own sampler does nothing else."""

    why: str
    fix: str
    code: str
    location: Location | None
    diff: Diff | None
    certain: bool


def shuffles(loader: Mapping[str, Any]) -> bool:
    """Whether a loader is to give a new order in each pass: torch's own sampler draws one, or a sampler of the script's
    own takes the number of the epoch."""
    return bool(loader["shuffled"] or (loader["shuffled"] is None and loader.get("takes_epoch")))


def of(process: Process, loader: Mapping[str, Any]) -> Untold | None:
    """None where the sampler takes no number of an epoch."""
    own = not loader["shuffled"]
    if not own and "Distributed" not in loader["sampler"]:
        return None
    holder = str(loader.get("takes_epoch") or "sampler")
    place, diff = loader_call.epochs_of(process, loader, holder)
    why = "The sampler derives its order from its seed and the epoch number, which nothing sets."
    called = process.locations("set-epoch")
    if own:
        why = (
            f"{loader['sampler']} has a set_epoch, so its order should follow the epoch number: either nothing passes "
            "it that number, or it does not read it."
        )
    if len(called) == 1:
        place = place or called[0]
        why += f" Line {called[0].line} calls a set_epoch: is it reached, and on this sampler?"
        if holder.startswith("batch_sampler") and _OF_THE_LOADER.search(called[0].source):
            why += f" Beside batch_sampler=, the loader's `sampler` is another one, which nothing asks; see `{holder}`."
    return Untold(
        why=why,
        fix=f"Call set_epoch(epoch) on the loader's {holder} before iterating over the loader.",
        code=f"loader.{holder}.set_epoch(epoch)  # the first line in the loop over epochs",
        location=place,
        diff=diff,
        certain=not own,
    )
