"""The parts of one recording that most others are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracelyze.collectors.cadence.budget import Budget
from tracelyze.collectors.cadence.loss_sampling import LossSampling
from tracelyze.collectors.options import CollectOptions
from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.recording.dispatch import Dispatcher
from tracelyze.collectors.recording.fast_path.seen import SeenSteps
from tracelyze.collectors.recording.guards import Guard
from tracelyze.collectors.recording.ledger import Ledger
from tracelyze.collectors.signals.context import NextCall
from tracelyze.collectors.storage.pending import PendingSteps


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Made before what the hooks call, and passed to it as one."""

    torch: Any
    options: CollectOptions
    guard: Guard
    progress: Progress
    program: Program
    losses: LossSampling
    next_call: NextCall
    dispatcher: Dispatcher
    rows: PendingSteps
    seen: SeenSteps
    budget: Budget
    ledger: Ledger
    record_event: Callable[..., None]  # queues a row of the table events
    open: Callable[[], None]  # makes the folder of the recording
