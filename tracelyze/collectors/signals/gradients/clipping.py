"""Gradient clipping: how often, at which max_norm, and whether gradients still had the loss scale in them."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.by_identity import ByIdentity
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
        self._scales = False  # a loss was scaled so far
        self._scaled_loss = False  # this window's backward ran on a scaled loss
        self._unscaled = False
        self._clipped_scaled = False
        self._count = 0
        self._clipped = False  # gradients were clipped since a loss was scaled
        self._late: ByIdentity[bool] = ByIdentity()  # whether a clip takes the optimizer's gradients before

    def scale(self, original: Any, scaled: Any) -> None:
        self.activate()
        self._scaled_loss = True
        self._clipped, clipped = False, self.program.trainings.clipped
        clipped.parameters = frozenset()
        if not self._scales:
            self._scales, clipped.looks = True, LINES_FIRST

    def unscale(self, scaler: Any, optimizer: Any) -> None:
        self.activate()
        self._unscaled = True
        late = self._clipped and self._is_late(optimizer)
        if (late or self._clipped_scaled) and self._count <= LINES_FIRST:  # too late, or the scaler's own, in its step
            self.program.sites.here("unscale")

    def _is_late(self, optimizer: Any) -> bool:
        """Whether the optimizer's gradients were clipped since a loss was scaled: with those of another optimizer, say,
        which alone was unscaled before. The first clips are looked at; the order of the calls stays what it is."""
        noted = self.program.trainings.clipped.parameters
        if noted:
            held = (parameter for group in optimizer.param_groups for parameter in group["params"])
            self._late[optimizer] = any(id(parameter) in noted for parameter in held)
        return bool(self._late.get(optimizer))

    def clip(self, max_norm: Any, total_norm: Any) -> None:
        if not self.active:
            self.activate()
        if type(max_norm) is not float:
            max_norm = float(max_norm) if isinstance(max_norm, (int, float)) else None
        self._clips.append((self.program.trainings.clipped.training, max_norm))
        self._clipped = True
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
        late = self._clipped and bool(self._late.get(tracked.optimizer))
        if clips:
            row["clip_max_norm"] = _latest_limit(clips)
            if self._scaled_loss:
                row["clipped_scaled"] = late or self._clipped_scaled
        elif late:  # by a clip before the step of another optimizer
            row["clipped_scaled"] = True
        self._scaled_loss = self._unscaled = self._clipped_scaled = False


def _latest_limit(clips: list[tuple[Any, float | None]]) -> float | None:
    return next((limit for _, limit in reversed(clips) if limit is not None), None)
