"""The habit of a regular loop, by which most of its calls need not be watched."""

from __future__ import annotations

from tracelyze.collectors.program.call import Call
from tracelyze.collectors.program.models import Model

# Backwards in a row that each ran through the one call before it, after which most calls are not watched any more.
HABIT = 100
# Of those calls one in 16 is watched all the same. A pre-hook costs 12 us; not to watch saves 9 of them.
CHECKED_EVERY = 16


class Habit:
    """The regular loop: exactly one call of one model, in train mode, before each backward, which runs through it.

    After HABIT such backwards the next calls are assumed to train, and need not be watched. A second call before the
    backward, another model, or a backward that reached something else ends the habit at once. The first call of that
    step was not watched then: `Calls.backward_begins` decides whether it trained.
    """

    def __init__(self) -> None:
        self._count = 0
        self._model: Model | None = None
        self._calls = 0  # since the latest backward began
        self._call: Call | None = None  # the latest of these calls
        self.running: Call | None = None  # the only one before the latest backward
        self.assumed: Call | None = None  # the latest call that is not watched because a backward should follow it
        self.broken: Call | None = None  # a call that was assumed to train before a second call ended the habit
        self.to_check = False  # whether to watch the next call, because calls before it were skipped

    def model(self) -> Model | None:
        """The model whose next call may be assumed to train; None without a habit."""
        return self._model if self._count >= HABIT and not self._calls and not self.to_check else None

    @property
    def goes_on(self) -> bool:
        """Whether the backward before the latest one ran through the one call before it."""
        return self._count > 0

    def holds(self, call: Call) -> bool:
        """Take this call into account. Returns whether it may be assumed to train, and need not be watched."""
        self._calls += 1
        self._call = call
        if self._calls > 1 or call.model is not self._model or not call.in_train:
            self._count = 0
            if self.assumed is not None:
                self.broken, self.assumed = self.assumed, None
            return False
        checks, self.to_check = self.to_check, False
        return self._count >= HABIT and self._count % CHECKED_EVERY != 0 and not checks

    def forget(self) -> None:
        """Start anew: every call is watched until there is a habit again."""
        self._count = 0

    def assume(self, call: Call) -> None:
        """This call is not watched: the next backward is assumed to run through it."""
        self.assumed = call

    def backward_begins(self, reached: list[Call]) -> Call | None:
        """Check the backward before this one, which ran through the calls `reached`.

        Returns the call that this backward is assumed to run through, if it is not watched.
        """
        one, assumed = self.running, self.assumed
        # A call is in the list once for each of its outputs.
        if one is not None and reached and reached[0] is one and reached[-1] is one:
            self._count += 1
            self._model = one.model
        else:
            self._count = 0
        self.running = self._call if self._calls == 1 else None
        self._calls = 0
        self._call = self.assumed = None
        return assumed
