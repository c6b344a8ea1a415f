"""Gradients of one optimizer that come from a backward which another optimizer's step has consumed.

The generator's loss runs through the discriminator and fills its gradients, too. If nobody clears them before the
discriminator's own backward, its step takes the sum of two losses that work against each other; likewise for the
generator where the discriminator's loss runs through samples that are not detached.

Both steps of two optimizers that share one backward look the same at first, and so does one that steps more rarely than
the other (accumulation): there, the other one steps after the last backward of the window as well.
"""

from __future__ import annotations

NONE = -1  # no gradient


class Foreign:
    """Versions of one optimizer's gradients (see `gradient_lifecycle`), between its steps."""

    def __init__(self) -> None:
        self.filled_at = NONE  # the latest backward that changed these gradients
        self._before: list[int] = []
        self._used: list[int] = []  # as another optimizer's step found them
        self._checked = False  # a backward has begun since, and what had been cleared by then is out
        self._mixed: int | None = None  # gradients of the latest step that held those of a step of another one

    def before_backward(self, now: list[int]) -> None:
        self._before, used = now, self._used
        if len(used) != len(now):
            self._used = []
        elif not self._checked:
            self._used = [before if before == version else NONE for before, version in zip(used, now, strict=True)]
        elif any(version < before for before, version in zip(used, now, strict=True)):
            self._used = []  # cleared since
        self._checked = True

    def after_backward(self, now: list[int], backward: int) -> None:
        if len(now) == len(self._before) and now != self._before:
            self.filled_at = backward

    def another_stepped(self, backward: int, now: list[int], idle: bool) -> None:
        """Another optimizer consumed gradients that this backward filled. `idle`: none ran since the own step."""
        if idle:
            self._mixed = None if self._mixed is None else 0  # Both take the last backward: they work together.
        elif backward == self.filled_at != NONE and now:
            self._used, self._checked = now, False

    def before_step(self, now: list[int]) -> int | None:
        """How many gradients the step before this one took with another's; None if nobody looked."""
        used = self._used
        both = zip(used, now, strict=True) if len(used) == len(now) and self._checked else ()
        mixed = sum(before != NONE and version > before for before, version in both)
        latest, self._mixed = self._mixed, mixed
        self._used = []
        return latest

    def unknown(self) -> None:
        """A step that nobody looks at."""
        self._used, self._mixed = [], None
