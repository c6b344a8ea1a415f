"""The diagnoses that traces can tell, one file each, ids as in the catalogue."""

from __future__ import annotations

from typing import Final

from tracelyze.analyzers.kineto.rule import TraceRule
from tracelyze.analyzers.kineto.rules import (
    allocator_stalls,
    dataloader_bottleneck,
    epoch_boundary_stall,
    exposed_communication,
    fp32_on_tensor_cores,
    host_bound,
    memory_fragmentation,
    optimizer_for_loop,
    pageable_copies,
    slow_steps,
    straggler,
    sync_stalls,
)

RULES: Final[tuple[TraceRule, ...]] = (
    dataloader_bottleneck.RULE,
    straggler.RULE,
    exposed_communication.RULE,
    allocator_stalls.RULE,
    sync_stalls.RULE,
    pageable_copies.RULE,
    host_bound.RULE,
    epoch_boundary_stall.RULE,
    slow_steps.RULE,
    memory_fragmentation.RULE,
    optimizer_for_loop.RULE,
    fp32_on_tensor_cores.RULE,
)
