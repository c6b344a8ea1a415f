"""The finding about leaps of the loss that last: what they cost, and what is known of where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.diagnosis import Chart, Evidence, Finding, Location
from tracelyze.formatting import listed, number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.rule import Limits

FIX = "Lower the learning rate, warm it up longer, clip gradients; with Adam, try a smaller beta2 (0.95)."
LOOK = (
    "Check what the script does at the step before each jump: to the learning rate, the optimizer state, the weights. "
    "If it does nothing, the updates themselves are too large. "
)
REGAINED, NOT_REGAINED = (
    "It came back, at the cost of the steps between.",
    "The level before the last one was not regained.",
)
OTHER = (
    "Each time it jumped within one step, after a gradient and a learning rate no larger than usual: the data, the "
    "objective or the optimizer state changed there, perhaps on purpose."
)
THROWN = (
    "Each time it jumped within one step, after a gradient and a learning rate no larger than usual, to more than "
    "twice the loss that the training began with. Such an update does not do that: the optimizer state or "
    "the weights were changed there, as by moments that are reset, loaded, or cast to a smaller type."
)
FIX_STATE = (
    "Check what the script does to the optimizer state and the weights between these steps: moments have to come back "
    "as they were, in float32. Clipping or a lower learning rate does not help."
)
CODE_STATE = (
    "kept = copy.deepcopy(optimizer.state_dict())\n"
    "...  # what runs between the steps: the evaluation, the save\n"
    "for before, after in zip(kept['state'].values(), optimizer.state_dict()['state'].values()):\n"
    "    assert all(torch.equal(before[name], after[name]) for name in before if torch.is_tensor(before[name]))"
)
UPDATES = (
    "Updates that are too large do that: a learning rate at the edge of stability, or an optimizer whose second "
    "moment lags behind."
)


@dataclass(frozen=True)
class Leapt:
    """Leaps of a loss: the steps at which they began, their median height over the level before."""

    steps: list[int]
    height: float
    lost: bool
    """The level before the last one was not regained."""
    other: bool = False
    """It may be another objective, or other data, from these steps on."""
    seen: str = ""
    """What else is known of these steps."""
    location: Location | None = None
    """Where the weights are updated."""
    thrown: bool = False
    """Neither gradient nor rate explains them, and no other objective is that far from its first loss."""


def finding(rule: str, leapt: Leapt, limits: Limits, charts: list[Chart]) -> Finding:
    """What the rule says of such leaps."""
    at = f"step{'s' if len(leapt.steps) > 1 else ''} {listed(leapt.steps, most=8)}"
    end = NOT_REGAINED if leapt.lost else REGAINED
    why = OTHER if leapt.other else THROWN if leapt.thrown else UPDATES
    return Finding(
        rule=rule,
        severity="info" if leapt.other else "warning",
        confidence="possible" if leapt.other else "likely",
        title=f"The loss jumped {plural(len(leapt.steps), 'time')} to {number(leapt.height)} times its level",
        summary=(
            f"At {at} the loss jumped to about {number(leapt.height)} times the level it had reached, for many steps "
            f"rather than for one batch. {end} {why}{leapt.seen}"
        ),
        fix=FIX_STATE if leapt.thrown else f"{LOOK if leapt.seen else ''}{FIX}",
        fix_code=CODE_STATE if leapt.thrown else "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)",
        first_step=leapt.steps[0],
        last_step=leapt.steps[-1],
        evidence=[
            Evidence("leaps", len(leapt.steps), "", *limits.against("spikes")),
            Evidence("median height over the level before", leapt.height, "", *limits.against("factor")),
            Evidence("steps", listed(leapt.steps, most=8)),
        ],
        location=leapt.location,
        charts=charts,
        false_alarm="A learning rate that restarts (cyclic schedules), or harder data from some step on.",
    )
