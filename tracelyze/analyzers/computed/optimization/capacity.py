"""What a training takes of its device's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


class Capacity(NamedTuple):
    """Bytes in tensors at their peak and of the device; share of time in which it was busy, refusals, seconds."""

    peak: float
    total: float
    busy: float | None
    retries: float
    seconds: float


def of(process: Process) -> Capacity | None:
    """None where no device, or not its size, is known."""
    facts = process.facts.get("device")
    total = facts.get("memory_bytes") if isinstance(facts, dict) else None
    steps = process.steps
    peak = steps["device_peak"][np.isfinite(steps["device_peak"])]
    if not total or not len(peak) or peak.max() <= 0:
        return None
    busy = process.tables["devices"]["busy"]
    busy = busy[np.isfinite(busy)]
    retries = steps["device_retries"][np.isfinite(steps["device_retries"])]
    return Capacity(
        float(peak.max()),
        float(total),
        float(np.median(busy)) if len(busy) else None,
        float(retries[-1]) if len(retries) else 0.0,
        float(np.nansum(steps["seconds"])),
    )
