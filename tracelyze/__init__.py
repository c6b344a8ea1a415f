"""tracelyze finds out, after the fact, why a PyTorch training run went wrong.

`tracelyze collect -- python train.py` records a run; `tracelyze diagnose RUN` says what went wrong with it.

From Python: :func:`diagnose`, :func:`load` and :func:`diagnose_row` (see docs/python.md); in a training script
:func:`log` and :class:`Recorder`. Importing this package imports nothing heavy: the first three are imported when they
are asked for.
"""

from typing import TYPE_CHECKING, Any

from tracelyze.collectors.script import Recorder, log
from tracelyze.errors import InputError
from tracelyze.version import __version__ as __version__

if TYPE_CHECKING:
    from tracelyze.api import diagnose, load
    from tracelyze.fleet.judging import diagnose_row

__all__ = ["InputError", "Recorder", "diagnose", "diagnose_row", "load", "log"]


def __getattr__(name: str) -> Any:
    if name in ("diagnose", "load"):
        from tracelyze import api

        return getattr(api, name)
    if name == "diagnose_row":
        from tracelyze.fleet.judging import diagnose_row

        return diagnose_row
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
