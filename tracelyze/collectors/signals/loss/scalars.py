"""What the script or a framework's callback says by itself: `tracelyze.log` and the values that a framework logs."""

from __future__ import annotations

import itertools
import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tracelyze import redaction
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingValues
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.readback import Known, Readback
from tracelyze.collectors.tensors.safe_computing import has_memory

MAX_NAMES = 200  # names that are kept apart; a name made anew for every step would make the table grow with the run
MAX_REFUSALS = 20  # arguments of which it is written down that they could not be recorded
MAX_TEXT = 200
MAX_SAMPLES = 64  # identifiers of one batch
PHASES = {
    "train": "train",
    "training": "train",
    "eval": "eval",
    "evaluation": "eval",
    "val": "eval",
    "valid": "eval",
    "validation": "eval",
    "test": "test",
}


class _Refused(Exception):  # noqa: N818  # it is one, in the words of this file
    """Why a value is not recorded, as a clause."""


class Scalars(Signal):
    name = "scalars"
    columns = columns_of("scalars", "time step own_step phase name value batch")
    inactive = ("after_step",)
    needs_every_step = True
    about = "What the script says by itself: `tracelyze.log`, and what the callbacks for frameworks pass on."
    cost = "2 us per value"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._names: set[str] = set()
        self._refused: set[str] = set()
        self._late: deque[tuple[dict[str, Any], PendingValues]] = deque()
        self._lock = threading.Lock()  # a script may log from several threads

    def logged(self, unnamed: tuple[Any, ...], values: Mapping[str, Any], batch: Any, phase: Any, step: Any) -> None:
        """`tracelyze.log` was called with these arguments."""
        with self._lock:
            if unnamed:
                self._refuse("log", "was given a value without a name: write tracelyze.log(loss=value)")
            known = PHASES.get(phase) if isinstance(phase, str) else None
            if known is None:
                self._refuse("phase", 'is neither "train" nor "eval": the call is ignored')
                return
            common = {
                "time": self.context.now(),
                "step": self.progress.steps,
                "own_step": self._take("step", _integer, step),
                "phase": known,
                "batch": self._take("batch", self._identifier, batch),
            }
            if "loss" in values and known == "train":
                self.program.sites.here("loss")
            self._put(common, values)
            self._release()
            if self._late:
                self.activate()

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        if self._late:
            with self._lock:
                self._release()

    def finished(self) -> None:
        with self._lock:
            self._release(wait=True)

    def _put(self, common: dict[str, Any], values: Mapping[str, Any]) -> None:
        names = [name for name in values if values[name] is not None and self._has_room(name)]
        if not names and common["batch"] is not None:
            self.context.emit("scalars", common | {"name": "batch"})
        for name in names:
            row = common | {"name": name}
            value = self._take(name, self._number, values[name])
            if isinstance(value, float):
                row["value"] = value
                self._pass_on(row)
            elif value is not None:
                self._late.append((row, value))

    def _pass_on(self, row: dict[str, Any]) -> None:
        """Rows stay in order: one that waits for the device holds up those after it."""
        if self._late:
            self._late.append((row, Known(_is_filled)))
        else:
            self.context.emit("scalars", row)

    def _release(self, wait: bool = False) -> None:
        while self._late and (wait or self._late[0][1].arrived()):
            row, later = self._late.popleft()
            try:
                later.fill(row)
            except Exception as error:
                if raised_by_a_signal_handler(error):
                    raise
                self._refuse(row["name"], _clause(error))
                continue
            self.context.emit("scalars", row)

    def _has_room(self, name: str) -> bool:
        if name in self._names:
            return True
        if len(self._names) >= MAX_NAMES:
            self._refuse("log", f"was given more than {MAX_NAMES} names: further ones are ignored")
            return False
        self._names.add(name)
        return True

    def _take(self, name: str, read: Callable[[Any], Any], given: Any) -> Any:
        """`given` as it is recorded; None, and a word in the events, if it is nothing that can be."""
        if given is None:
            return None
        try:
            return read(given)
        except _Refused as reason:
            self._refuse(name, str(reason))
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self._refuse(name, _clause(error))
        return None

    def _refuse(self, name: str, reason: str) -> None:
        """One event for each argument, however often it happens."""
        if name not in self._refused and len(self._refused) < MAX_REFUSALS:
            self._refused.add(name)
            self.context.record_event(
                "log-ignored", name[:MAX_TEXT], redaction.redact_text(f"{name} {reason}"[:MAX_TEXT])
            )

    def _number(self, given: Any) -> float | PendingValues:
        """A number, at once or later."""
        if type(given) in (float, int):
            return float(given)
        if isinstance(given, self.torch.Tensor):
            return self._tensor(given)
        if getattr(given, "ndim", 0):
            raise _Refused(f"is an array of {given.ndim} dimensions, not one number")
        if not hasattr(given, "__float__"):
            raise _Refused(f"is a {type(given).__name__}, not a number")
        if callable(getattr(given, "is_ready", None)):  # an array of JAX: on its way, perhaps
            return _Promised(given)
        return float(given)

    def _tensor(self, given: Any) -> float | PendingValues:
        if given.numel() != 1:
            raise _Refused(f"is a tensor of {given.numel()} elements, not one number")
        if hasattr(given, "placements"):  # reading a DTensor may be a collective
            raise _Refused("is a DTensor: log its full_tensor(), or the local value")
        if not has_memory(self.torch, given):
            raise _Refused(f"is a {type(given).__name__} without values")
        given = given.detach()
        if given.device.type == "cpu":
            return float(given.item())
        if given.device.type == "cuda" and self.torch.cuda.is_current_stream_capturing():
            raise _Refused("cannot be read while a CUDA graph is captured")
        return Readback.of_columns(self.torch, {"value": given})

    def _identifier(self, given: Any) -> str:
        if isinstance(given, str):
            return redaction.redact_text(given[:MAX_TEXT])
        if isinstance(given, (list, tuple)) or (getattr(given, "ndim", 0) == 1 and len(given)):
            return self._several(given)
        return str(_integer(given))

    def _several(self, given: Iterable[Any]) -> str:
        first = itertools.islice(given, MAX_SAMPLES)
        shown = [one if isinstance(one, str) else str(_integer(one)) for one in first]
        return redaction.redact_text(", ".join(shown)[:MAX_TEXT])


def _is_filled(_row: dict[str, Any]) -> None:
    """Fill in nothing: the value of the row is there already."""


class _Promised:
    """A number of another library that is on its way and says so (`is_ready`). Has the same methods as a Readback."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def arrived(self) -> bool:
        return bool(self._value.is_ready())

    def fill(self, row: dict[str, Any]) -> None:
        row["value"] = float(self._value)


def _integer(given: Any) -> int:
    if getattr(getattr(given, "device", None), "type", "cpu") != "cpu":
        raise _Refused("is a tensor on a device: reading it would wait for the device")
    try:
        number = operator.index(given)
    except TypeError:
        raise _Refused(f"is a {type(given).__name__}, not a whole number") from None
    if abs(number) >= 2**63:
        raise _Refused("is too large a number")
    return number


def _clause(error: Exception) -> str:
    return f"could not be read: {type(error).__name__}: {str(error)[:MAX_TEXT]}"
