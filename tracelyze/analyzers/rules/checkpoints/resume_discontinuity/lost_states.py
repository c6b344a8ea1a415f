"""States that were not restored, and the sentences that say how this was seen and what to do."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class How(NamedTuple):
    """How it was seen that states were not restored, and what to do; both may name what stands in `findings._words`."""

    said: str
    fix: str = "Save the state of the optimizer along with the weights, and restore both."


class Lost(NamedTuple):
    """States that were not restored, and how that was seen."""

    names: list[str]
    how: How
    severity: Any = "warning"

    @property
    def shown(self) -> str:
        """The names as a sentence has them."""
        return " and ".join(self.names)


IN_FILE: Final = How(
    "{file} holds the state of the {names}, but it was not restored before the next step.",
    "Restore the state of the {names} as well, right where the weights are restored.",
)
HALF_IN_FILE: Final = How(
    "{file} holds the state of the scheduler, which was not restored before the next step, and no optimizer state.",
    "Save the state of the optimizer as well, and restore both.",
)
NOT_IN_FILE: Final = How("{file} records how far training got, but holds no optimizer state.")
NEITHER_IN_FILE: Final = How(
    "{file} records how far training got, but holds neither optimizer nor scheduler state.",
    "Save the states of the optimizer and the scheduler along with the weights, and restore all of them.",
)
RENEWED: Final = How(
    "An optimizer restored its state from {file}, but then another one was made, which steps in its place with no "
    "state at all.",
    "Make the optimizer first, then restore its state, and do not make another one after that.",
)
ANEW: Final = How(
    "{file} holds no scheduler state. {anew} starts at its first step, while the optimizer state comes from the middle "
    "of a schedule: its learning rate is {restored}, its initial one was {initial}.",
    "Save the state of the scheduler along with that of the optimizer, and restore both.",
)
RATES: Final = How(
    "After resuming, the learning rate repeats that of the first steps of training, although the optimizer was "
    "restored with a rate of {restored}: epochs, or steps, are counted from zero again.",
    "Restore the epoch or step number that the learning rate is computed from.",
)
UNREAD: Final = How(
    "{file} holds {unread}, which the script writes but never reads back.",
    "Restore {unread} from the file as well.",
)
BARE: Final = How(
    "{file} holds only weights. They were loaded, trained with a newly made optimizer, and written to the same file "
    "again."
)
