"""What an object that is written into a file of weights, or read from one, holds."""

from __future__ import annotations

import functools
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

DEEPEST = 3
OF_SCHEDULERS = frozenset({"base_lrs", "_step_count", "num_bad_epochs"})  # beside last_epoch, which loops count, too
PROGRESS = ("epoch", "step", "iter")  # what the keys of a file to go on from are called
MAX_SAVES = 20  # that are looked at; of later ones those whose number among files of their kind is a power of two
MAX_KINDS = 20


class Saves:
    """Which of the files that a program writes are looked at.

    The best weights may be written at every epoch, and what a training goes on from once, at the end.
    """

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()  # by kind of file: names that differ in a number are of one

    def due(self, name: str) -> bool:
        """Whether to look at the file of this name that is written now."""
        kind = re.sub(r"\d+", "#", name)
        kind = kind if kind in self._numbers or len(self._numbers) < MAX_KINDS else ""
        self._numbers[kind] += 1
        number = self._numbers[kind]
        return self._numbers.total() <= MAX_SAVES or not number & (number - 1)


class File:
    """What an object that is written or read holds. Objects of the program's own kinds are not asked what they hold."""

    def __init__(self, torch: Any, content: Any) -> None:
        self.tensors: dict[str, list[Any]] = {}  # by name: two models in one file may use the same names
        self.optimizer = self.scheduler = self.scaler = False
        self.moments = False  # whether the state of each optimizer holds more than settings
        self.groups: list[Any] = []  # of the first optimizer's state
        self.unnamed = False  # some of its tensors have no name: they stand in a list
        keys = [key for key in content if type(key) is str] if is_mapping(content) else []
        self.keys = " ".join(sorted(keys)[:12]) if len(keys) <= 12 else ""
        weights_alone = all(
            issubclass(type(content[key]), torch.Tensor) for key in keys
        )  # with one number of a module's
        self.progress = not weights_alone and any(
            word in key.lower() for key in keys[:64] if _may_count(torch, content[key]) for word in PROGRESS
        )
        for holder in _holders(torch, content, DEEPEST):
            if issubclass(type(holder), torch.nn.Module):
                self._add(holder.named_parameters())
                self._add(holder.named_buffers())
            elif {"state", "param_groups"} <= holder.keys():
                held = is_mapping(holder["state"]) and bool(len(holder["state"]))
                self.moments = held and (self.moments or not self.optimizer)
                self.optimizer = True
                self.groups = self.groups or _plain(holder["param_groups"])
            elif "_last_lr" in holder or ("last_epoch" in holder and not OF_SCHEDULERS.isdisjoint(holder)):
                self.scheduler = True
            elif {"scale", "growth_factor"} <= holder.keys():
                self.scaler = True
            else:
                lists = [one for one in holder.values() if type(one) in (list, tuple)]
                self.unnamed |= any(issubclass(type(one), torch.Tensor) for some in lists for one in some[:4])
                self._add(
                    (name, value)
                    for name, value in holder.items()
                    if type(name) is str and issubclass(type(value), torch.Tensor)
                )

    def _add(self, named: Iterable[tuple[str, Any]]) -> None:
        for name, tensor in named:
            self.tensors.setdefault(name, []).append(tensor)

    def all_tensors(self) -> list[Any]:
        return [one for ones in self.tensors.values() for one in ones]

    @functools.cached_property
    def by_names(self) -> dict[str, list[Any]]:
        """Its tensors by what they are called without wrappers, and by the ends of that: "encoder.0.bias", "0.bias"."""
        whole: dict[str, list[Any]] = {}
        ends: dict[str, list[Any]] = {}
        for name, ones in self.tensors.items():
            whole.setdefault(unwrapped(name), []).extend(ones)
            _, *inner = unwrapped(name).split(".")
            for first in range(len(inner)):
                ends.setdefault(".".join(inner[first:]), []).extend(ones)
        return ends | whole


def _may_count(torch: Any, value: Any) -> bool:
    """Whether it may be a number of epochs or steps: no weight of a module that is called `step` or `criterion`."""
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        return not value.dim()
    return not is_mapping(value) and not issubclass(kind, torch.nn.Module)


def _plain(groups: Any) -> list[Any]:
    return groups if type(groups) is list and all(type(one) is dict for one in groups) else []


def unwrapped(name: str) -> str:
    """The name of a tensor without what wrappers of the model put in front."""
    return name.removeprefix("module.").removeprefix("_orig_mod.")


def is_mapping(content: Any) -> bool:
    """Whether it is a dictionary that nothing but Python answers for."""
    return type(content) in (dict, OrderedDict, defaultdict)


def _holders(torch: Any, content: Any, depth: int) -> Iterator[Any]:
    """Mappings and modules within an object; not those within an optimizer's state."""
    if is_mapping(content):
        yield content
        if {"state", "param_groups"} <= content.keys():
            return
        inner = list(content.values())[:4096]
    elif type(content) in (list, tuple):
        inner = list(content[:64])
    elif issubclass(type(content), torch.nn.Module):
        yield content
        return
    else:
        return
    if depth:
        for one in inner:
            yield from _holders(torch, one, depth - 1)


def of_adapted_models(modules: Iterable[tuple[Any, Any]]) -> set[int]:
    """Identities of the parameters beside the adapters of PEFT's models: those of the model that they were put on.

    Its files hold adapters, and copies of modules that its configuration names; not these.
    """
    found: set[int] = set()
    for _, module in modules:
        for part in module.modules():
            kind, prefix = type(part), getattr(getattr(part, "base_model", None), "prefix", None)
            if kind.__module__.startswith("peft.") and kind.__name__.startswith("Peft") and type(prefix) is str:
                own = part.named_parameters()
                found |= {id(p) for name, p in own if prefix not in name and "modules_to_save" not in name}
    return found
