"""Turns a recorded run into a diagnosis: :func:`diagnose`, or :func:`load` to look at the run oneself."""

from tracelyze.analyzers.engine import diagnose
from tracelyze.analyzers.rundir import compact, load

__all__ = ["compact", "diagnose", "load"]
