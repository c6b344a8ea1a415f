"""Which optimizers and models belong together, so that a process may train several things, in turn or side by side.

An optimizer belongs to the models that hold its parameters. Two optimizers are one training if they share a model, or
if one backward ran through models of both (a generator's loss runs through the critic). That two belong together may
turn out late, when both have made steps. So each merge is a row of the table links, and the reader of a run puts the
steps together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tracelyze.collectors.cadence.usual_losses import UsualLosses
from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.program.call import Call
from tracelyze.collectors.program.optimizers import Optimizers, Tracked
from tracelyze.collectors.program.progress import Progress

MAX_CHECKS = 3  # scans of a model for an optimizer's parameters: layers may be unfrozen or added later
MAX_LOSSES = 16  # kinds of losses of one training
MAX_SETS = 256  # different sets of models that one backward reached
NEW_FOR = 64  # steps in which each optimizer that steps is searched for a new set of models


class Training:
    """Optimizers (by index) and models (by number) of one training, with what signals keep about it."""

    def __init__(self) -> None:
        self.optimizers: set[int] = set()
        self.models: set[int] = set()
        self.latest: Call | None = None  # the call that its last backward reached first
        self.by_hand: Tracked | None = None  # what stepped first of all in the process, without an optimizer
        self._losses: dict[frozenset[int], UsualLosses] = {}  # by the models that their backwards run through

    def losses(self, reached: frozenset[int]) -> UsualLosses:
        """The usual losses of backwards through these models: a generator's losses are kept apart from the critic's."""
        kind = reached if reached in self._losses or len(self._losses) < MAX_LOSSES else frozenset()
        return self._losses.setdefault(kind, UsualLosses())


class Holders:
    """Which optimizer holds parameters of which model. `module_of` is the module of a model's number, None if it is
    gone."""

    def __init__(self, module_of: Callable[[int], Any]) -> None:
        self._module_of = module_of
        self._latest: dict[int, int] = {}  # by number of the model: the optimizer that took it up last
        self._held: dict[int, set[int]] = {}  # by number of the optimizer: models of which it holds parameters
        self._checked: Counter[tuple[int, int]] = Counter()

    def latest(self, model: int) -> int | None:
        """The optimizer that took up this model last."""
        return self._latest.get(model)

    def held_by(self, optimizer: int) -> set[int]:
        """The models of which this optimizer holds parameters."""
        return self._held.get(optimizer, set())

    def unchecked(self, optimizer: int, models: frozenset[int]) -> frozenset[int]:
        """The models among these that have not been searched MAX_CHECKS times for the optimizer's parameters."""
        return frozenset(number for number in models if self._checked[optimizer, number] < MAX_CHECKS)

    def find(self, tracked: Tracked, models: frozenset[int]) -> Iterator[tuple[int, bool]]:
        """The models that hold parameters of this optimizer, and whether each is new to it. Scans all parameters."""
        index = tracked.index
        self._checked.update((index, number) for number in models)
        held = {id(parameter) for parameter in tracked.parameters()}
        for number in models:
            module = self._module_of(number)
            if module is not None and any(id(parameter) in held for parameter in module.parameters()):
                new = self._latest.get(number) != index
                self._latest[number] = index
                self._held.setdefault(index, set()).add(number)
                yield number, new


class Clipped:
    """Whose gradients are being clipped."""

    def __init__(self) -> None:
        self.training: Training | None = None  # where there are several
        self.first = 0  # id of the first parameter
        self.looks = 0  # clips of which all parameters are still to be noted
        self.parameters: frozenset[int] = frozenset()  # ids of those noted since a loss was scaled

    def note(self, parameters: Any) -> None:
        """Note the parameters of a clip: what torch takes, one tensor or several that can be read again."""
        self.looks -= 1
        several = isinstance(parameters, (list, tuple))
        self.parameters |= frozenset(map(id, parameters if several else (parameters,)))


