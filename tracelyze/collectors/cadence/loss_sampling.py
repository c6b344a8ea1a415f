"""Which calls of loss functions are dispatched: all of an evaluation, all of a young training, then every so many."""

from __future__ import annotations

import math

FIRST_LOSSES = 200  # Losses of a training up to this number are all dispatched.
WATCHED = 100  # losses that are dispatched after a batch that the loop gave up
MAX_YOUNG = 64  # trainings; those that follow are sampled as old ones
EVERY = 53  # Of the others one in so many: a prime, so that no loss of several in a step is always left out.
SPACING = 1.25  # factor between evaluation passes whose first loss is sampled: some 50 of 100,000 passes


class EvaluationPasses:
    """Counts the passes of evaluations between which optimizers step, and chooses some to the end of the run."""

    def __init__(self) -> None:
        self._step = -1
        self._count = 0
        self._next = 0

    def begins(self, step: int) -> bool:
        """Whether a loss without autograd, after this many steps, is the first one of a pass to be sampled."""
        if step == self._step:
            return False
        self._step = step
        self._count += 1
        if self._count < self._next:
            return False
        self._next = math.ceil(SPACING * self._count)
        return True


class LossSampling:
    """Counts the losses of a process. A loss is dispatched if its number is `next` or higher."""

    def __init__(self) -> None:
        self.count = 0  # loss functions that have returned
        self.next: float = 0  # 0: all losses are dispatched
        self.every = EVERY
        self._watched = FIRST_LOSSES  # losses up to this number are all dispatched
        self._trainings = 0

    def watch(self) -> None:
        """The model was called to train and no backward followed: find out what its losses are from now on."""
        self._watched = max(self._watched, self.count + WATCHED)
        self.next = 0

    def training_begins(self) -> None:
        """Another optimizer made its first step."""
        self._trainings += 1
        if self._trainings <= MAX_YOUNG:
            self._watched = max(self._watched, self.count + FIRST_LOSSES)

    def all(self) -> None:
        """The model evaluates: every loss counts."""
        self.next = 0

    def choose_next(self) -> None:
        """The model was called to train, and the loss that was to be dispatched is over."""
        self.next = 0 if self.count < self._watched else (self.count // self.every + 1) * self.every
