"""Gradients that leap together with a loss which stays up: the weights became worse, and not a batch alone is hard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.gradients import misplaced_clips
from tracelyze.analyzers.computed.optimization import ratios
from tracelyze.analyzers.evidence import timing
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Optimization

_BEFORE: Final = 16  # losses that show the level
_AFTER: Final = 4  # steps behind a spike: batches of their own
UP: Final = 2.0  # times the level: as for loss-spikes, batches of one size and kind do not double it for long
_MOST: Final = 2 / 3  # of the spikes
_EVEN: Final = 3  # spikes from which on equal distances are a rule
BATCHES: Final = "Single batches do that: mislabelled, empty or extreme samples."
CLIP: Final = "Clip the gradient norm a little above its usual size, and check the batches of these steps."
FIX: Final = (
    "Check what the script does at the step before each spike (the learning rate, the optimizer state, weights that "
    "it sets), and check their batches. Clipping bounds the gradients, not what the optimizer makes of them."
)


@dataclass(frozen=True)
class Thrown:
    """How far the loss stays up behind such spikes, and what is known of the updates before them."""

    times: float
    updates: str
    """A sentence about a measured update before a spike that was larger than others; empty without one."""
    rhythm: str
    """A sentence about equal distances between the spikes; empty without them."""

    def said(self) -> str:
        """What it means for where the spikes come from."""
        return (
            f"The loss jumped with it and stayed at {number(self.times)} times its level over the next "
            f"{plural(_AFTER, 'step')}: the weights got worse, so this is more than a hard batch. An update that is "
            f"too large does that, through the gradient or the optimizer state.{self.updates}{self.rhythm}"
        )


def told(optimization: Optimization, rows: Sequence[int], harm: str) -> tuple[str, str]:
    """Where spikes of the gradient at these rows come from, and what to do. `harm`: what each of them may do."""
    if misplaced_clips.seen(optimization):
        return f"{BATCHES} {harm}", f"{misplaced_clips.FIX} Look at the batches of these steps."
    thrown = seen(optimization, rows)
    return (f"{BATCHES} {harm}", CLIP) if thrown is None else (thrown.said(), FIX)


def seen(optimization: Optimization, rows: Sequence[int]) -> Thrown | None:
    """Whether the loss stays up behind most of these rows of the steps; None also where it is not known."""
    loss, heights = optimization.steps["loss"], []
    for row in rows:
        before, after = loss[max(0, row - _BEFORE) : row], loss[row + 1 : row + 1 + _AFTER]
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        if len(before) < _BEFORE // 2 or len(after) < _AFTER or np.median(before) <= 0 or not np.isfinite(loss[row]):
            continue
        level = float(np.median(before))
        heights.append(min(float(loss[row]), float(np.median(after))) / level)
    if not heights or sum(height >= UP for height in heights) < _MOST * len(rows):
        return None
    return Thrown(float(np.median(heights)), updates(optimization, rows), rhythm(optimization, rows))


def updates(optimization: Optimization, rows: Sequence[int]) -> str:
    """A sentence about the first measured update before one of these rows that was larger than others, or nothing."""
    for row in rows:
        larger = ratios.larger_update(optimization, row - 1)
        if larger is not None:
            step, size, times = timing.step_at(optimization, row - 1), percent(larger.update), number(larger.times)
            return (
                f" The update of step {step:,}, right before one of them, changed the weights by {size} of their size, "
                f"{times} times as much as usual."
            )
    return ""


def rhythm(optimization: Optimization, rows: Sequence[int]) -> str:
    """A sentence about equal distances between these rows of the steps, or nothing."""
    apart = np.diff([timing.step_at(optimization, row) for row in rows])
    if len(rows) < _EVEN or apart.min() != apart.max():
        return ""
    return f" They come every {int(apart[0]):,} steps, like something that the script does at that interval."


def measured(optimization: Optimization, rows: Sequence[int]) -> bool:
    """Whether the gradient norm is known of every step right before these rows."""
    return bool(np.isfinite(optimization.steps["grad_norm"][np.asarray(rows) - 1]).all())


def evaluated(optimization: Optimization, steps: Sequence[int]) -> str:
    """A sentence about evaluations right before the updates that these steps follow, or nothing."""
    after = set(optimization.process.evals["after_step"].tolist())
    return " An evaluation ran right before each of these updates." if {one - 2 for one in steps} <= after else ""
