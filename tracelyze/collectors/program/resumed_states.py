"""What becomes of states that a training takes in from a file: who steps first after it, and where its schedule is."""

from __future__ import annotations

import weakref
from typing import Any

from tracelyze.collectors.internals.by_identity import SetByIdentity
from tracelyze.collectors.program.optimizers import Tracked, constructed

SOME = 64  # parameters by which a model, or what an optimizer holds, is recognised
KEEPS_NO_PLACE = "ReduceLROnPlateau"  # what it watches, and no schedule, decides on its rate
SETS_THE_RATE = ("LambdaLR", "OneCycleLR", "CyclicLR")  # when it is made, whatever rate the optimizer has


class Given:
    """Parameters that took in weights by name since the last step, after a file was read."""

    def __init__(self) -> None:
        self._parameters = SetByIdentity()

    def add(self, module: Any, missing: Any) -> None:
        """A load into this module is over. `missing`: names that the load did not find; None where the module's own
        `load_state_dict` does not say."""
        left = set(missing or ())
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if name not in left:
                self._parameters.add(parameter)

    def fresh(self, groups: list[Any]) -> int:
        """How many of the parameters that an optimizer trains took in nothing: those of a new head, say."""
        trained = [parameter for group in groups for parameter in group["params"] if parameter.requires_grad]
        return sum([parameter not in self._parameters for parameter in trained])


class Resumed:
    """States that are taken in after one file was read, up to the first step. Holds none of the program's objects."""

    def __init__(self, groups: list[Any], moments: bool = False) -> None:
        self.moments = moments  # whether the optimizers' states in the file hold more than settings
        self.file_rate = _base_rate(groups)  # in the optimizer's state in the file
        self.file_groups = [len(group.get("params", ())) for group in groups]
        self._took = False
        self._restored = SetByIdentity()
        self._there_before = SetByIdentity()  # optimizers that existed when one of them took in its state
        self._parameters: list[weakref.ref[Any]] = []  # of the optimizers that took in a state
        self._model: list[weakref.ref[Any]] = []  # of the models that took in weights
        self._rates: tuple[float | None, float | None] = (None, None)

    def take(self, optimizer: Any) -> None:
        """An optimizer took in a state."""
        groups = optimizer.param_groups
        self._took = True
        self._restored.add(optimizer)
        for one in list(constructed):
            self._there_before.add(one)
        self._parameters += [weakref.ref(p) for group in groups for p in group["params"]][:SOME]
        if groups:
            self._rates = _number(groups[0].get("lr")), _number(groups[0].get("initial_lr"))

    def load(self, module: Any) -> None:
        """A model took in weights of the file."""
        self._model += [weakref.ref(p) for p in module.parameters() if p.requires_grad][:SOME]

    def facts(self, tracked: Tracked, schedulers: list[Any], given: Given) -> dict[str, Any]:
        """What is to be said at the first step after: `tracked` made it."""
        optimizer = tracked.optimizer
        if optimizer is None:
            return {}
        groups = optimizer.param_groups
        held = {id(p) for group in groups for p in group["params"]}
        rate = _base_rate(groups)
        found: dict[str, Any] = {"optimizer": tracked.index, "file_rate": self.file_rate, "rate": rate}
        found["steps"] = tracked.count
        found["same_model"] = any(id(ref()) in held for ref in self._model)
        found["groups"], found["file_groups"] = [len(group["params"]) for group in groups], self.file_groups
        found["parameters"], found["file_parameters"] = sum(found["groups"]), sum(self.file_groups)
        found["fresh"] = given.fresh(groups)
        if not self._took or optimizer not in constructed:
            return found
        if optimizer not in self._there_before:
            found["renewed"] = any(id(ref()) in held for ref in self._parameters)
        elif optimizer in self._restored:
            found["restored_lr"], found["initial_lr"] = self._rates
            its_own = [one for one in schedulers if _steers(one) is optimizer]
            # One that other schedulers consist of may wait for its turn: none of them has made a step.
            anew = bool(its_own) and all(self._begins_anew(one, groups[0]) for one in its_own)
            found["anew"] = type(its_own[-1]).__name__ if anew else None
        return found

    def _begins_anew(self, scheduler: Any, group: dict[str, Any]) -> bool:
        """Whether a schedule starts at its first step, while the state that was restored is of one under way.

        A rate that is neither the restored one nor the schedule's first was set by hand: a second phase.
        """
        lr, initial = self._rates
        kinds = [kind.__name__ for kind in type(scheduler).__mro__]
        if lr is None or initial is None or lr == initial or KEEPS_NO_PLACE in kinds:
            return False
        bases = getattr(scheduler, "base_lrs", None)
        if type(bases) is list and bases and _number(bases[0]) not in (initial, None):
            return False  # made for another rate than the one under way
        sets_it = any(kind in kinds for kind in SETS_THE_RATE)
        return getattr(scheduler, "last_epoch", None) == 0 and (sets_it or group.get("lr") in (lr, initial, 0.0))


def _steers(scheduler: Any) -> Any:
    return getattr(scheduler, "optimizer", None)


def _base_rate(groups: list[Any]) -> float | None:
    first = groups[0] if groups else {}
    return _number(first.get("initial_lr", first.get("lr"))) if type(first) is dict else None


def _number(rate: Any) -> float | None:
    """A rate as a number; None for one that is a tensor, which might have to be waited for."""
    return float(rate) if type(rate) in (int, float) else None
