"""What is to clear gradients that nothing clears any more, or too seldom: the line, the edit of it, and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script import called, edits
from tracelyze.analyzers.script.editing.optimizers import clearing, own_backwards, own_clears

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.optimization.accumulation import Cleared
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Location


_MOST: Final = 0.5  # of the steps


@dataclass(frozen=True)
class Clearing:
    """What clears the gradients, and where. `why`: a sentence on why nothing does now, after a space; may be empty."""

    line: Location | None
    seen_at: Location | None
    why: str
    fix: str
    example: str
    edit: Diff | None


def of(optimization: Optimization, cleared: Cleared) -> Clearing:
    """The remedy for gradients that are cleared too rarely, or never."""
    line = cleared.line
    several = bool(timing.name_of(optimization))
    seen_at = optimization.step_location if several else optimization.backward_location  # several may share a backward
    bare = clearing.uncleared_step(optimization) if cleared.how == "no-longer" else None
    if bare:
        fix, example = clearing.once_per_step(optimization, accumulation.by_hand_in_lightning(optimization))
        why = f" Nothing in {bare.function}, which steps in line {bare.line}, clears gradients."
        edit = None if clearing.in_closure(optimization) else edits.cleared_behind(optimization.process, bare)
        return Clearing(bare, None, why, fix, example, edit)
    unreached = f" Line {line.line} is not reached in each step." if line else ""
    fix, example = clearing.once_per_step(optimization, unreached or accumulation.by_hand_in_lightning(optimization))
    repeat = own_clears.in_place_of_a_repeat(optimization) if several and cleared.how == "never" else None
    if repeat:
        repeated, edit, why = repeat
        return Clearing(repeated, seen_at, why, fix, example, edit)
    every = own_clears.of_all(optimization.process) if several and not line and _none_is_cleared(optimization) else None
    if every:
        fix = every.fix + accumulation.by_hand_in_lightning(optimization)
        return Clearing(every.place or seen_at, seen_at, "", fix, every.code, every.edit)
    edit = None if clearing.in_closure(optimization) else edits.clear_after_step(optimization)
    return Clearing(line or seen_at, seen_at, "", fix, example, edit)


def _none_is_cleared(optimization: Optimization) -> bool:
    """Whether each optimizer beside this one uses old gradients in most of its steps, too."""
    carried = [accumulation.carries(one) for one in optimization.process.optimizations]
    return all(share is not None and share > _MOST for share in carried)


def of_part(optimization: Optimization, alone: bool, whole: bool) -> Clearing:
    """The remedy where others are cleared: for all gradients of an optimizer (`whole`), or for some of its tensors.
    `alone`: another optimizer is cleared, and this one is not."""
    stepped = optimization.step_location
    fix, example = clearing.in_part(optimization.process) or _by_the_optimizer(optimization, alone)
    repeat = own_clears.in_place_of_a_repeat(optimization) if alone and whole else None
    if repeat:
        line, edit, why = repeat
        return Clearing(line, stepped, why, fix, example, edit)
    beside = own_clears.beside_another(optimization) if alone and whole else None
    if beside:
        line, edit = beside
        return Clearing(line, stepped, "", fix, example, edit)
    behind = (edits.clear_after_own_step if whole else edits.clear_all)(optimization)
    before = own_backwards.cleared_before(optimization) if alone and whole and not behind else None
    if before:
        return Clearing(before.place, stepped, "", before.fix, before.code, before.diff)
    return Clearing(optimization.zero_grad_location or stepped, None, "", fix, example, behind)


def _by_the_optimizer(optimization: Optimization, alone: bool) -> tuple[str, str]:
    """What to do, and an example: the optimizer's own call, beside what the script calls today, where that clears
    something else."""
    fix = "Clear everything the optimizer holds, with its own zero_grad()."
    if alone:
        return fix, f"{called.assigned(optimization.made_at) or 'optimizer'}.zero_grad()  # once per step of its own"
    place, step = optimization.zero_grad_location, optimization.step_location
    stepped = edits.STEP.fullmatch(step.source) or edits.SCALER_STEP.fullmatch(step.source) if step else None
    if place is None or stepped is None or not edits.CLEAR.fullmatch(place.source):
        return fix, "optimizer.zero_grad()"
    other = place.source.partition(".zero_grad(")[0] != stepped["optimizer"]
    return fix, f"optimizer.zero_grad(){f'  # not: {place.source}' * other}"
