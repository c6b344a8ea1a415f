"""Whether a loss rose because the weights became worse, or because it became another loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import ratios

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.statistics import Divergence, Excursion

AROUND = 8  # losses on either side of a jump whose medians are compared
MOST = 0.5  # of the whole rise: what lies between two neighbouring steps is the jump
USUAL = 3.0  # times the median norm, rate or both: an update that is no larger than others
_PIECE = 2**16  # windows whose medians are computed at once
EVEN = 0.05  # spread of the ratio between a loss function's value and the loss: they differ by a factor alone


def another_from(optimization: Optimization, loss: Floats, rows: Floats, seen: Divergence) -> int | None:
    """Row from which the loss is another one, if it jumped there after an update that was no larger than others.

    `loss`: the losses at these rows of the steps. Between two steps the loss of the same objective moves by rate times
    gradient: what an ordinary update cannot explain is a change of the objective, or of the data.
    """
    if len(loss) < 2 * AROUND + 1:
        return None
    starts = range(AROUND, len(loss) - AROUND + 1)
    medians = _medians(loss)
    before, after = medians[: len(starts)], medians[AROUND:]
    widest = int(np.argmax(after - before))
    at = starts[widest]
    least = MOST * (seen.end - seen.minimum)
    near = np.arange(max(1, at - AROUND // 2), min(len(loss) - 1, at + AROUND // 2))
    jump = int(near[np.argmax(loss[near] - loss[near - 1])])
    sudden = loss[jump] - loss[jump - 1] >= least and bool((loss[jump : jump + AROUND] - before[widest] >= least).all())
    if not sudden or after[widest] - before[widest] < least:
        return None
    settled = seen.end <= np.median(loss[jump : jump + AROUND]) + least
    return int(rows[jump]) if settled and _was_usual(optimization, int(rows[jump - 1])) else None


def jumps_to(optimization: Optimization, loss: Floats, rows: npt.NDArray[np.intp], leap: Excursion) -> bool:
    """Whether a leap of the loss came from one step to the next, after an update that was no larger than others."""
    near = np.arange(max(1, leap.begin - AROUND // 2), min(len(loss), leap.begin + AROUND // 2))
    if not len(near):
        return False
    jump = int(near[np.argmax(loss[near] - loss[near - 1])])
    sudden = loss[jump] - loss[jump - 1] >= MOST * (leap.peak - leap.base)
    return bool(sudden) and _was_usual(optimization, int(rows[jump - 1]))


def _was_usual(optimization: Optimization, row: int) -> bool:
    """Whether the update of this step was no larger than others: by its gradient and its rate, and as it was measured,
    if it was. An optimizer may make more of the same gradient, if its state is not what it was."""
    if ratios.larger_update(optimization, row) is not None:
        return False
    norm, rate = optimization.steps["grad_norm"], optimization.steps["lr"]
    usual = norm[: row + 1][np.isfinite(norm[: row + 1])][-64:]  # Norms are sampled.
    if len(usual) < AROUND:
        return False
    known = np.isfinite(rate[:row]).any() and np.isfinite(rate[row])
    pace = rate[row] / np.nanmedian(rate[:row][-64:]) if known else 1.0
    return bool(usual[-1] * pace <= USUAL * np.median(usual))


def _medians(loss: Floats) -> Floats:
    """The median of every AROUND losses in a row; of a long run in pieces, so that it takes little memory."""
    windows = np.lib.stride_tricks.sliding_window_view(loss, AROUND)
    pieces = [np.median(windows[begin : begin + _PIECE], axis=1) for begin in range(0, len(windows), _PIECE)]
    return np.concatenate(pieces)


def risen_beside(optimization: Optimization, seen: Divergence, turned: int) -> bool:
    """Whether the loss is a sum with terms of the script's own, and what its loss functions say did not rise with it.

    `turned`: the step at which the loss passed its minimum.
    """
    steps = optimization.steps
    total = dict(zip(steps["step"].tolist(), steps["loss"].tolist(), strict=True))
    calls = [row for row in optimization.process.tables["loss_calls"].records() if row["training"]]
    lines: dict[tuple[str, int | None], list[tuple[float, float, float]]] = {}
    for row in calls:
        value, whole = row["value"], total.get(float(row["step"]) + 1)
        if value is not None and whole is not None and np.isfinite([value, whole]).all() and whole > 0:
            lines.setdefault((row["function"], row["site"]), []).append((row["step"], value, whole))
    known = [np.array(found) for found in lines.values() if len(found) >= AROUND]
    terms = [found for found in known if float(np.ptp(np.quantile(found[:, 1] / found[:, 2], (0.1, 0.9)))) > EVEN]
    if not terms or len(terms) < len(known):
        return False
    risen = 0.0
    for found in terms:
        late = found[found[:, 0] > turned + (found[-1, 0] - turned) / 2, 1]
        early = found[found[:, 0] <= turned, 1][-AROUND:]
        if not len(late) or not len(early):
            return False
        risen += max(0.0, float(np.median(late) - np.median(early)))
    return risen < MOST * (seen.end - seen.minimum)
