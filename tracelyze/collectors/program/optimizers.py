"""Optimizers that stepped, and what is known of each."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.internals.by_identity import ByIdentity, SetByIdentity
from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines import construction, definitions
from tracelyze.collectors.program.manual_updates import ManualOptimizer
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.tensors import shards

FIRST_GAP = 16  # steps of other optimizers that may lie between the first two of one
NAMED = 4  # tensors that two optimizers hold
MOST_GROUPS = 64  # of an optimizer whose options are written down
REFRESH_EVERY = 32  # steps after which a changed requires_grad is noticed

constructed: SetByIdentity = SetByIdentity()  # all optimizers of this process, also those that never step
wrapping: SetByIdentity = SetByIdentity()  # those whose step calls that of another one with the same parameters
made_with: ByIdentity[tuple[float, ...]] = ByIdentity()  # rates of their groups


class InsideBackward:
    """Stands in for optimizers that step while backward runs, usually one per parameter, from hooks on the gradients.

    Lives as long as one of them does: the recorder finds it through them, and holds none of them.
    """

    def __init__(self) -> None:
        self.name = ""
        self.members: set[int] = set()  # identities
        self._optimizers: list[weakref.ref[Any]] = []
        self._groups: list[dict[str, Any]] = []
        self._shown = 0

    def add(self, optimizer: Any) -> None:
        """One more optimizer that stepped in this backward."""
        self.name = f"{type(optimizer).__name__} inside backward"
        self.members.add(id(optimizer))
        self._optimizers.append(weakref.ref(optimizer))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """One group with the parameters of all, and the options of the first."""
        if self._shown != len(self._optimizers):
            self._shown = len(self._optimizers)
            living = [optimizer for ref in self._optimizers if (optimizer := ref()) is not None]
            parameters = [p for optimizer in living for group in optimizer.param_groups for p in group["params"]]
            self._groups = [{**living[0].param_groups[0], "params": parameters}] if living else []
        first = self._optimizers[0]()
        if self._groups and first is not None:
            self._groups[0] |= {**first.param_groups[0], "params": self._groups[0]["params"]}
        return self._groups


class Tracked:
    """One optimizer. It must not outlive the optimizer: it holds the optimizer's parameters."""

    def __init__(self, optimizer: Any, index: int) -> None:
        self.reference = weakref.ref(optimizer)
        self.index = index
        self.count = 0
        self.inside_backward = isinstance(optimizer, InsideBackward)  # its gradients are gone when backward ends
        self.by_hand = isinstance(optimizer, ManualOptimizer)  # which holds parameters weakly, and so must this
        self.training: Any = None  # its training (trainings.Training), from its first step on
        self.at_step = 0  # number of steps of the process when it stepped last
        self.gap = FIRST_GAP  # steps of the process between its last two
        self._turn = 1  # the fewest from one of its steps to the next, the last two times
        self.on_cuda = False
        self.sharded = False  # holds DTensors
        self._parameters: list[Any] = []
        self._held = -1  # parameters in its groups when `_parameters` was made
        self._refreshed = -REFRESH_EVERY  # `count` then

    @property
    def optimizer(self) -> Any:
        """The torch optimizer, None once it is gone."""
        return self.reference()

    def has_stepped(self, steps: int) -> None:
        """The optimizer made one more step, the one of the process with the number `steps`."""
        self.count += 1
        if self.at_step:
            before, self.gap = self.gap, steps - self.at_step
            self._turn = min(before if self.count > 2 else 1, self.gap)
        self.at_step = steps

    def steps_before(self, own: int, steps: int) -> int:
        """How many steps of the process will end before the one of its steps that follows `own` more of them, if turns
        stay as they are. The process has made `steps` steps."""
        return max(own, self.at_step - steps + (own + 1) * self._turn - 1)

    def steps_early(self, steps: int) -> bool:
        """Whether it is about to step earlier than in its last two turns. The process has made `steps` steps."""
        return 0 < self.at_step <= steps and steps + 1 - self.at_step < self._turn

    def is_active(self, steps: int) -> bool:
        """Whether it is likely to step again. The process has made `steps` steps."""
        return self.count > 0 and steps - self.at_step <= FIRST_GAP + 4 * self.gap

    def parameters(self) -> list[Any]:
        """The trainable tensors it holds. Groups may be added while it trains, layers unfrozen."""
        optimizer = self.reference()
        if optimizer is None:
            return []
        if self.by_hand:
            return self._trainable(optimizer)
        held = sum([len(group["params"]) for group in optimizer.param_groups])
        if held != self._held or self.count - self._refreshed >= REFRESH_EVERY:
            self._held, self._refreshed = held, self.count
            self._parameters = self._trainable(optimizer)
        return self._parameters

    def _trainable(self, optimizer: Any) -> list[Any]:
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self.on_cuda = bool(parameters) and bool(parameters[0].is_cuda)
        self.sharded = any(shards.is_sharded(parameter) for parameter in parameters)
        return parameters


