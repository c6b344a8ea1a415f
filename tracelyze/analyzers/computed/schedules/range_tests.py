"""Range tests of the learning rate: trials that raise it at each step until the loss blows up, before the training.

Smith, Cyclical Learning Rates for Training Neural Networks (https://arxiv.org/abs/1506.01186); `lr_find` of fast.ai and
Lightning. What such a trial does to its model is thrown away, and says nothing of the training that follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Optimization, Process

FEWEST: Final = 20  # steps; derived: a decade in fewer than ten says little of where the loss falls
WIDEST: Final = 100  # times the first rate; derived: no training raises its rate a hundredfold until it ends
EVENLY: Final = 0.05  # of the logarithm of the usual factor; derived: rounding to float32 is far below it
FALLEN: Final = 0.1  # of the highest rate; a tenth of it, or less, is what such a search recommends
SAID: Final = "a trial before the training raises its rate at each step, in search of a learning rate"


def before_others(trainings: Sequence[Process]) -> list[bool]:
    """Of each of a process's trainings, whether it is such a trial, which another training follows."""
    last = len(trainings) - 1
    return [at < last and _is_trial(training) for at, training in enumerate(trainings)]


def _is_trial(training: Process) -> bool:
    """Whether the rate of its only optimizer rises by a constant factor from each step to the next, to the end."""
    one = training.optimizations
    return len(one) == 1 and _rising(one[0]) == len(one[0].steps)


def begins_with_one(optimization: Optimization) -> bool:
    """Whether an optimizer is tried so at first, and then trains at a rate far below the highest."""
    steps = _rising(optimization)
    rates = optimization.steps["lr"]
    return 0 < steps < len(rates) and bool(rates[steps] <= FALLEN * rates[steps - 1])


def _rising(optimization: Optimization) -> int:
    """For how many steps from the first one on the rate rises by a constant factor; 0 where that is no search."""
    rates = optimization.steps["lr"]
    if len(rates) < FEWEST or not (np.isfinite(rates) & (rates > 0)).all():
        return 0
    factors = np.diff(np.log(rates))
    usual = float(np.median(factors[: FEWEST - 1]))
    unlike = np.abs(factors - usual) > EVENLY * usual if usual > 0 else np.ones(len(factors), dtype=bool)
    steps = int(np.argmax(unlike)) + 1 if unlike.any() else len(rates)
    return steps if steps >= FEWEST and rates[steps - 1] >= WIDEST * rates[0] else 0
