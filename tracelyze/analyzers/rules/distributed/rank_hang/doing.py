"""What a rank did when it was last seen, from the stacks that were written down and from its end."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from tracelyze.analyzers.recorded import deaths, exits
from tracelyze.diagnosis import Location
from tracelyze.formatting import plural, shortened

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Did = Literal["debugger", "loader", "checkpoint", "collective", "network", "program", "keyboard"]
SAID: Final[dict[Did, str]] = {
    "debugger": "stood in a debugger",
    "loader": "waited for its data loader",
    "checkpoint": "read or wrote a checkpoint",
    "collective": "waited in a collective",
    "network": "waited for the network",
    "program": "waited for another program",
    "keyboard": "waited for input from the keyboard",
}
ASKING: Final[tuple[Did, ...]] = ("debugger", "keyboard")  # it waits for somebody
FRAMES: Final[tuple[tuple[re.Pattern[str], Did], ...]] = (
    (re.compile(r"(^|/)(pdb|bdb|ipdb/\S+|debugpy/\S+)\.py"), "debugger"),
    (re.compile(r"torch/utils/data/|multiprocessing/queues"), "loader"),
    (re.compile(r"torch/serialization|torch/distributed/checkpoint|safetensors"), "checkpoint"),
    (re.compile(r"torch/distributed/"), "collective"),
    (re.compile(r"(^|/)(ssl|socket|http/client|urllib3?/\S+)\.py"), "network"),
    (re.compile(r"(^|/)(subprocess|popen_\w+)\.py"), "program"),
)
"""What the innermost frames of a stack mean."""
ASKS: Final = re.compile(r"\binput\(")  # as a line of the program says: it has no frame of its own
INNERMOST: Final = 4  # frames that are looked at
MOST_LINES: Final = 12  # of a stack that are kept


@dataclass(frozen=True)
class Doing:
    """What a rank did, as a clause without the rank; the line of the program, and the stack, innermost last.

    `ended`: with exit code 0. `did`: what it was about, as far as its frames show.
    """

    what: str
    location: Location | None = None
    stack: str = ""
    running: bool = False
    ended: bool = False
    did: Did | None = None


def of(process: Process) -> Doing:
    """What this process did when it was last seen."""
    seen = _last_stack(process)
    place = Location(seen["file"], seen["line"] or 0, "", seen["source"] or "") if seen and seen["file"] else None
    stack = "\n".join(str(seen["text"] or "").split("\nthread ")[0].splitlines()[1:][-MOST_LINES:]) if seen else ""
    at = f" at {place.file.rsplit('/', 1)[-1]}:{place.line}" if place else ""
    did = _meaning(stack)
    if place and ASKS.search(place.source) and did is None:
        did = "keyboard"
    end = process.exit
    after = f"after {plural(len(process.steps), 'step')}"
    if end.kind == "finished":
        what = f"ended with exit code {end.code} {after}" if end.code else f"ended normally {after}"
        return Doing(what, ended=not end.code)
    if end.kind == "exception" and seen is None:
        return Doing(f"ended {after} in {shortened(end.detail, 120)}", _line_of_exception(process))
    if end.kind in ("vanished", "signal") and seen is None:
        place = _with_source(process, exits.place_of(end, process.sites.text("file")))
        if place is not None:
            at, debugged = f"{place.file.rsplit('/', 1)[-1]}:{place.line}", exits.stood_in_debugger(end.detail)
            how = exits.reason(end.detail)
            how = f"was {how}" if how.startswith(exits.REQUESTED) else f"ended ({shortened(how, 120)})"
            did = "debugger" if debugged else "keyboard" if ASKS.search(place.source) else None
            where = SAID[did] if did is not None else f"was in {place.function}()"
            return Doing(f"{where} at {at} when it {how}, {after}", place, did=did)
        return Doing(f"was gone {after} ({shortened(end.detail or end.kind, 120)})", place)
    if seen is None:
        return Doing(f"was at work, {after}", running=end.kind == "running")
    function = stack.splitlines()[-1].rpartition(" ")[2] if stack else ""
    what = SAID[did] if did is not None else f"was in {function or 'the program'}"
    return Doing(what + at, place, stack, end.kind == "running", did=did)


def _with_source(process: Process, place: Location | None) -> Location | None:
    """The place with the text of its line, where that is among the lines that were sampled or used."""
    if place is None:
        return None
    known = (row["source"] for row in process.sites.records() if (row["file"], row["line"]) == place.file_line)
    return replace(place, source=next((str(source) for source in known if source), ""))


def _meaning(stack: str) -> Did | None:
    innermost = [line.strip() for line in stack.splitlines()[-INNERMOST:]]
    return next((did for pattern, did in FRAMES if any(map(pattern.search, innermost))), None)


def _line_of_exception(process: Process) -> Location | None:
    """The line of the program that an exception left at last."""
    raised = deaths.last_exception(process)
    if raised is None or not raised["file"]:
        return None
    return Location(raised["file"], raised["line"] or 0, "", raised["source"] or "")


def _last_stack(process: Process) -> dict[str, Any] | None:
    """The stacks that were last written down for lack of progress, if no step came after them."""
    found = process.events_of("stacks")
    if not found:
        return None
    last = last_step(process)
    return found[-1] if float(found[-1]["time"] or 0.0) > last else None


def last_step(process: Process) -> float:
    """When the last step ended, on the process's clock; minus infinity without any."""
    times = process.steps["time"]
    return float(np.nanmax(times)) if np.isfinite(times).any() else float("-inf")
