"""A few numbers of the weights that are evaluated, beside the same ones of the model that trains, from time to time."""

from __future__ import annotations

import math
from typing import Any

from tracelyze.collectors.program.models import Model
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import every_nth, is_plain

RARE = 5  # steps between two calls: who is called more often is a teacher, a target network or a former policy
GROWTH = 16  # samples while the number of steps doubles, nearly: the next one is a sixteenth of the steps later
TENSORS, ELEMENTS = 8, 64  # of a model that are compared
MOST = 8  # models that are known as trained, and as copies


class Pace:
    """Which calls of an evaluated model are sampled: one between two steps, of calls that are rare, ever fewer."""

    def __init__(self) -> None:
        self._called: dict[int, int] = {}  # steps that were done when a model was called last, by its number
        self._next: dict[int, int] = {}

    def is_done(self, number: int, steps: int) -> bool:
        """Whether a model was called since the last step already."""
        return steps == self._called.get(number)

    def is_due(self, model: Model, steps: int) -> bool:
        """Whether this call is sampled: the first one of a model after a step."""
        number = model.number
        before = max([self._called.get(number, -math.inf), *model.skipped.values()])
        self._called[number] = steps
        if not steps or steps - before < RARE or steps < self._next.get(number, 0):
            return False
        self._next[number] = steps + steps // GROWTH
        return True


class Sampled:
    """What was sampled of them. The tensors are small ones of our own."""

    def __init__(self, first: list[Any], first_of_model: list[Any]) -> None:
        self.first, self.first_of_model = first, first_of_model
        self.before = first

    def compared(self, torch: Any, now: list[Any], model: list[Any]) -> Readback | None:
        """How far both have moved, and how far they are apart; None where the weights are no longer those that they
        were. Under no_grad."""
        if len(now) != len(self.first) or len(model) != len(self.first_of_model):
            return None
        values = {
            "changed": torch.stack([(a != b).any() for a, b in zip(now, self.before, strict=True)]).double().mean(),
            "moved": _distance(torch, now, self.first),
            "of_moved": _distance(torch, model, self.first_of_model),
            "apart": _distance(torch, now, model),
        }
        self.before = now
        return Readback.of_columns(torch, values)


def some(torch: Any, parameters: list[Any]) -> list[Any]:
    """A few of these parameters that numbers can be read of, on one device; none where they are on several."""
    plain = [one for one in parameters if is_plain(torch, one) and one.numel()]
    chosen = plain[:: max(1, len(plain) // TENSORS)][:TENSORS]
    return chosen if len({one.device for one in chosen}) == 1 else []


def numbers(parameters: list[Any]) -> list[Any]:
    """A few numbers of each, as they are now. Under no_grad."""
    return [every_nth(one, ELEMENTS).clone() for one in parameters]


def _distance(torch: Any, these: list[Any], those: list[Any]) -> Any:
    squares = [(a.double() - b.double()).square().sum() for a, b in zip(these, those, strict=True)]
    return torch.stack(squares).sum().sqrt()
