"""The diagnoses that traces can tell, one file each, ids as in the catalogue."""

from __future__ import annotations

import importlib
from typing import Final

from tracelyze.analyzers.kineto.rule import TraceRule

MODULES: Final = (
    "dataloader_bottleneck",
    "straggler",
    "exposed_communication",
    "allocator_stalls",
    "sync_stalls",
    "pageable_copies",
    "host_bound",
    "epoch_boundary_stall",
    "slow_steps",
    "memory_fragmentation",
    "optimizer_for_loop",
    "fp32_on_tensor_cores",
)
RULES: Final[tuple[TraceRule, ...]] = tuple(importlib.import_module(f"{__name__}.{module}").RULE for module in MODULES)
