"""The collectives that this rank has enqueued, from torch's Flight Recorder: when nothing moves on, and at the end.

Stacks are not asked for: torch needs ten seconds and more to find the names of its own functions. Where the training
thread waits is what the signal `stacks` writes down at the same time.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tracelyze.collectors.internals import private_names
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.machine.stalls import StallDetector
from tracelyze.collectors.signals.signal import Signal, Unavailable, columns_of
from tracelyze.collectors.system import flight_recorder

KEPT = 16  # collectives of a group that are not complete: the first of them is what the others wait for
RECENT = 48  # the last ones, complete or not, that are kept at the end: what this rank usually calls after what
COLUMNS = (
    "time",
    "group",
    "description",
    "members",
    "enqueued",
    "completed",
    "sequence",
    "p2p",
    "operation",
    "sizes",
    "dtype",
    "state",
    "created",
    "thread",
)


class Collectives(Signal):
    name = "collectives"
    columns = columns_of("collectives", *COLUMNS)
    about = "Collectives that are under way when nothing moves on, and at the end, from torch's Flight Recorder."
    cost = "nothing while the training moves"
    may_hang = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        names = (private_names.COLLECTIVES, private_names.COLLECTIVES_BEFORE)
        found = [private_names.find(self.torch, name) for name in names]
        self._dump: Any = next((dump for dump in found if dump is not None), None)
        if self._dump is None:
            raise Unavailable(f"torch {self.torch.__version__} lacks torch.{private_names.COLLECTIVES}")
        self._stalls = StallDetector(context.progress)
        self._distributed = False

    def every_second(self, row: dict[str, Any]) -> None:
        now = self.context.now()
        self._distributed = self._distributed or self._is_distributed()
        if self._stalls.due(now) is not None and self._distributed:
            self._write_down(now)

    def finished(self) -> None:
        if self._distributed or self._is_distributed():
            self._write_down(self.context.now(), RECENT)

    def _is_distributed(self) -> bool:
        distributed = sys.modules.get("torch.distributed")
        return distributed is not None and distributed.is_available() and distributed.is_initialized()

    def _write_down(self, now: float, recent: int = 0) -> None:
        dump = json.loads(self._dump())
        if not isinstance(dump, dict) or not isinstance(dump.get("pg_config"), dict):
            return
        waiting: dict[str, int] = {}
        rows = flight_recorder.rows(dump)
        for number, row in enumerate(rows):
            if row.get("operation") is not None and number < len(rows) - recent:
                if row["state"] == "completed":
                    continue
                waiting[row["group"]] = waiting.get(row["group"], 0) + 1
                if waiting[row["group"]] > KEPT:
                    continue
            self.context.emit("collectives", {"time": now, **{name: row[name] for name in COLUMNS if name in row}})
