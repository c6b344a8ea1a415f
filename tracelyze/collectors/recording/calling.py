"""What this thread is calling: the outermost module, who watches the modules in it, whether backwards are seen."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

from tracelyze.collectors.cadence.loss_sampling import LossSampling
from tracelyze.collectors.program.progress import Progress


class _Local(threading.local):
    root: Any = None  # the outermost module that is being called on this thread
    watch: Any = None
    """Who watches the modules that are called within `root` (signals.context.ModuleWatch); False if nobody does."""

    backwards_unseen = False
    """A backward that begins now is none of the training's own: it is within one (reentrant checkpointing), or within
    calls that are not recorded."""

    clipping = False  # inside one of torch's functions that clip: one calls another
    optimizer_stepped = False
    kept: int | None = None
    """The latest node of the graph that a backward was last called with to keep it, by its number in torch."""


local = _Local()


@contextlib.contextmanager
def unrecorded(progress: Progress, losses: LossSampling) -> Iterator[None]:
    """Calls of modules, losses and backwards on this thread are no part of the training within it."""
    watch, unseen = local.watch, local.backwards_unseen
    counts = progress.dropouts, progress.statistics, losses.count, losses.next
    try:
        local.watch, local.backwards_unseen, losses.next = False, True, math.inf
        yield
    finally:
        local.watch, local.backwards_unseen = watch, unseen
        progress.dropouts, progress.statistics, losses.count, losses.next = counts
