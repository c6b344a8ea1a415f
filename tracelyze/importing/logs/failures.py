"""How a program ended, from what its console log shows: an exception that nothing caught, or a kill from outside."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

_BEGINS = "Traceback (most recent call last):"
_RAISED = re.compile(
    r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout))(?::\s?(.*))?$"
)
_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d+), in (\S+)')
_LIBRARY = re.compile(
    r"site-packages|dist-packages|/lib/python|/pytorch/torch/|/torch/(?:nn|distributed|utils)/|<frozen"
)
_PREFIX = re.compile(r"^(?:\[?(?:rank|default|worker)?\s?\d+\]?:)+\s?")
# What schedulers, the kernel and launchers say when they end a job, with the signal or the reason.
_KILLS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:slurmstepd|srun): error: .*\b(?:CANCELLED AT .*|DUE TO TIME LIMIT.*)",
        r"\boom[-_ ]?kill\w*\b.*|\bOut of memory: Killed process \d+.*",
        r"\breceived (?:SIGTERM|signal 15)\b.*|\bSignalException: .*\bgot signal: \d+",
        r"\bexitcode\s*:\s*-9\b.*|\bKilled\s*$",
    )
)
_LONGEST = 400  # lines of a traceback that are kept


class Ending:
    """Reads a log line by line and keeps what may be its end: whatever a training goes on after was no end."""

    def __init__(self) -> None:
        self._traceback: deque[str] | None = None
        self._frames: list[tuple[str, int]] = []
        self._sources: list[str] = []
        self._exception: dict[str, Any] | None = None
        self._kill = ""

    def trains_on(self) -> None:
        """A step was logged: what was read before did not end the program."""
        self._traceback, self._exception, self._kill = None, None, ""

    def read(self, line: str) -> None:
        """Take the next line."""
        if not self._kill:
            self._kill = next((found[0].strip() for kill in _KILLS if (found := kill.search(line))), "")
        if line.rstrip().endswith(_BEGINS):
            self._traceback, self._frames, self._sources = deque(maxlen=_LONGEST), [], []
        elif self._traceback is not None and self._exception is None:
            self._in_traceback(line)

    def _in_traceback(self, line: str) -> None:
        assert self._traceback is not None
        text = _PREFIX.sub("", line)
        self._traceback.append(text)
        frame = _FRAME.match(text)
        if frame:
            self._frames.append((frame[1], int(frame[2])))
            self._sources.append("")
        elif self._frames and not self._sources[-1]:
            self._sources[-1] = text.strip()
        raised = _RAISED.match(text.strip())
        if raised and self._frames:
            own = [index for index, (file, _) in enumerate(self._frames) if not _LIBRARY.search(file)]
            place = own[-1] if own else len(self._frames) - 1
            file, number = self._frames[place]
            traceback = "\n".join([_BEGINS, *self._traceback])
            self._exception = {"kind": "exception", "name": raised[1], "file": file, "line": number, "text": traceback}
            self._exception["source"] = self._sources[place]
            self._traceback = None

    def events(self, step: int) -> list[dict[str, Any]]:
        """Rows of the table events: the exception, or the kill, that ended the program after `step` steps."""
        if self._exception is not None:
            end = {"kind": "exit", "name": "exception", "value": 1.0, "step": step}
            return [{**self._exception, "step": step}, end]
        if self._kill:
            return [{"kind": "exit", "name": "signal", "step": step, "text": self._kill[:300]}]
        return []
