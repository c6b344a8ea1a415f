"""Messages of SLURM (slurmstepd, srun) in the output of a job: who ended it, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from tracelyze.schema import outside

_CANCELLED = re.compile(
    r"\*\*\* (?:JOB|STEP) (?P<job>\d{1,12})\S* ON (?P<host>\S+) CANCELLED AT "
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<why>[^*]*)\*\*\*"
)
_BAD_MEMORY = re.compile(
    r"\*\*\* (?:JOB|STEP) (?P<job>\d{1,12})\S* ON (?P<host>\S+) UNCORRECTABLE MEMORY ERROR AT "
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)"
)
_OOM = re.compile(r"Detected \d+ oom[-_ ]kill event\S* in (?:StepId=|step )(?P<job>\d{1,12})", re.IGNORECASE)
_LIMIT = re.compile(r"(?:Job|Step) (?P<job>\d{1,12})\S* exceeded memory limit")
_NODE = re.compile(r"srun: error: Node failure on (?P<host>\S+)")
_TASK = re.compile(
    r"srun: error: (?P<host>\S+): tasks? (?P<tasks>[\d,\-]{1,200}): (?P<how>Killed|Out Of Memory|Segmentation fault|"
    r"Bus error|Aborted|Terminated|Exited with exit code \d+)"
)
_SPEAKS = re.compile(r"(?:^|[\s:])(?:slurmstepd|slurmd|srun)(?:-\S+)?: |\] error: \*\*\* (?:JOB|STEP) ")
LONGEST: Final = 2_000  # characters of a line that are looked at: SLURM's messages have some hundred
_RESUME: Final = "Save checkpoints, so that the next job can resume."
_WHY: Final[dict[str, tuple[outside.Kind, str, str, str]]] = {
    "DUE TO TIME LIMIT": ("time-limit", "SLURM ended the job at its time limit", "time limit of the job",
                          f"Ask for more time (sbatch --time). {_RESUME}"),
    "DUE TO PREEMPTION": ("preempted", "SLURM preempted the job for another one", "preempted by another job",
                          f"Submit with --requeue, or to a partition that is not preempted. {_RESUME}"),
    "DUE TO NODE FAILURE": ("node-failure", "SLURM ended the job because a node failed", "a node failed",
                            f"Look at the log of slurmctld and the kernel log of the node. {_RESUME}"),
    "DUE TO JOB REQUEUE": ("cancelled", "SLURM took the job back into its queue", "requeued",
                           f"Somebody, or a failed node, had it requeued (scontrol requeue). {_RESUME}"),
    "": ("cancelled", "SLURM cancelled it: by scancel, or because another task had failed", "cancelled by SLURM",
         f"Ask who cancelled it (sacct -j JOB --format=State%40), or find the task that failed first. {_RESUME}"),
}  # fmt: skip
_MEMORY: Final = (
    "Ask for more memory (sbatch --mem or --mem-per-cpu), or hold less: fewer loading workers, no growing lists."
)


def speaks(line: str) -> bool:
    """Whether SLURM wrote this line."""
    return _SPEAKS.search(line) is not None


def events(file: str, lines: Iterable[tuple[int, str]]) -> Iterable[outside.Event]:
    """What the numbered lines say of the job's end."""
    for number, whole in lines:
        line = whole[:LONGEST]
        if speaks(line):
            found = _event(file, number, line)
            if found is not None:
                yield found


def _event(file: str, number: int, line: str) -> outside.Event | None:
    event = partial(outside.Event, file, number, text=line.strip()[:400])
    if (found := _CANCELLED.search(line)) is not None:
        why = found["why"].strip()
        kind, said, short, advice = next(meaning for mark, meaning in _WHY.items() if why.startswith(mark))
        at, clock = _time(found["at"])
        return event(kind, said, short, advice=advice, at=at, clock=clock, host=found["host"], job=found["job"])
    if (found := _BAD_MEMORY.search(line)) is not None:
        said, short = "SLURM reports an uncorrectable memory error of the node", "uncorrectable memory error"
        advice, (at, clock) = f"Have the memory of the node checked. {_RESUME}", _time(found["at"])
        return event(
            "node-failure", said, short, advice=advice, at=at, clock=clock, host=found["host"], job=found["job"]
        )
    if (found := _OOM.search(line) or _LIMIT.search(line)) is not None:
        said = "SLURM reports that processes were killed at the job's limit of memory"
        return event("memory-limit", said, "memory limit of the job", advice=_MEMORY, job=found["job"])
    if (found := _NODE.search(line)) is not None:
        _, said, short, advice = _WHY["DUE TO NODE FAILURE"]
        return event("node-failure", said, short, advice=advice, host=found["host"])
    if (found := _TASK.search(line)) is not None:
        said = f"srun reports of task {found['tasks']} on {found['host']}: {found['how']}"
        return event("task", said, found["how"].lower(), host=found["host"])
    return None


def _time(text: str) -> tuple[float | None, outside.Clock]:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp(), "local"
    except ValueError:
        return None, ""
