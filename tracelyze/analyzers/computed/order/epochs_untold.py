"""Samplers that draw their order from the number of the epoch, where nobody tells them that number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence import called, recorded_text
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process


_EPOCHS: Final = re.compile(r"(?P<indent>\s*)for (?P<epoch>[A-Za-z]\w*) in [^#]*:\s*")
_OVER: Final = re.compile(r"\s*for .+ in (?:\w+\()?(?P<loader>[A-Za-z_][\w.]*)[^\w.(].*")
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
    place, diff = _loop_over_epochs(process, loader, holder)
    why = "The sampler derives its order from its seed and the epoch number, which nothing sets."
    told = process.locations("set-epoch")
    if own:
        why = (
            f"{loader['sampler']} has a set_epoch, so its order should follow the epoch number: either nothing passes "
            "it that number, or it does not read it."
        )
    if len(told) == 1:
        place = place or told[0]
        why += f" Line {told[0].line} calls a set_epoch: is it reached, and on this sampler?"
        if holder.startswith("batch_sampler") and _OF_THE_LOADER.search(told[0].source):
            why += f" Beside batch_sampler=, the loader's `sampler` is another one, which nothing asks; see `{holder}`."
    return Untold(
        why=why,
        fix=f"Call set_epoch(epoch) on the loader's {holder} before iterating over the loader.",
        code=f"loader.{holder}.set_epoch(epoch)  # the first line in the loop over epochs",
        location=place,
        diff=diff,
        certain=not own,
    )


def _loop_over_epochs(process: Process, loader: Mapping[str, Any], holder: str) -> tuple[Location | None, Diff | None]:
    """The loop over epochs around the one over this loader, and the edit that tells its `holder`, a sampler of it, the
    epoch: only where that loop goes over the very variable that the line which makes the loader assigns."""
    loop, over, made = process.location("epochs"), process.site(loader.get("site")), process.site(loader.get("made_at"))
    if loop is None or over is None or loop.file_function != over.file_function:
        return None, None
    text = recorded_text.around(process, loop).get(loop.line, "")
    head, named = _EPOCHS.fullmatch(text), _OVER.fullmatch(over.source)
    if over.line <= loop.line or head is None:
        return None, None
    if named is None or made is None or called.assigned(made) != named["loader"] or made.function != loop.function:
        return loop, None
    told = f"{head['indent']}    {named['loader']}.{holder}.set_epoch({head['epoch']})"
    return loop, Diff(loop.file, loop.line, [text], [text, told])
