"""Signals that other packages declare: entry points of the group `tracelyze.signals`, by name.

Only their names travel into the program's processes; each process imports them itself (signals/extensions.py).
"""

from __future__ import annotations

from importlib import metadata

GROUP = "tracelyze.signals"


def declared() -> tuple[tuple[str, str], ...]:
    """Name and place (`package.module:Class`) of each, in the order of their names."""
    return tuple(sorted({(point.name, point.value) for point in metadata.entry_points(group=GROUP)}))
