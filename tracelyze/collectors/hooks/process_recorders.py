"""The recorders of this process. The hooks are put in place once and stay; recorders come and go."""

from __future__ import annotations

from tracelyze.collectors.recording.per_thread import Recorders
from tracelyze.collectors.recording.recorder import Recorder

held: list[Recorders] = []
"""A single element, replaced in a child after a fork."""


def recorder() -> Recorder:
    """The recorder of this thread: its own, or that of the process."""
    return held[0].local.own or held[0].first


def recorders() -> list[Recorder]:
    """All recorders of this process."""
    return held[0].everyone()