class Optimizers:
    """The optimizers that stepped, numbered in the order of their first steps and held weakly.

    `changed` is called when an optimizer steps that has not done so before, or not for long. `name_of` knows the names
    of parameters in the models that were called.
    """

    def __init__(self, progress: Progress, sites: Sites, emit: Callable[[str, dict[str, Any]], None]) -> None:
        self.changed: Callable[[], None] = _nothing
        self.name_of: Callable[[Any], str | None] = _no_name
        self._progress, self._sites, self._emit = progress, sites, emit
        self._known: ByIdentity[Tracked] = ByIdentity()
        self._count = 0
        self._latest: Callable[[], Tracked | None] = lambda: None  # a weak reference to the one that was asked for last
        self._living: list[weakref.ref[Tracked]] = []
        self._inside: ByIdentity[InsideBackward] = ByIdentity()
        self.inside_now: InsideBackward | None = None  # the optimizer that has stepped inside the backward that runs

    def track(self, optimizer: Any) -> Tracked:
        """The record of this optimizer; a new one, with its row in the table optimizers, if it was not seen before."""
        tracked = self._latest()
        if tracked is not None and tracked.reference() is optimizer:
            return tracked
        tracked = self._known.get(optimizer)
        takes_turns = tracked is not None and tracked.is_active(self._progress.steps)
        if tracked is None:
            tracked = self._known[optimizer] = Tracked(optimizer, self._count)
            self._living = [ref for ref in self._living if ref() is not None] + [weakref.ref(tracked)]
            self._count += 1
            sites = {"site": self._sites.here("step"), "backward_site": self._progress.backward_site}
            sites["made_at"] = construction.optimizers.site_of(optimizer, "optimizer", self._sites)
            sites["step_defined_at"] = definitions.method(optimizer, "step", "optimizer-step", self._sites)
            self._emit("optimizers", describe(tracked) | sites | shared(tracked, self.active(), self.name_of))
        self._latest = weakref.ref(tracked)
        if not takes_turns:
            self.changed()
        return tracked

    def knows(self, optimizer: Any) -> bool:
        """Whether it has stepped."""
        return optimizer in self._known

    @property
    def latest(self) -> Tracked | None:
        """The one that stepped last, if it lives."""
        return self._latest()

    def tracked(self) -> list[Tracked]:
        """All that stepped and still live."""
        return [one for ref in self._living if (one := ref()) is not None and one.optimizer is not None]

    def active(self) -> list[Tracked]:
        """The optimizers that still step: those of trainings that are over need not be watched."""
        steps = self._progress.steps
        return [one for one in self.tracked() if one.is_active(steps)]

    @property
    def several(self) -> bool:
        """Whether more than one may still step."""
        return len(self._living) > 1

    def stepped(self, tracked: weakref.ref[Tracked]) -> None:
        """This one made a step, which was skipped (recording/fast_path)."""
        self._latest = tracked

    def step_inside(self, optimizer: Any) -> None:
        """A hook on a gradient makes an optimizer step while backward runs: all that do are one and step at its end."""
        inside = self.inside_now
        if inside is not None and id(optimizer) in inside.members:
            return
        known = self._inside.get(optimizer)
        if known is None:
            known = self._inside[optimizer] = inside or InsideBackward()
            known.add(optimizer)
        self.inside_now = inside or known


def _nothing() -> None:
    """In the place of `changed` until the recorder sets it."""


def _no_name(_parameter: Any) -> None:
    """In the place of `name_of` until the recorder sets it."""


def shared(tracked: Tracked, others: list[Tracked], name_of: Callable[[Any], str | None]) -> dict[str, Any]:
    """Columns of the table optimizers: which of the others that step now holds most of its tensors, how many, and how
    the first of them are called."""
    held = {id(parameter) for parameter in tracked.parameters()}
    both = [([p for p in one.parameters() if id(p) in held], one.index) for one in others if one is not tracked]
    common, index = max(both, key=lambda pair: (len(pair[0]), pair[1]), default=([], 0))
    if not common:
        return {}
    names = [name for parameter in common[:NAMED] if (name := name_of(parameter))]
    return {"shares": len(common), "shares_with": index, "shared_names": ", ".join(names) or None}


def describe(tracked: Tracked) -> dict[str, Any]:
    """The row of an optimizer in the table optimizers."""
    optimizer = tracked.optimizer
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    stands_in = isinstance(optimizer, (InsideBackward, ManualOptimizer))
    first = optimizer.param_groups[0] if optimizer.param_groups else {}
    options = _options(first)
    others = [
        {name: value for name, value in _options(group).items() if options.get(name) != value}
        for group in optimizer.param_groups[1:MOST_GROUPS]
    ]
    empty = [at for at, group in enumerate(optimizer.param_groups) if not group["params"]]
    return {
        "optimizer": tracked.index,
        "name": optimizer.name if stands_in else type(optimizer).__name__,
        "groups": len(optimizer.param_groups),
        "parameters": len(parameters),
        "elements": sum(p.numel() for p in parameters),
        "device": str(parameters[0].device) if parameters else None,
        "dtype": ", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
        "options": json.dumps(options, default=str),
        "other_options": json.dumps(others, default=str) if any(others) else None,
        "empty_groups": json.dumps(empty) if empty else None,
    }


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in group.items() if k != "params" and isinstance(v, (bool, int, float, str, tuple, list))}


def rates(optimizer: Any) -> tuple[float, ...] | None:
    """The rate of each of its groups; None where one is a tensor, which might have to be waited for."""
    found = [group.get("lr") for group in optimizer.param_groups]
    return tuple(map(float, found)) if all(type(one) in (int, float) for one in found) else None
