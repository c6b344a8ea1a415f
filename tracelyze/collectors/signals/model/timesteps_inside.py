"""Timesteps that a model draws within its own forward: what it gives to the network, or the embedding, inside of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.signals.context import ModuleWatch
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen

Found = tuple[str, Any]  # an argument's name, and its values
Ranged = tuple[str, int]  # where the number of timesteps is known from, and that number


class TimestepsInside(ModuleWatch):
    """Watches one training forward for the first module in it that is given timesteps."""

    def __init__(
        self,
        torch: Any,
        find: Callable[..., Found | None],
        is_table: Callable[[str], bool],
        range_of: Callable[..., Ranged],
    ) -> None:
        self._torch = torch
        self._find, self._is_table, self._range_of = find, is_table, range_of
        self._names: dict[int, str] = {}
        self._root: weakref.ref[Any] | None = None
        self.taken: tuple[str, Any, Ranged] | None = None
        self.error: Exception | None = None
        self.named = False  # an argument has the name of timesteps
        self.over = False

    def begins(self, root: Any) -> TimestepsInside | None:
        """Watch this call if it trains a model with modules in it, and nobody compiles or traces it."""
        torch = self._torch
        if self.over or not (root.training and root._modules and torch.is_grad_enabled()) or hasattr(root, "_orig_mod"):
            return None
        if not may_compute(torch, torch.cuda.is_available()):
            return None
        self._root, self._names = weakref.ref(root), {id(module): name for name, module in root.named_modules()}
        return self

    def returned(self, module: Any, output: Any, args: Any = (), kwargs: Any = None) -> None:
        """A module within returned: the functions that called it are still running, with the schedule in their hands.

        An embedding in the network returns before the network does, which is the one whose arguments have names.
        """
        root = self._root() if self._root is not None else None
        if self.error is not None or root is None:
            return
        try:
            with unseen(self._torch), self._torch.no_grad():
                named = self._find(self._torch, module, args[1:], kwargs or {})
                found = named or self._of_embedding(module, args)
                if found is None or (self.taken is not None and (self.named or not named)):
                    return
                ranged = self._range_of(self._torch, root)
                if ranged[0] == "schedule":  # an embedding alone may be one of places in a series
                    self.taken, self.named = (found[0], found[1].detach().long().clone(), ranged), bool(named)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.error = error

    def ends(self, root: Any, output: Any) -> None:
        """The model returned."""
        self._root, self._names, self.over = None, {}, True

    def _of_embedding(self, module: Any, args: Any) -> Found | None:
        """Whole numbers, one for each sample, that go into a module which is named after timesteps."""
        if len(args) != 2 or not is_plain(self._torch, args[1]):
            return None
        ids = args[1]
        whole = ids.dtype in (self._torch.int64, self._torch.int32) and ids.dim() == 1 and ids.numel() > 1
        return ("t", ids) if whole and self._is_table(self._names.get(id(module), "")) else None
