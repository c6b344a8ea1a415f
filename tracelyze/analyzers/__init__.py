"""Turns a recorded run into a diagnosis: :func:`diagnose`, or :func:`load` to look at the run oneself.

What these import is imported when one of them is asked for: a profiler trace is judged without the rules for runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelyze.analyzers.engine import diagnose
    from tracelyze.analyzers.recorded.run_directory import compact, is_run, load

__all__ = ["compact", "diagnose", "is_run", "load"]


def __getattr__(name: str) -> Any:
    if name == "diagnose":
        from tracelyze.analyzers.engine import diagnose

        return diagnose
    if name in ("compact", "is_run", "load"):
        from tracelyze.analyzers.recorded import run_directory

        return getattr(run_directory, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
