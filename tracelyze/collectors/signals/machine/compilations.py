"""What torch.compile has compiled, how often, and where it broke a graph.

torch._dynamo keeps lists of both, which are read once a second from a thread of ours: steps cost nothing. Where the
program does without torch._dynamo, it is not imported for this.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from tracelyze import redaction
from tracelyze.collectors.program.call_sites import is_library
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of

MAX_ROWS = 512
LONGEST = 300  # characters of a reason
RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
COMPILE_ID = re.compile(r"(\d+)/(\d+)$")
GUARD = re.compile(r"^\d+/\d+: (.*?)(?:\s+# .*?:(\d+) in \S+)?$")  # the condition that failed, and the line it is from


class Compilations(Signal):
    name = "compilations"
    columns = columns_of("compilations", "step kind function resumed site reason operators seconds frame again")
    about = "Functions that torch.compile compiled, for the how-manieth time, and where it broke a graph, or gave up."
    cost = "nothing where nothing is compiled; else 20 us a second"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._breaks_read = self._rows = 0
        self._latest: float = 0
        self._sites: dict[tuple[str, int, str], int] = {}
        self._breaks: set[tuple[int | None, str]] = set()

    def every_second(self, row: dict[str, Any]) -> None:
        self._read()

    def finished(self) -> None:
        self._read()

    def _read(self) -> None:
        dynamo = sys.modules.get("torch._dynamo.utils")
        breaks = getattr(dynamo, "graph_break_reasons", None)
        compiled = getattr(dynamo, "get_compilation_metrics", None)
        if isinstance(breaks, list):
            if len(breaks) < self._breaks_read:  # torch.compiler.reset() has emptied it
                self._breaks_read = 0
            new, self._breaks_read = breaks[self._breaks_read :], len(breaks)
            for one in new:
                self._add_break(one)
        if compiled is not None:
            done = [m for m in compiled() if m.co_name and _began(m) > self._latest]
            for one in done:
                self._add_graph(one)

    def _add_break(self, found: Any) -> None:
        """One row for each line and reason, not for each compilation that meets it."""
        reason = _reason(found.reason)
        own = [frame for frame in found.user_stack if not is_library(frame.filename)]
        at = own[-1] if own else found.user_stack[-1]
        resumed = RESUMED.match(at.name)
        function = resumed[1] if resumed else at.name
        site = self._site(at.filename, at.lineno, function) if own else None
        if (site, reason) not in self._breaks:
            self._breaks.add((site, reason))
            self._emit("break", function, site, reason)

    def _add_graph(self, done: Any) -> None:
        self._latest = max(self._latest, _began(done))
        resumed = RESUMED.match(done.co_name)
        function, line = (resumed[1], int(resumed[2])) if resumed else (done.co_name, done.co_firstlineno)
        failed = (str(getattr(done, "recompile_reason", None) or "").splitlines() or [""])[0]
        guard = GUARD.match(failed)
        if guard and guard[2]:
            line = int(guard[2])
        site = None if is_library(done.co_filename) else self._site(done.co_filename, line, function)
        number = COMPILE_ID.search(str(getattr(done, "compile_id", None) or ""))
        if _gave_up(done):
            at, within = getattr(done, "fail_user_frame_filename", None), getattr(done, "fail_user_frame_lineno", None)
            if site is not None and at == done.co_filename and within:
                site = self._site(at, int(within), function)
            frame = int(number[1]) if number else None
            self._emit("given-up", function, site, _reason(done.fail_reason), frame=frame)
            return
        self._emit(
            "graph",
            function,
            site,
            redaction.redact_text((guard[1].partition(" # ")[0].strip() if guard else failed)[:LONGEST]) or None,
            resumed=resumed is not None,
            operators=done.graph_op_count,
            seconds=done.entire_frame_compile_time_s,
            frame=int(number[1]) if number else None,
            again=int(number[2]) if number else None,
        )

    def _site(self, file: str, line: int, function: str) -> int:
        key = (file, line, function)
        if key not in self._sites:
            self._sites[key] = self.program.sites.add("compiled", file, line, function)
        return self._sites[key]

    def _emit(self, kind: str, function: str, site: int | None, reason: str | None, **more: Any) -> None:
        self._rows += 1
        if self._rows <= MAX_ROWS:
            row = {"step": self.progress.steps, "kind": kind, "function": function, "site": site, "reason": reason}
            self.context.emit("compilations", row | more)


def _gave_up(done: Any) -> bool:
    """Whether a function is left to Python as a whole: its graph would break where torch cannot go on behind it."""
    kind, reason = getattr(done, "fail_type", None), str(getattr(done, "fail_reason", None) or "")
    return bool(kind) and ("Unsupported" in str(kind) or "graph break" in reason)


def _reason(found: Any) -> str:
    """The first lines of what torch says of a break."""
    lines = [line.strip() for line in str(found).splitlines() if line.strip()]
    return redaction.redact_text(" ".join(lines[:2])[:LONGEST])


def _began(done: Any) -> float:
    """When a compilation began, in microseconds; torch before 2.6 has seconds."""
    return float(getattr(done, "start_time_us", None) or 1e6 * (getattr(done, "start_time", None) or 0.0))
