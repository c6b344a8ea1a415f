"""What became of every signal: on, off or failed and why, what it has cost, and whether the budget turned it down.

It is in process.json when the process begins and ends, and in the table signals every so often in between, so that a
process that is killed has it too.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracelyze import redaction

if TYPE_CHECKING:
    from tracelyze.collectors.recording.recorder import Recorder
    from tracelyze.collectors.signals.signal import Signal

NUMBERS = ("seconds", "share", "every", "looks", "turned_down_at")


class Ledger:
    """One entry per signal. Entries have all their keys from the start: they are read while a thread updates them."""

    def __init__(self, kinds: Sequence[type[Signal]]) -> None:
        self.entries: dict[str, dict[str, Any]] = {
            kind.name: {"columns": list(kind.columns), "sampled": kind.sampled, "state": "off", "reason": ""}
            | {"traceback": None, "why": None}
            | dict.fromkeys(NUMBERS)
            for kind in kinds
        }

    def on(self, name: str) -> None:
        """The signal records."""
        self.entries[name]["state"] = "on"

    def is_on(self, name: str) -> bool:
        """Whether the signal records."""
        return bool(self.entries[name]["state"] == "on")

    def off(self, name: str, reason: str) -> None:
        """It does not, and nothing is wrong."""
        self.entries[name] |= {"state": "off", "reason": reason}

    def failed(self, name: str, error: Exception) -> str:
        """It does not any more because of an error of ours. Returns the traceback, without secrets."""
        text = redaction.redact_text("".join(traceback.format_exception(error)))
        reason = redaction.redact_text(f"{type(error).__name__}: {error}")
        self.entries[name] |= {"state": "failed", "reason": reason, "traceback": text}
        return text

    def write(self, recorder: Recorder) -> None:
        """Bring the costs up to date and queue them as rows of the table signals.

        Two rows are no signals: "hooks" is all time spent on the training's own threads, the signals' included, and
        "writer" the processor time of the thread that writes.
        """
        elapsed = recorder.budget.elapsed
        now = {"time": recorder.now(), "step": recorder.steps}
        for name, entry in self.entries.items():
            meter = recorder.budget.meters.get(name)
            if meter is not None:
                entry["seconds"] = meter.seconds
                entry["share"] = meter.seconds / elapsed if elapsed > 0 else None
                if meter.sampled:
                    entry |= {"every": meter.stride, "looks": meter.looks, "turned_down_at": meter.turned_down_at}
                    entry["why"] = meter.why or None
            recorder.emit("signals", now | {"signal": name} | entry)
        for name, seconds in (("hooks", recorder.overhead), ("writer", recorder.writer.seconds)):
            share = seconds / elapsed if elapsed > 0 else None
            recorder.emit("signals", now | {"signal": name, "state": "on", "seconds": seconds, "share": share})
