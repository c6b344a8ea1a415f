"""A loss that leaps at one step and is learned down again from there: a harder stage of the data, or a restart."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.gradients import misplaced_clips
from tracelyze.formatting import number

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.statistics import Divergence

AROUND: Final = 8  # losses on either side of the leap
SUDDEN: Final = 0.5  # of the whole rise, from one loss to the next
BLOCKS: Final = 8  # of the losses behind the leap; each has at least as many losses
FALLING: Final = 6  # of the steps from block to block, so that noise does it in one run of thirty
FALLEN: Final = 0.1  # of the leap: what was learned since, in the second half of the time as well
LATER: Final = 0.25  # of that
LARGER: Final = 3.0  # times the median gradient norm before
BESIDE: Final = 0.02  # of the run, between the leap and the change of another column
LAST: Final = 3  # evaluations that are below all those before the rise, though the training loss is up
NEARLY: Final = 1.1  # times the lowest evaluation: none of them rises again
DATA: Final = re.compile(
    r"seq|length|\blen|context|stage|phase|curriculum|difficulty|level|task|resolution|image_?size|crop", re.IGNORECASE
)
"""Names of columns that say which data, or how large, a training is given."""


def leap(optimization: Optimization, rows: npt.NDArray[np.intp], loss: Floats, seen: Divergence) -> int | None:
    """Where the loss (shape [losses], at these rows of the steps) leapt, if it has fallen steadily from there on.

    None if it did not: a training that blew up stays at what a guess costs, or falls there at once and then no further.
    Gradients that are much larger from then on say that it blew up, too.
    """
    if len(loss) < AROUND * (BLOCKS + 1):
        return None
    at = int(np.argmax(np.diff(loss[AROUND:-AROUND]))) + AROUND + 1
    before, after = statistics.median(loss[at - AROUND : at]), statistics.median(loss[at : at + AROUND])
    rise = after - before
    if loss[at] - loss[at - 1] < SUDDEN * rise or rise < SUDDEN * (seen.end - seen.minimum):
        return None
    if before > seen.minimum + seen.margin or len(loss) - at < AROUND * BLOCKS:
        return None
    level = statistics.block_medians(loss[at:], BLOCKS)
    fallen, later = float(level[0] - level[-1]), float(level[BLOCKS // 2] - level[-1])
    falls = int((np.diff(level) < 0).sum()) >= FALLING and later >= LATER * fallen
    norm = optimization.steps["grad_norm"]
    sides = [side[np.isfinite(side)] for side in (norm[: rows[at]], norm[rows[at] + 1 :])]
    blown_up = all(len(side) >= AROUND for side in sides) and np.median(sides[1]) > LARGER * np.median(sides[0])
    return at if falls and fallen >= FALLEN * rise and not blown_up else None


def changed_column(process: Process, step: int) -> str | None:
    """A column that says which data is trained on, and had one value before this step and another one behind it."""
    scalars = process.tables["scalars"]
    steps = scalars["step"]
    rows = [(str(row["name"]), row["step"], row["value"]) for row in scalars.records() if DATA.search(str(row["name"]))]
    columns: dict[str, list[tuple[float, float]]] = {}
    for name, at, value in rows:
        if at is not None and value is not None:
            columns.setdefault(name, []).append((float(at), float(value)))
    near = BESIDE * float(np.nanmax(steps)) if len(steps) else 0.0
    for name, points in columns.items():
        points.sort()
        changes = [later[0] for (_, was), later in itertools.pairwise(points) if later[1] != was]
        if len(changes) == 1 and abs(changes[0] - step) <= near:
            return f"{name} goes from {points[0][1]:g} to {points[-1][1]:g}"
    return None


def validation_fell(optimization: Optimization, seen: Divergence, turned: int) -> str | None:
    """What the validation loss did meanwhile, if it is lower at the end than it ever was up to this step.

    The last evaluations must each follow training losses that are up already: one may also blow up behind them. What
    is trained on became harder then, or the loss another one. The weights did not become worse.
    """
    after, losses, _samples = validation.curve(optimization.process)
    before = losses[after <= turned]
    if len(after) < LAST or not len(before) or not np.isfinite(losses).all() or (after[-LAST:] <= turned).any():
        return None
    level = float(losses[-LAST:].max())
    up = validation.training_before(optimization, after)[-LAST:] > seen.minimum + seen.margin
    if not up.all() or level >= before.min() or level > NEARLY * losses.min():
        return None
    return f"the validation loss fell from {number(float(before.min()))} to {number(float(losses[-1]))} meanwhile"


HARDER: Final = (
    " Updates are no larger than sound ones, so the task may have become harder there, which may be meant: other data, "
    "a term that grows, an adversary."
)
BOTH: Final = (
    " It leapt there from one step to the next and has fallen ever since. So a harder stage of the data, or another "
    "objective, may have begun, which may be meant; or the training blew up there and learns again from scratch. A "
    "gradient norm that is far above the earlier ones, or validation on the same data as before, tells the two apart."
)

_MEANT: Final = (
    "If the rise is meant, change nothing. Else look at the loss of data and of an objective that stay the same, such "
    "as a validation set: if it rises as well, go back to a checkpoint from before the rise, and lower the learning "
    "rate."
)
_BACK: Final = (
    "Go back to a checkpoint from before the rise, and lower or warm up the learning rate, or clip gradients."
)
CLIP: Final = "loss.backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)\noptimizer.step()"
VERIFY: Final = "Record the run again with a validation on data that stays the same: its loss does not rise."


def words(leapt: int | None) -> str:
    """Why a loss that rose may be meant."""
    return HARDER if leapt is None else BOTH


def fix(harmful: bool, clipped_in_vain: bool) -> str:
    """What to do about a loss that rose."""
    return _MEANT if not harmful else misplaced_clips.FIX if clipped_in_vain else _BACK
