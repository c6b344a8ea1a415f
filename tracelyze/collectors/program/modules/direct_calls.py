"""Modules within a model whose `forward` is called, and they themselves not: what hooks on them do is left out.

Told by the modules that such a `forward` calls: in the forward that is watched for what every module puts out, the
function that called one of them is the `forward` of another module, which a line of the script called, and not torch.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tracelyze.collectors.internals.local_variables import first_argument
from tracelyze.collectors.program.call_sites import is_library, line_of

MAX_MODULES = 100  # that are remembered of a watched forward


@dataclass(frozen=True)
class DirectCall:
    """The module, and the line that called its `forward`."""

    module: weakref.ref[Any]
    file: str
    line: int


class DirectCalls:
    """Follows one watched forward, and holds what was found until somebody takes it."""

    def __init__(self, torch: Any) -> None:
        self._kind = torch.nn.Module
        self._entered: dict[int, DirectCall] = {}
        self._called: set[int] = set()
        self._found: list[DirectCall] = []

    def begins(self) -> None:
        """A forward that is watched begins."""
        self._entered, self._called = {}, set()

    def returned(self, module: Any, caller: FrameType | None) -> None:
        """A module within it returned to `caller`."""
        self._called.add(id(module))
        above = caller.f_back if caller is not None and caller.f_code.co_name == "forward" else None
        if caller is None or above is None or is_library(above.f_code.co_filename):
            return  # a module that is called has torch's own functions around its forward
        owner = first_argument(caller)
        if not isinstance(owner, self._kind) or owner is module or len(self._entered) >= MAX_MODULES:
            return
        while above is not None and above.f_code.co_name == "forward" and first_argument(above) is owner:
            above = above.f_back  # its own forward, which calls that of its base
        if above is not None and not is_library(above.f_code.co_filename) and id(owner) not in self._entered:
            self._entered[id(owner)] = DirectCall(weakref.ref(owner), above.f_code.co_filename, line_of(above))

    def ends(self, root: Any) -> None:
        """The forward is over: a module that was called after all, as by a method of its own, is none of these."""
        self._called.add(id(root))
        self._found += [one for key, one in self._entered.items() if key not in self._called]
        self.begins()

    def take(self) -> list[DirectCall]:
        """What was found since the last time."""
        found, self._found = self._found, []
        return found
