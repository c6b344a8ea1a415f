"""Which backwards a step consumes, and how many samples went into them.

Backwards between two steps belong to every optimizer of their training that steps before the next backward. Where some
of them reach nothing but models that the optimizer holds, the others are for another one: a generator's loss runs
through the critic, too.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.call import Call
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.program.trainings import Trainings

MAX_KEPT = 64  # backwards kept for the trainings that they belong to
NOTHING: frozenset[int] = frozenset()


class Backward:
    """One backward. Signals store in it what they find out about it, for other signals."""

    __slots__ = (
        "calls",
        "divisor",
        "factor",
        "is_mean",
        "is_part",
        "line",
        "micro_batches",
        "models",
        "number",
        "sampled_only",
        "used",
        "value",
    )

    def __init__(self, number: int, loss: float | None) -> None:
        """`loss` is known from the start only of a backward that was skipped."""
        self.number = number  # of the process's backwards
        self.models = NOTHING  # numbers of the models that it ran through
        self.calls: tuple[Call, ...] = ()
        # Numbers of the optimizers whose steps used it: not their records, which would keep a finished model alive.
        self.used: tuple[int, ...] = ()
        self.line: Any = None  # the line of the script that called it; None if no signal needed it
        self.value: Any = loss  # a number, or a tensor on a device
        self.divisor: float | None = None
        self.factor: float | None = None  # the weight of its loss in the loss of the step, where there are several
        self.is_part = False  # whether its loss is a part of one mean over the step
        # Whether its loss is the mean that a loss function returned, and nothing else. Sampled with the divisor.
        self.is_mean: bool | None = None
        self.sampled_only = False  # Divisor and mean were read as a sample, not because the step accumulates.
        self.micro_batches: frozenset[Any] = NOTHING


class StepBackwards:
    """The backwards that a step may still consume."""

    def __init__(self, progress: Progress, trainings: Trainings) -> None:
        self.running: Backward | None = None  # the backward that runs, or the latest one
        self.of_step: list[Backward] = []  # the backwards that the step that runs, or the latest one, consumes
        self.unused = 0  # backwards that no step has consumed yet
        self._progress, self._trainings = progress, trainings
        self._held: list[Backward] = []

    def begins(self, skipped_loss: Any = None) -> None:
        """A backward is about to run, or was skipped with this loss (recording/fast_path)."""
        self.running = Backward(self._progress.backwards, skipped_loss)

    def ends(self, reached: list[Call], latest: Call | None) -> None:
        """The backward that runs returned. It ran through the calls `reached`; `latest` is the call before it."""
        backward = self.running
        if backward is None:
            return
        backward.models = self._trainings.reached_models
        backward.calls = tuple(reached) if reached else () if latest is None else (latest,)
        held = self._held
        if len(held) == 1 and held[0].used and held[0].models == backward.models:  # the common case, kept fast
            held[0] = backward
        else:
            self._held = [one for one in held if not one.used or not self._outdated(one, backward)]
            self._held.append(backward)
        self.unused += 1

    def step_ends(self, tracked: Tracked) -> None:
        """Determine which backwards the step that has just ended consumed."""
        held = self._held
        models = self._trainings.models_of(tracked.index) or tracked.training.models
        if len(held) == 1 and not held[0].used:  # the common case, kept fast
            one = held[0]
            if not one.models or not models or not one.models.isdisjoint(models):
                one.used = (tracked.index,)
                self.of_step, self.unused = [one], 0
                return
        own = [one for one in held if tracked.index not in one.used]
        if not models:  # Its gradients came of no backward that is known: not of what another training has used.
            optimizers = tracked.training.optimizers
            own = [one for one in own if not one.used or not optimizers.isdisjoint(one.used)]
        own = [one for one in own if not one.models or not models or not one.models.isdisjoint(models)]
        if len(own) > 1:
            # Those that reach weights without a call of a model count as well.
            only = [one for one in own if one.models <= models]
            own = only if any(one.models for one in only) else own
        for one in own:
            one.used = (*one.used, tracked.index)
        self.of_step, self.unused = own, sum([not one.used for one in held])

    def _outdated(self, old: Backward, new: Backward) -> bool:
        """Whether a backward that a step has used can be dropped, because the new one is of the same training."""
        if not old.models or not new.models or old.models == new.models or len(self._held) > MAX_KEPT:
            return True
        return self._trainings.of_models(old.models) is self._trainings.of_models(new.models)


def samples_of(backwards: list[Backward]) -> int | None:
    """How many samples went into these backwards: those of the batches that their calls were given.

    A batch counts once, however often a model is called with it (two views, real and fake, a cell called for each
    position), and calls with parts of it add up. Without a loader the inputs of the model's calls add up, apart from
    those that carry on where another ended.
    """
    if len(backwards) == 1 and len(backwards[0].calls) == 1:
        return backwards[0].calls[0].batch_size
    calls = {id(call): call for one in backwards for call in one.calls}
    by_model: dict[int, dict[int, list[Call]]] = {}
    for call in calls.values():
        if call.batch_size is not None:
            by_model.setdefault(call.model.number, {}).setdefault(id(call.batch), []).append(call)
    return max([sum(map(_samples_of_batch, batches.values())) for batches in by_model.values()], default=0) or None


def _samples_of_batch(calls: list[Call]) -> int:
    sizes = [call.batch_size or 0 for call in calls if not call.carries_on]
    largest = max([call.batch_size or 0 for call in calls])
    whole = calls[0].batch.samples if calls[0].batch is not None else None
    total = sum(sizes) or largest
    return total if whole is None else min(total, max(whole, largest))
