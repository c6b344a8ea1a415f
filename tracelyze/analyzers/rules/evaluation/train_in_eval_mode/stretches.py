"""Stretches of training steps in eval mode, and the evaluations that they follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers import statistics

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask


def follow_evaluations(optimization: Optimization, off: Mask, least: int) -> bool:
    """Whether several stretches of steps in eval mode, `least` steps or more, each begin where an evaluation ended."""
    if len(optimization.process.optimizations) > 1:
        return False
    begins = [begin for begin, end in statistics.runs_of(off) if end - begin >= least]
    evals = optimization.process.evals
    ended = set(evals["after_step"][(evals["trained"] == 1) & (evals["model_in_train"] == 0)].tolist())
    return len(begins) >= 2 and all(begin in ended for begin in begins)
