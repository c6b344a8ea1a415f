"""Where a training that went on for too long is to stop: the loop over its epochs, and the number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.script.editing import trainer_examples
from tracelyze.diagnosis import Setting

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

KEEP: Final = "Keep the weights with the best validation loss, and stop when it stops improving, or after fewer epochs."
MORE: Final = "To get further: more or augmented data, weight decay or dropout, a smaller model."
_WITHOUT_WEIGHTS: Final = """best, waited = float("inf"), 0  # before the loop

waited = 0 if val_loss < best else waited + 1  # after each validation
best = min(best, val_loss)
if waited == 5:
    break"""


def loop(process: Process) -> tuple[Location, Setting] | None:
    """The only loop over epochs, and their number as a setting of the script, where the process trains once."""
    planned = [row["value"] for row in process.events_of("epochs-planned")]
    lines = process.locations("epochs")
    if len(planned) != 1 or len(lines) != 1 or len(process.optimizations) != 1:
        return None
    return lines[0], Setting((), (float(planned[0]),), called="epoch")


def advice(process: Process, best: int) -> tuple[str, str]:
    """What to do, and an example, where the validation loss was lowest after step `best`: weights that are loaded again
    at the end need no keeping."""
    row, counts = _loaded_at_the_end(process), _counting(process)
    again = process.site(row["site"]) if row is not None and row["taken_at"] == best else None
    if trainer_examples.trainer_of(process)[0]:
        return f"{KEEP} {MORE}", trainer_examples.STOP_EARLY
    sooner = f"Line {counts.line} counts validations without progress: stop after fewer of them." if counts else ""
    if again is None:
        kept = f"Keep the weights with the best validation loss. {sooner}" if sooner else KEEP
        return f"{kept} {MORE}", "" if sooner else trainer_examples.STOP_EARLY
    lost = f"Line {again.line} loads the best weights again, so only time is lost"
    if sooner:
        return f"{lost}. {sooner} {MORE}", ""
    return f"{lost}: stop when the validation loss stops improving, or after fewer epochs. {MORE}", _WITHOUT_WEIGHTS


def _counting(process: Process) -> Location | None:
    """The only line that counts epochs without progress, where another one sets that back, as a training does that
    stops by itself."""
    lines = process.locations("waits")
    return lines[0] if len(lines) == 1 and process.locations("waits-reset") else None


def _loaded_at_the_end(process: Process) -> dict[str, Any] | None:
    """The last state that was loaded, if no step came after that and it was whole, and no state of another module."""
    rows = [row for row in process.tables["loads"].records() if np.isfinite(row["step"] or np.nan)]
    last = rows[-1] if rows else None
    if last is None or last["step"] < len(process.steps) or last["missing"] or last["own"] or last["from_other"]:
        return None
    return last
