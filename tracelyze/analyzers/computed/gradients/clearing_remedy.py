"""What is to clear gradients that nothing clears any more, or too seldom: the line, the edit of it, and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import edits, timing
from tracelyze.analyzers.evidence.editing.optimizers import clearing, own_clears

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Location


@dataclass(frozen=True)
class Remedy:
    """What clears the gradients, and where. `why`: a sentence on why nothing does now, after a space; may be empty."""

    line: Location | None
    seen_at: Location | None
    why: str
    fix: str
    example: str
    edit: Diff | None


def of(optimization: Optimization, rarely: str, line: Location | None) -> Remedy:
    """The remedy for gradients that are cleared as `rarely` says; `line`: the one that is to clear them more often."""
    several = bool(timing.name_of(optimization))
    seen_at = optimization.step_location if several else optimization.backward_location  # several may share a backward
    bare = clearing.uncleared_step(optimization) if rarely == accumulation.NO_LONGER else None
    if bare:
        fix, example = clearing.once_per_step(optimization, accumulation.by_hand_in_lightning(optimization))
        why = f" Nothing in {bare.function}, which steps in line {bare.line}, clears gradients."
        edit = None if clearing.in_closure(optimization) else edits.cleared_behind(optimization.process, bare)
        return Remedy(bare, None, why, fix, example, edit)
    unreached = f" Line {line.line} is not reached in each step." if line else ""
    fix, example = clearing.once_per_step(optimization, unreached or accumulation.by_hand_in_lightning(optimization))
    repeat = own_clears.in_place_of_a_repeat(optimization) if several and rarely == accumulation.NEVER else None
    if repeat:
        repeated, edit, why = repeat
        return Remedy(repeated, seen_at, why, fix, example, edit)
    edit = None if clearing.in_closure(optimization) else edits.clear_after_step(optimization)
    return Remedy(line or seen_at, seen_at, "", fix, example, edit)
