"""Rewards that the script holds in variables while its policy's loss goes backward, by names that say so.

Read are numbers, lists of numbers, arrays and tensors in the host's memory, of the functions of the script that run:
few, and only those under such a name. Nothing of them is kept but a mean, a sum and a count.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.program.consumed.script_variables import MAX_VARIABLES, of_script, some_attributes
from tracelyze.collectors.program.lines.named import roles
from tracelyze.collectors.tensors.safe_computing import is_plain
from tracelyze.schema import logged_metrics

MAX_NAMES = 1000  # that are told apart once
MAX_HELD = 8
MAX_ENTRIES, RECENT = 4096, 64
MAX_ELEMENTS = 2**16


class HeldRewards:
    """Remembers which names are those of rewards."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._names: dict[str, bool] = {}
        self._weighing: dict[int, tuple[CodeType, frozenset[str]]] = {}  # by function, what its advantages are made of
        self.weighed: dict[str, dict[str, Any]] = {}
        """Of the latest reading: what stands beside an advantage in the statement that computes it, as far as it has
        several elements, whatever its name is."""

    def read(self, frame: FrameType | None) -> dict[str, dict[str, Any]]:
        """What the variables hold that are named after rewards, by name: what kind it is, the mean (of a list, of its
        latest entries), the sum, the count, the deviation; of elements also how far those of one group are apart at
        most, in parts of the largest: groups are rows."""
        found: dict[str, dict[str, Any]] = {}
        self.weighed = {}
        for variables, code in of_script(frame):
            self._take(variables, code, found)
        return found

    def _take(self, variables: Mapping[str, Any], code: CodeType, found: dict[str, dict[str, Any]]) -> None:
        for name in self._sources(code):
            facts = self._facts(variables.get(name)) if len(self.weighed) < MAX_HELD else None
            if facts is not None and facts["kind"] == "elements":
                self.weighed[name] = facts
        for name, value in self._rewards(variables):
            facts = self._facts(value) if name not in found and len(found) < MAX_HELD else None
            if facts is not None:
                found[name] = facts

    def _sources(self, code: CodeType) -> frozenset[str]:
        """Names that a function makes its advantages of: read once."""
        known = self._weighing.get(id(code))
        if known is None:
            names = {*code.co_names, *code.co_varnames, *code.co_cellvars}
            weighs = any(roles.ASSIGNED.get(name) == "advantage" for name in names)
            known = code, roles.made_into(code, "advantage") if weighs else frozenset[str]()
            if len(self._weighing) < MAX_NAMES:
                self._weighing[id(code)] = known
        return known[1]

    def _rewards(self, variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Variables under such names, and attributes of the script's own object and of modules."""
        for name, value in itertools.islice(list(variables.items()), MAX_VARIABLES):
            if self._is_reward(name):
                yield name, value
            elif name == "self" or issubclass(type(value), self._torch.nn.Module):
                yield from ((own, one) for own, one in some_attributes(value) if self._is_reward(own))

    def _is_reward(self, name: Any) -> bool:
        known = self._names.get(name)
        if known is None:
            known = type(name) is str and logged_metrics.recognised(name) == "reward"
            if len(self._names) < MAX_NAMES:
                self._names[name] = known
        return known

    def _facts(self, value: Any) -> dict[str, Any] | None:
        try:
            if type(value) in (list, deque):
                return self._of_entries(value)
            number = self._number(value)
            if number is not None:
                return _row("number", number, number, 1, 0.0)
            return self._of_elements(value)
        except (TypeError, ValueError, RuntimeError, AttributeError, OverflowError):  # such as one that is changed now
            return None

    def _of_entries(self, value: Any) -> dict[str, Any] | None:
        if not 0 < len(value) <= MAX_ENTRIES:
            return None
        numbers = [self._number(one) for one in value]
        known = [one for one in numbers if one is not None]
        recent = known[-RECENT:]
        return _row("list", sum(recent) / len(recent), sum(known), len(known), 0.0) if numbers == known else None

    def _of_elements(self, value: Any) -> dict[str, Any] | None:
        if is_plain(self._torch, value):
            if not value.is_cpu or value.is_complex() or not 1 < value.numel() <= MAX_ELEMENTS:
                return None
            value = value.detach().double()
            mean, spread, count = value.mean().item(), value.std().item(), value.numel()
            rows = _rows(value)
            apart, largest = (rows.amax(1) - rows.amin(1)).max().item(), value.abs().max().item()
        elif type(value).__module__ == "numpy" and type(value).__name__ == "ndarray" and value.dtype.kind in "fiu":
            if not 1 < value.size <= MAX_ELEMENTS:
                return None
            mean, spread, count = float(value.mean()), float(value.std()), int(value.size)
            rows = _rows(value)
            apart, largest = float((rows.max(1) - rows.min(1)).max()), float(abs(value).max())
        else:
            return None
        return _row("elements", mean, mean * count, count, spread) | {"within": apart / largest if largest else 0.0}

    def _number(self, value: Any) -> float | None:
        """The value of a number, or of a tensor in the host's memory that holds one; None of anything else."""
        if issubclass(type(value), (int, float)):
            return None if type(value) is bool else float(value)
        if is_plain(self._torch, value):
            return float(value.detach()) if value.is_cpu and value.numel() == 1 and not value.is_complex() else None
        return float(value) if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else None


def _rows(values: Any) -> Any:
    """Groups of rewards, along the last dimension; all of them where there is one dimension, or one for each group."""
    return values.reshape(-1, values.shape[-1]) if values.shape[-1] > 1 else values.reshape(1, -1)


def _row(kind: str, mean: float, total: float, count: int, spread: float) -> dict[str, Any]:
    return {"kind": kind, "mean": mean, "sum": total, "count": count, "spread": spread}
