"""Optimizers around others, as Lookahead and SAM are: the step of the inner one leaves a row, that of the outer none.

Both hold the same parameters and call themselves optimizers of torch, so that one update would count as two steps, of
two optimizers that seem to use each other's gradients. Which of them steps within the other is known when the first
step of the outer one has ended; until then its beginning waits.
"""

from __future__ import annotations

import weakref
from typing import Any

from tracelyze.collectors.program.optimizers import constructed, wrapping


class WrappedSteps:
    """The steps of outer optimizers that have begun, and in which nothing else may have stepped."""

    def __init__(self) -> None:
        self._waiting: list[tuple[weakref.ref[Any], set[int]]] = []  # with the parameters that stepped within

    def begins(self, optimizer: Any, known: bool) -> bool:
        """Whether nothing is to be told of this step as it begins. `known`: it has made steps of its own."""
        if optimizer in wrapping:
            return True
        if known or inner(optimizer) is None:
            return False
        self._waiting = [one for one in self._waiting if one[0]() is not optimizer]  # else a step that raised
        self._waiting.append((weakref.ref(optimizer), set()))
        return True

    def ends(self, optimizer: Any) -> bool:
        """Whether this step leaves no row, since another one has in its place."""
        if any(outer() is optimizer and held(optimizer) <= stepped for outer, stepped in self._waiting):
            wrapping.add(optimizer)
            self.waited(optimizer)
        return optimizer in wrapping

    def waited(self, optimizer: Any) -> bool:
        """Whether the beginning of this step is still to be told, now that it ends."""
        before = len(self._waiting)
        self._waiting = [one for one in self._waiting if one[0]() is not optimizer]
        return len(self._waiting) < before

    def stepped(self, optimizer: Any) -> None:
        """This one has made a step of its own, within those that wait."""
        for _, stepped in self._waiting:
            stepped |= held(optimizer)


def inner(optimizer: Any) -> Any:
    """The optimizer that this one has as an attribute and that holds all of its parameters; None without one."""
    attributes = getattr(optimizer, "__dict__", None) or {}
    for value in list(attributes.values()):
        if value is not optimizer and value in constructed and held(optimizer) <= held(value):
            return value
    return None


def held(optimizer: Any) -> set[int]:
    """Identities of the parameters of an optimizer."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
