"""What became of every signal: on, off or failed and why, what it has cost, and whether the budget turned it down.

It is in process.json when the process begins and ends, and in the table signals every so often in between, so that a
process that is killed has it too.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from tracelyze import redaction
from tracelyze.collectors.cadence.budget import Budget
from tracelyze.collectors.internals import private_names
from tracelyze.collectors.signals import extensions
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, Unavailable

NUMBERS = ("seconds", "share", "every", "looks", "turned_down_at")


class Ledger:
    """One entry per signal. Entries have all their keys from the start: they are read while a thread updates them."""

    def __init__(self, kinds: Sequence[type[Signal]], budget: Budget, extensions: Sequence[str] = ()) -> None:
        """`extensions` are the names of signals of other packages, which are imported when they are switched on."""
        self._budget = budget
        self._own = frozenset(kind.name for kind in kinds)
        declared = [(kind.name, list(kind.columns), kind.sampled) for kind in kinds]
        declared += [(name, [], False) for name in extensions if name not in self._own]
        self.entries: dict[str, dict[str, Any]] = {
            name: {"columns": columns, "sampled": sampled, "state": "off", "reason": ""}
            | {"traceback": None, "why": None}
            | dict.fromkeys(NUMBERS)
            for name, columns, sampled in declared
        }

    def on(self, name: str) -> None:
        """The signal records."""
        self.entries[name]["state"] = "on"

    def is_on(self, name: str) -> bool:
        """Whether the signal records."""
        return bool(self.entries[name]["state"] == "on")

    def off(self, name: str, reason: str) -> None:
        """The signal does not record, and nothing is wrong."""
        self.entries[name] |= {"state": "off", "reason": reason}

    def failed(self, name: str, error: Exception) -> str:
        """The signal does not record any more, because of an error of ours. Returns the traceback, without secrets."""
        text = redaction.redact_text("".join(traceback.format_exception(error)))
        reason = redaction.redact_text(f"{type(error).__name__}: {error}")
        self.entries[name] |= {"state": "failed", "reason": reason, "traceback": text}
        return text

    def switch_on(self, kinds: Sequence[type[Signal]], context: SignalContext) -> list[Signal]:
        """The signals that this process records, as the options, torch and the signals themselves say."""
        made = [self._made(kind, context) for kind in kinds]
        return [signal for signal in made if signal is not None]

    def switch_on_extensions(self, context: SignalContext) -> list[Signal]:
        """The signals of other packages that this process records. One that does not fit is off, with the reason."""
        made: list[Signal | None] = []
        for name, place in context.options.extensions:
            try:
                kind = extensions.load(name, place, self._own)
            except extensions.Refused as refused:
                if name not in self._own:
                    self.off(name, str(refused))
                context.record_event("collector-error", name, redaction.redact_text(str(refused)))
                continue
            self.entries[name] |= {"columns": list(kind.columns), "sampled": kind.sampled}
            made.append(self._made(kind, context))
        return [signal for signal in made if signal is not None]

    def _made(self, kind: type[Signal], context: SignalContext) -> Signal | None:
        options = context.options
        if kind.name in options.signals_off:
            self.off(kind.name, "switched off when the run was started")
            return None
        if not kind.default_on and kind.name not in options.signals_on:
            self.off(kind.name, f"off unless asked for with {kind.option or f'--signal {kind.name}=on'}")
            return None
        missing = private_names.lacks(context.torch, kind.needs)
        if missing:
            self.off(kind.name, missing)
            return None
        try:
            signal = kind(context)
        except Unavailable as reason:
            self.off(kind.name, str(reason))
            return None
        except Exception as error:
            context.record_event("collector-error", kind.name, self.failed(kind.name, error))
            return None
        self.on(kind.name)
        return signal

    def state_costs(
        self,
        emit: Callable[[str, dict[str, Any]], None],
        now: dict[str, Any],
        hooks: float,
        writer: float,
    ) -> None:
        """Bring the costs up to date and queue them as rows of the table signals, each with the columns in `now`.

        Two rows are no signals: "hooks" is all time spent on the training's own threads, the signals' included, and
        "writer" the processor time of the thread that writes.
        """
        budget, elapsed = self._budget, self._budget.elapsed
        for name, entry in self.entries.items():
            meter = budget.meters.get(name)
            if meter is not None:
                entry["seconds"] = meter.seconds
                entry["share"] = meter.seconds / elapsed if elapsed > 0 else None
                if meter.sampled:
                    entry |= {
                        "every": meter.stride,
                        "looks": meter.samples,
                        "turned_down_at": meter.decision.turned_down_at,
                    }
                    entry["why"] = meter.decision.why or None
            emit("signals", now | {"signal": name} | entry)
        for name, seconds in (("hooks", hooks), ("writer", writer)):
            share = seconds / elapsed if elapsed > 0 else None
            emit("signals", now | {"signal": name, "state": "on", "seconds": seconds, "share": share})
