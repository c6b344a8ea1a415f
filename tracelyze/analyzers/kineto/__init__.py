"""Kineto traces: where the device's time went, in seconds, from the profiler's JSON.

:func:`summarise` gives the numbers of each trace, :func:`diagnose_traces` the findings, :func:`is_trace`
whether a path is a trace at all. Importing this package imports numpy and msgspec only when one of the first two is
called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.kineto.reading.rankfiles import is_named_like_trace, is_trace

if TYPE_CHECKING:
    from tracelyze.analyzers.kineto.attribution.summary import TraceSummary, summarise
    from tracelyze.analyzers.kineto.diagnose import diagnose_traces

__all__ = ["TraceSummary", "diagnose_traces", "is_named_like_trace", "is_trace", "summarise"]


def __getattr__(name: str) -> Any:
    if name == "diagnose_traces":
        from tracelyze.analyzers.kineto.diagnose import diagnose_traces

        return diagnose_traces
    if name in ("TraceSummary", "summarise"):
        from tracelyze.analyzers.kineto.attribution import summary

        return getattr(summary, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
