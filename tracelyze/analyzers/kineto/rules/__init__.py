"""The diagnoses that traces can show, one file each, ids as in the catalogue."""

from __future__ import annotations

import importlib
from typing import Final

from tracelyze.analyzers.kineto.rule import TraceRule

MODULES: Final = (
    "throughput.dataloader_bottleneck",
    "distributed.straggler",
    "distributed.exposed_communication",
    "device.allocator_stalls",
    "throughput.sync_stalls",
    "throughput.pageable_copies",
    "throughput.host_bound",
    "throughput.epoch_boundary_stall",
    "throughput.slow_steps",
    "device.memory_fragmentation",
    "throughput.optimizer_for_loop",
    "device.fp32_on_tensor_cores",
)
RULES: Final[tuple[TraceRule, ...]] = tuple(importlib.import_module(f"{__name__}.{module}").RULE for module in MODULES)
FIND_LATE_RANKS: Final = frozenset(rule.id for rule in RULES if rule.finds_late_rank)
