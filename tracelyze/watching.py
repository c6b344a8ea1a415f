"""Diagnosing a run again and again while it trains.

What is read is what the program has written so far; nothing is written beside it while it lives. A diagnosis costs more
the longer the run is, so they get rarer as it grows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracelyze.errors import InputError

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis, Finding

SHARE: Final = 0.1
"""Of a core that watching may take: after one second of computing the next diagnosis is ten seconds away."""

MOST_FAILURES: Final = 3
"""Diagnoses in a row that may meet a file which is just being written."""


@dataclass(frozen=True)
class Update:
    """One diagnosis of a run that may go on. `new`: root causes that no diagnosis before has reported."""

    diagnosis: Diagnosis
    new: list[Finding]
    ended: bool

    def certain(self) -> list[Finding]:
        """Critical findings whose mechanism was seen, reported before or not."""
        return [one for one in self.diagnosis.roots() if (one.severity, one.confidence) == ("critical", "certain")]


def watch(path: Path, every: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[Update]:
    """A diagnosis of the run directory `path` every `every` seconds, until the program has ended.

    A finding that is not certain is reported when two diagnoses in a row, or the last one, show it: half a run may look
    like a fault that the whole does not have. InputError, one line, where the run cannot be read.
    """
    from tracelyze import api

    reported: set[str] = set()
    before: set[str] = set()
    failures = 0
    while True:
        began = _core_seconds()
        try:
            diagnosis = api.diagnose(path)
        except InputError:
            failures += 1
            if failures >= MOST_FAILURES or not path.exists():
                raise
        else:
            failures = 0
            ended = _has_ended(path, diagnosis)
            found = {one.rule: one for one in diagnosis.roots()}
            sure = [rule for rule, one in found.items() if ended or rule in before or one.confidence == "certain"]
            new = [found[rule] for rule in sure if rule not in reported]
            reported.update(sure)
            before = set(found)
            yield Update(diagnosis, new, ended)
            if ended:
                return
        sleep(max(every, (_core_seconds() - began) / SHARE))


def _core_seconds() -> float:
    """What this process and its workers have computed: waiting for a busy machine takes nothing from the training."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _has_ended(path: Path, diagnosis: Diagnosis) -> bool:
    """Whether the program is gone. One that has not trained yet is asked for by the process that was started."""
    from tracelyze import analyzers
    from tracelyze.analyzers.recorded.exits import BOOT_ID, lives, text_of

    kind = diagnosis.run.exit.kind
    if kind != "unknown":
        return kind != "running"
    manifest = analyzers.load(path).manifest
    return manifest.get("boot_id") in (None, text_of(BOOT_ID)) and not lives(manifest)
