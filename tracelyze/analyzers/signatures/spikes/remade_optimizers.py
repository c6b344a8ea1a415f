"""A loss that jumps behind the first update of each optimizer that a script makes anew for the same model.

The weights of an epoch's first batch are still good: its loss is as before. The next one's is not, for an update of an
optimizer without averages came between. Where the first batch is already worse, the data or the objective changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import listed, number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits

_BEFORE: Final = 16  # losses that show the level
_AFTER: Final = 4  # losses behind the first update: batches of their own
_STILL: Final = 1.5  # times the level: the first batch stays below it, what follows above
_MOST: Final = 2 / 3  # of the optimizers
_FEWEST: Final = 3  # such jumps, as the evidence says why
_SAME_RATE: Final = 1.01  # a rate that begins anew is another cause
_BY_SIGN: Final = ("Adam", "AdamW", "Adamax")  # m / sqrt(v) of one gradient is its sign
FIX: Final = (
    "Make the optimizer once, before the loop over epochs, and hand it to what trains. For another learning rate, set "
    "it in the groups of that optimizer."
)


@dataclass(frozen=True)
class Jumps:
    """The first steps of the optimizers that the loss jumped behind, how far in the median, and of how many."""

    steps: list[int]
    height: float
    optimizers: int

    def follow(self, steps: list[int]) -> bool:
        """Whether all of these steps lie right behind such a first one."""
        return all(any(0 < step - first <= _AFTER for first in self.steps) for step in steps)


def of(optimization: Optimization, factor: float) -> Jumps | None:
    """None where the loss does not jump by `factor` behind most of the optimizers that were made anew."""
    begun = optimization.process.remade.get(optimization.optimizer, [])
    rows = np.searchsorted(timing.numbers(optimization), begun)
    loss, rate = optimization.steps["loss"], optimization.steps["lr"]
    found, judged = [], 0
    for step, row in zip(begun, rows.tolist(), strict=True):
        before, after = loss[max(0, row - _BEFORE) : row], loss[row + 1 : row + 1 + _AFTER]
        before = before[np.isfinite(before)]
        if len(before) < _BEFORE or len(after) < _AFTER or not np.isfinite([*after, loss[row]]).all():
            continue
        judged, level = judged + 1, float(np.median(before))
        good = level > 0 and loss[row] < _STILL * level and not rate[row] > _SAME_RATE * rate[row - 1]
        if good and after[0] >= factor * level and after.mean() >= _STILL * level:
            found.append((step, float(after[0]) / level))
    if len(found) < max(_FEWEST, _MOST * judged):
        return None
    return Jumps([step for step, _ in found], float(np.median([height for _, height in found])), judged)


def finding(optimization: Optimization, jumps: Jumps, rule: str, limits: Limits) -> Finding:
    """What the rule says of them."""
    name, count, steps = str(optimization.facts.get("name") or "optimizer"), len(jumps.steps), jumps.steps
    made, apart = optimization.made_at, np.diff(steps)
    who = f"Line {made.line} makes" if made is not None else "The program makes"
    when = f" every {int(apart[0]):,} steps" if apart.min() == apart.max() else " again and again"
    each = f"each of {count}" if count == jumps.optimizers else f"{count} of {jumps.optimizers}"
    why = (
        " Without averages, such an optimizer moves each weight by the full learning rate, however small its gradient "
        "is."
        if name in _BY_SIGN
        else ""
    )
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"The loss jumps after the first update of each new {name}, to {number(jumps.height)} times its level"
        if count == jumps.optimizers
        else f"The loss jumps after the first update of {count} new optimizers ({name})",
        summary=(
            f"{who} a new {name} for the same model{when}, without the momentum and averages of the one before. The "
            f"first batch of {each} had a usual loss; after the update the next one's was {number(jumps.height)} times "
            f"the level before, in the median.{why}"
        ),
        fix=FIX,
        fix_code=_example(optimization),
        first_step=steps[0] + 1,
        last_step=steps[-1] + 1,
        evidence=[
            Evidence("jumps behind a first update", count, "", _FEWEST, "a second and third time is no chance"),
            Evidence("median height over the level before", jumps.height, "", *limits.against("factor")),
            Evidence("first steps of new optimizers", listed(steps, most=8)),
        ],
        location=made or optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization, [Mark(float(step), "new optimizer") for step in steps[:8]]),
        false_alarm="Warm restarts on purpose.",
    )


def _example(optimization: Optimization) -> str:
    process, made = optimization.process, optimization.made_at
    own = own_statement.at(process, made)
    statement = own.dedented(own.text) if own is not None and own.is_whole else ""
    if not statement.partition("=")[0].strip().replace(".", "").isidentifier():
        statement = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)"
    loop = process.location("epochs")
    head = (
        loop.source.strip() if loop is not None and loop.source.strip().endswith(":") else "for epoch in range(epochs):"
    )
    where = f"above line {loop.line}" if loop is not None else "above the loop over epochs"
    handed = f"  # hand it to {made.function}" if made is not None and loop and loop.function != made.function else ""
    return f"# once, {where}\n{statement}\n{head}\n    ...{handed}"
