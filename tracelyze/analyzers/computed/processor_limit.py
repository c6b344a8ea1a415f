"""A limit of the process's processor time (ulimit -t, RLIMIT_CPU), and whether a process had come near it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import script_lines
from tracelyze.formatting import duration

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

FIX: Final = (
    "Raise the limit of processor time, or take it away: `ulimit -t` in the shell or the job's script, "
    "resource.setrlimit(resource.RLIMIT_CPU, ...) in the program. Both count in seconds, of all threads together. Save "
    "checkpoints, so that the next run can resume. A handler of SIGXCPU can save them where the hard limit lies above "
    "the soft one."
)


def place(process: Process) -> Location | None:
    """The only line of the script that sets this limit itself."""
    return script_lines.only(process, "limit", r"\bRLIMIT_CPU\b")


def reached(process: Process, unseen: float) -> str:
    """A sentence, if the limit was within `unseen` seconds of the last look, at the pace of the looks before."""
    samples = process.samples
    limit, used, time = samples["cpu_limit"], samples["cpu_seconds"], samples["time"]
    seen = np.isfinite(limit) & np.isfinite(used) & np.isfinite(time)
    if not seen.any():
        return ""
    limit, used, time = limit[seen], used[seen], time[seen]
    passed = np.diff(time)
    pace = float(np.max(np.diff(used)[passed > 0] / passed[passed > 0], initial=0.0))
    if used[-1] + pace * unseen < limit[-1]:
        return ""
    had, allowed = duration(float(used[-1])), duration(float(limit[-1]))
    return (
        f" It had used {had} of processor time when last looked at, of {allowed} "
        "that it was allowed (RLIMIT_CPU): the kernel ends a process there."
    )