class Trainings:
    """The trainings of one recording. `module_of` is the module of a model's number, None if it is gone."""

    def __init__(
        self,
        progress: Progress,
        now: Callable[[], float],
        emit: Callable[[str, dict[str, Any]], None],
        optimizers: Optimizers,
        module_of: Callable[[int], Any],
    ) -> None:
        self.several = False  # more than one training so far
        self.current: Training | None = None  # the training to which the latest backward belongs
        self.reached_models: frozenset[int] = frozenset()  # numbers of the models that the latest backward ran through
        self.clipped = Clipped()
        self._progress, self._now, self._emit = progress, now, emit
        self._optimizers = optimizers
        self._holders = Holders(module_of)
        self._of_optimizer: dict[int, Training] = {}
        self._of_model: dict[int, Training] = {}
        self._seen: dict[frozenset[int], None] = {}  # sets of models that one backward reached, the oldest first
        self._new: list[tuple[int, frozenset[int]]] = []
        self._last_reached: tuple[int, ...] = ()
        self._identities: ByIdentity[tuple[int, set[int]]] = ByIdentity()

    def backward_ended(self, calls: list[Call]) -> None:
        """A backward ran through these calls, the last one first."""
        numbers = (calls[0].model.number,) if len(calls) == 1 else tuple([call.model.number for call in calls])
        if numbers != self._last_reached:
            self._last_reached, self.reached_models = numbers, frozenset(numbers)
            self._note_models(self.reached_models)
        self.current = training = self.of_models(self.reached_models)
        if training is not None and calls:
            training.latest = calls[0]

    def _note_models(self, models: frozenset[int]) -> None:
        """Note a set of models that one backward ran through, if it is new, and join their trainings."""
        if models and models not in self._seen:
            self._seen[models] = None
            if len(self._seen) > MAX_SETS:
                del self._seen[next(iter(self._seen))]
            self._new.append((self._progress.steps, models))
            self._join_models(models)

    def of_models(self, numbers: frozenset[int]) -> Training | None:
        """The training that holds one of these models; None if none does, or not yet."""
        for number in numbers:
            training = self._of_model.get(number)
            if training is not None:
                return training
        return None

    def of(self, tracked: Tracked) -> Training:
        """The training of an optimizer that steps."""
        training = self._of_optimizer.get(tracked.index)
        if training is not None and not self._new:
            return training
        if training is None:
            first_of_all = not self._of_optimizer
            training = self._of_optimizer[tracked.index] = Training()
            training.by_hand = tracked if tracked.by_hand and first_of_all else None
            training.optimizers.add(tracked.index)
            self._take_up(tracked, frozenset().union(*self._seen))
        else:
            self._new = [(step, found) for step, found in self._new if step + NEW_FOR > self._progress.steps]
            self._take_up(tracked, frozenset().union(*(found for _, found in self._new)) - training.models)
        training = self._of_optimizer[tracked.index]
        self.several = self.several or len(training.optimizers) < len(self._of_optimizer)
        return training

    def counted(self) -> tuple[int, int]:
        """How many trainings there were so far, and how many optimizers stepped in them.

        A single change of the weights before an optimizer's first step was no training (`without_a_lone_change`).
        """
        first = next((one.by_hand for one in self._of_optimizer.values() if one.by_hand is not None), None)
        lone = first.index if first is not None and first.count == 1 and len(self._of_optimizer) > 1 else None
        counted = {index: training for index, training in self._of_optimizer.items() if index != lone}
        return len({id(training) for training in counted.values()}), len(counted)

    def holder(self, model: int) -> int | None:
        """The optimizer that holds parameters of this model; None if none that has stepped does."""
        return self._holders.latest(model)

    def models_of(self, optimizer: int) -> set[int]:
        """The models of which this optimizer holds parameters, by their numbers."""
        return self._holders.held_by(optimizer)

    def of_parameter(self, parameter: Any) -> Training | None:
        """The training whose optimizer holds this parameter."""
        for tracked in self._optimizers.tracked():
            known = self._identities.get(tracked.optimizer)
            parameters = tracked.parameters()
            if known is None or known[0] != len(parameters):
                known = self._identities[tracked.optimizer] = (len(parameters), {id(one) for one in parameters})
            if id(parameter) in known[1]:
                return self._of_optimizer.get(tracked.index)
        return None

    def _take_up(self, tracked: Tracked, models: frozenset[int]) -> None:
        """Join this optimizer's training with those of the models that hold its parameters.

        That takes a scan of their parameters, at most MAX_CHECKS times for each optimizer and model.
        """
        models = self._holders.unchecked(tracked.index, models)
        if not models:
            return
        for number, new in self._holders.find(tracked, models):
            if new:
                self._link(tracked.index, model=number)
            self._join(self._of_optimizer[tracked.index], self._of_model.get(number))
            training = self._of_optimizer[tracked.index]
            training.models.add(number)
            self._of_model[number] = training
        for found in self._seen:
            if not found.isdisjoint(models):
                self._join_models(found)

    def _join_models(self, models: frozenset[int]) -> None:
        """Join the trainings of models that one backward ran through."""
        first: Training | None = None
        for number in models:
            training = self._of_model.get(number)
            if training is not None:
                first = first or training
                self._join(first, training)

    def _join(self, one: Training, other: Training | None) -> None:
        if other is None or one is other:
            return
        # One link for each pair that still steps: the reader decides for each whether the two took turns.
        active = {tracked.index for tracked in self._optimizers.active()}
        for index in active & other.optimizers:
            for known in active & one.optimizers:
                self._link(known, other=index)
        one.optimizers |= other.optimizers
        one.models |= other.models
        one.latest = one.latest or other.latest
        one.by_hand = one.by_hand or other.by_hand
        for index in other.optimizers:
            self._of_optimizer[index] = one
        for number in other.models:
            self._of_model[number] = one

    def _link(self, optimizer: int, **to: int) -> None:
        self._emit("links", {"time": self._now(), "step": self._progress.steps, "optimizer": optimizer, **to})
