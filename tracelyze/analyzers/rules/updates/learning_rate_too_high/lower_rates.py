"""What to do about a learning rate that is too high, and the lines that do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.schedules import endless_warmups, schedulers
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.optimization.rates import TooHigh
    from tracelyze.analyzers.recorded.run import Optimization


def remedy(optimization: Optimization, found: TooHigh) -> Remedy:
    """What is known to be stable is kept to; otherwise a tenth is tried."""
    if found.stable:
        cap = endless_warmups.endless(optimization, found.stable)
        if cap is not None:
            return Remedy(cap.fix, cap.code, cap.place, cap.diff)
        raised = timing.step_at(optimization, found.raised)
        fix = (
            f"Go back to a checkpoint from before step {raised}. Change what raises the rate so that it stays at "
            f"{number(found.stable)} or below; until then cap the rate each time after it was changed."
        )
        code = (
            "# right after each scheduler.step(), or wherever the loop sets the rate:\n"
            f'for group in optimizer.param_groups:\n    group["lr"] = min(group["lr"], {found.stable:.2g})'
        )
        return Remedy(fix, code)
    fix = "Try a tenth and a hundredth of the learning rate, from fresh weights."
    if found.stable_below:
        fix = f"Normalise inputs and targets: as they are, a rate above {number(found.stable_below)} diverges."
    elif not (found.constant or found.stuck):
        fix += " If inputs or targets are in the hundreds, normalise them first."
    edit = schedulers.edit_of_rate(optimization, found.lower)
    return Remedy(fix, schedulers.with_rate(optimization, found.lower, found.rate), diff=edit)
