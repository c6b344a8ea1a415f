"""Gradient clipping: how often, at which max_norm, and whether gradients still had the loss scale in them."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

LINES_FIRST, LINES_EVERY = 50, 16  # clips whose line is noted: walking up the stack of a framework is expensive


class Clipping(Signal):
    name = "clipping"
    about = "How often gradients were clipped, at which max_norm, and whether they were still scaled."
    cost = "1 us a step"
    inactive = ("after_step",)
    copied_columns = ()
    fast_columns = ("clips", "clip_max_norm")
    columns = ("steps.clips", "steps.clip_max_norm", "steps.clipped_scaled")

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._clips: list[tuple[Any, float | None]] = []  # by clip: its training, if there are several; max_norm
        self._scaled_loss = False  # this window's backward ran on a scaled loss
        self._unscaled = False
        self._clipped_scaled = False
        self._count = 0

    def scale(self, original: Any, scaled: Any) -> None:
        self.activate()
        self._scaled_loss = True

    def unscale(self, scaler: Any, optimizer: Any) -> None:
        self.activate()
        self._unscaled = True
        if self._clipped_scaled and self._count <= LINES_FIRST:  # too late, or the scaler's own, in its step
            self.program.sites.here("unscale")

    def clip(self, max_norm: Any, total_norm: Any) -> None:
        if not self.active:
            self.activate()
        if type(max_norm) is not float:
            max_norm = float(max_norm) if isinstance(max_norm, (int, float)) else None
        self._clips.append((self.program.trainings.clipped[0], max_norm))
        if self._scaled_loss and not self._unscaled:
            self._clipped_scaled = True
        self._count = count = self._count + 1
        if count <= LINES_FIRST or count % LINES_EVERY == 0:
            self.program.sites.here("clip")

    def fast_values(self, tracked: Any, time: float) -> tuple[int, float | None]:
        clips, self._clips = self._clips, []
        return len(clips), clips[0][1] if len(clips) == 1 else _latest_limit(clips)

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        clips, self._clips = self._clips, []
        if clips and self.program.trainings.several:
            self._clips = [clip for clip in clips if clip[0] not in (tracked.training, None)]
            clips = [clip for clip in clips if clip[0] in (tracked.training, None)]
        row["clips"] = len(clips)
        if clips:
            row["clip_max_norm"] = _latest_limit(clips)
            if self._scaled_loss:
                row["clipped_scaled"] = self._clipped_scaled
        self._scaled_loss = self._unscaled = self._clipped_scaled = False


def _latest_limit(clips: list[tuple[Any, float | None]]) -> float | None:
    return next((limit for _, limit in reversed(clips) if limit is not None), None)
