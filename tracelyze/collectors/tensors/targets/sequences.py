"""What a loss over classes is to name: the targets, and, in sequences, the ids that the model was given beside them."""

from __future__ import annotations

from typing import Any, NamedTuple

IGNORED = -100  # the class that torch's losses ignore, unless they are told another one


class Targets(NamedTuple):
    """The classes that a loss over classes is to name."""

    classes: Any
    ignored: int = IGNORED
    """The class that does not count."""
    weight: Any = None
    """The weight of each class, if the loss is given weights."""


class Sequences(NamedTuple):
    """Rows of ids, and what the model is to name at each of them, both of shape [rows, length]."""

    ids: Any
    target: Any
    ignored: int = IGNORED
    weight: Any = None

    def first(self, rows: int, length: int) -> Sequences:
        """The first positions of the first rows."""
        return self._replace(ids=self.ids[:rows, :length], target=self.target[:rows, :length])

    def turned(self) -> Sequences:
        """With time and rows exchanged: the dimension of time may come before that of the batch."""
        return self._replace(ids=self.ids.T, target=self.target.T)

    def counts(self) -> Any:
        """Whether the target of each position counts, shape [rows, length]."""
        return self.target != self.ignored
