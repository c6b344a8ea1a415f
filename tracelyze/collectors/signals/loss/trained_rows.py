"""Rows that a policy is trained on again, before its model is called on anything else: several steps on one rollout."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen

FEWEST, MOST = 8, 1024  # rows of an input that is looked at
MAX_NUMBERS = 2**18  # of an input
MAX_KNOWN = 20_000  # rows that are remembered
MAX_ALIKE = 8  # calls without autograd on inputs of one shape, of a step
Shape = tuple[int, ...]


class TrainedRows:
    """For the early steps of a policy, which share of the rows was trained on before, since the model acted last."""

    def __init__(self, torch: Any, emit: Callable[[str, dict[str, Any]], None]) -> None:
        self.pending = PendingRows(emit, "events")
        self._torch = torch
        self._trained: tuple[Shape, Any] | None = None  # of the last call with autograd: a number for each row
        self._others: dict[Shape, list[Any]] = {}  # of the calls without, by the shape of the input
        self._known: set[float] = set()

    def called(self, call: Call, args: Any, kwargs: Any) -> None:
        """An outermost call, before it is known whether a backward will reach it."""
        torch = self._torch
        given = next((one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)), None)
        if given is None or not is_plain(torch, given) or given.dim() < 2 or not may_compute(torch, given.is_cuda):
            return
        shape = tuple(given.shape)
        others = self._others.setdefault(shape, []) if call.mode != GRAD else []
        if len(given) >= FEWEST and given.numel() <= MAX_NUMBERS and len(others) < MAX_ALIKE:
            with unseen(torch), torch.no_grad():
                numbers = _numbers(torch, given.detach()[:MOST].flatten(1))
            if call.mode == GRAD:
                self._trained = shape, numbers
            else:
                others.append(numbers)

    def stepped(self, row: dict[str, Any]) -> None:
        """A step of a policy is over: write down what it was trained on. `row` is the start of an event."""
        torch, trained, others = self._torch, self._trained, self._others
        self.forget()
        if trained is None:
            return
        shape, numbers = trained
        same = others.pop(shape, [])
        with unseen(torch), torch.no_grad():
            away = [(one != numbers).any() for one in same if one.device == numbers.device]
            elsewhere = torch.stack(away).any() if away else torch.zeros((), device=numbers.device)
            values = torch.cat([elsewhere.float().reshape(1), numbers])

        def fill(late: dict[str, Any], read: list[float]) -> None:
            acted = bool(others or read[0])
            if acted:
                self._known.clear()
            rows = read[1:]
            seen = sum(one in self._known for one in rows) / len(rows)
            late["text"] = json.dumps({"acted": acted, "reused": seen, "distinct": len(set(rows)) / len(rows)})
            if len(self._known) < MAX_KNOWN:
                self._known.update(rows)

        self.pending.put([row], Readback(torch, values, fill))

    def forget(self) -> None:
        """A step is over that is not looked at."""
        self._trained, self._others = None, {}


def _numbers(torch: Any, rows: Any) -> Any:
    """A number for each row that is hardly that of another one: its product with a fixed vector."""
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64, device=rows.device).mul(0.7).cos()
    return (rows.double() @ weights).float()
