"""A training loss that falls below that of a guess while the validation loss stands far above it, from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.signatures import worse_than_a_guess
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits

FIX: Final = (
    "Run a few training batches through the code that validates: their loss must be that of the training. If it is, "
    "compare inputs and labels of both sets: normalisation, order of channels, number of each class."
)
_CODE: Final = """model.eval()
with torch.no_grad():  # with the lines that validate, on data of the training
    for inputs, targets in loader:
        print(inputs.mean(), inputs.std(), targets.unique(), criterion(model(inputs), targets))"""


def finding(optimization: Optimization, rule: str, limits: Limits) -> Finding | None:
    """Where the last tenth of the training is well below a guess: it has learned something."""
    seen = worse_than_a_guess.found(optimization)
    losses = optimization.steps["loss"]
    losses = losses[np.isfinite(losses)]
    last = losses[-max(1, len(losses) // 10) :]
    if seen is None or seen.passes < limits["passes"] or not len(last):
        return None
    now = float(np.median(last))
    if now > limits["learned"] * seen.guess:
        return None
    place = validation.place_after(optimization.process, seen.first)
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"Validation never gets better than a guess: its loss stands at {number(seen.usual)}",
        summary=(
            f"In {plural(seen.passes, 'validation pass')}, {seen.said()}, while the training loss fell to "
            f"{number(now)}. A model that knew nothing would do better: validation gives it other inputs or labels "
            "than training, or nothing that it has learned holds there."
        ),
        fix=FIX,
        fix_code=_CODE,
        first_step=seen.first,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("lowest validation loss", seen.lowest, "", seen.guess, "the loss of a guess", role="expected"),
            Evidence("training loss at the end", now, "", *_against(seen.guess, limits)),
        ],
        traits=frozenset({"in-validation"}),
        location=place,
        charts=pictures.loss(optimization, [Mark(float(seen.first), "first validation")]),
        false_alarm="Validation on purpose with data of another kind, for which the model is not meant.",
    )


def _against(guess: float, limits: Limits) -> tuple[float, str]:
    return guess * limits["learned"], limits.source("learned")
