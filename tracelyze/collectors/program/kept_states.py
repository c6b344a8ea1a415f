"""States that modules handed out and the program keeps: whether what it uses later has been trained on meanwhile.

The tensors of `state_dict()` share the memory of the parameters, and the counter of their changes.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

MOST = 64  # states that are remembered
SOME = 8  # tensors of a state that are looked at


class Taken(NamedTuple):
    """When a module handed out its weights, and to which line of the script."""

    taken_at: int
    taken_site: int | None


class _Kept:
    """One state that was handed out. Holds nothing of it."""

    def __init__(self, torch: Any, module: Any, state: Any, taken: Taken) -> None:
        self.state = weakref.ref(state) if type(state) is not dict else _gone  # a plain dict takes no weak reference
        self.module = weakref.ref(module)
        self.taken = taken
        plain = [one for one in state.values() if type(one) in (torch.Tensor, torch.nn.Parameter)]
        floating = [one for one in plain if one.is_floating_point() and not one.is_inference()]
        some = floating[:: -(-len(floating) // SOME) or 1]
        self.tensors = [(weakref.ref(one), one._version) for one in some]
        self.used_at: set[int] = set()  # steps after which it was saved or loaded

    @property
    def lives(self) -> bool:
        """Whether the program still has any of it."""
        return self.state() is not None or any(ref() is not None for ref, _ in self.tensors)

    def changed(self) -> list[Any]:
        """The tensors of the state that were changed in place since it was handed out."""
        return [one for ref, version in self.tensors if (one := ref()) is not None and one._version != version]


class KeptStates:
    """The latest states that modules have handed out."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._kept: list[_Kept] = []
        self._takes: Counter[int | None] = Counter()  # by the line that asked
        self._uses: Counter[int | None] = Counter()  # saves and loads of different states, by the line that asked

    def take(self, module: Any, state: Any, taken: Taken) -> None:
        """A module has handed out its weights."""
        self._takes[taken.taken_site] += 1
        if len(self._kept) >= MOST:
            self._kept = [one for one in self._kept if one.lives][-MOST + 1 :]
        self._kept.append(_Kept(self._torch, module, state, taken))

    def owner(self, state: Any) -> tuple[Any, Taken] | None:
        """The module that handed out this very dictionary, and when."""
        return next(((one.module(), one.taken) for one in self._kept if one.state() is state), None)

    def use(self, given: Iterable[Any], step: int) -> dict[str, Any] | None:
        """The program saves or loads these tensors: what is to be said if they were handed out before and trained on.

        A line may take the live weights once, to use them ever after: then it keeps nothing. So a state counts where
        its line took several, and some of these were not used, or this one for a second time. `again`: this one was
        used before; of a line that took only one, that is told apart by the analyzers.
        """
        living = [one for one in self._kept if one.lives]
        if not living:
            return None
        ids = {id(one) for one in given}
        found = None
        for one in living:
            if not any(id(ref()) in ids for ref, _ in one.tensors):
                continue
            site, before = one.taken.taken_site, bool(one.used_at)
            self._uses[site] += not before
            again = bool(one.used_at - {step})
            one.used_at.add(step)
            changed = [tensor for tensor in one.changed() if id(tensor) in ids]
            kept = again or self._takes[site] == 1 or self._uses[site] < self._takes[site]
            if changed and kept and site is not None and 0 < one.taken.taken_at < step:
                facts = {"looked_at": len(one.tensors), "changed": len(changed), "takes": self._takes[site]}
                facts["again"] = again
                found = facts | one.taken._asdict()
        return found


def _gone() -> None:
    """In the place of a weak reference."""
