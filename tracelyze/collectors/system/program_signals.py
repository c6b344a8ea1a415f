"""Which OS signals the program itself handles: those are its own business, whatever they do to a line of ours."""

from __future__ import annotations

import signal
from typing import Any


def is_free(number: signal.Signals) -> bool:
    """Whether the program handles this signal neither in Python nor below it (faulthandler.register, a C library)."""
    if signal.getsignal(number) is not signal.SIG_DFL:
        return False
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            caught = next(line for line in status if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return True
    return not int(caught.split()[1], 16) >> (number - 1) & 1


def raised_by_a_signal_handler(error: BaseException) -> bool:
    """Whether an OS signal handler raised this while one of our lines ran: then it is the program's to see."""
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


class OwnErrors:
    """Drops errors, but lets those of the program's signal handlers go on."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> bool:
        return isinstance(error, Exception) and not raised_by_a_signal_handler(error)


own_errors_dropped = OwnErrors()
"""`with own_errors_dropped:` around lines of ours within the program's, whose errors are nobody's business."""


def _code_of(handler: Any) -> Any:
    """The code that runs when a signal arrives; None for a default, or one that is not written in Python."""
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = getattr(type(handler), "__call__", None)  # noqa: B004  # it is its code that is wanted
    return getattr(function, "__code__", None)
