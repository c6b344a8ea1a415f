"""The facts of a run in words: which program, when, on what device, which code, and how it ended."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import escaping
from tracelyze.reports.wording import words

if TYPE_CHECKING:
    from tracelyze.diagnosis import RunFacts

_CPU = re.compile(
    r"x86|amd64|i\d86|\barm|aarch|ppc|riscv|epyc|xeon|ryzen|threadripper|\bcore\b|graviton", re.IGNORECASE
)


def program(run: RunFacts) -> str:
    """The name of the script or module; else that of the run."""
    arguments = run.command
    for index, argument in enumerate(arguments):
        if argument == "-m" and index + 1 < len(arguments) and not arguments[index + 1].startswith("torch."):
            return escaping.one_line(arguments[index + 1])
        if argument.endswith((".py", ".ipynb")):
            return escaping.one_line(PurePath(argument).name)
    return escaping.one_line(PurePath(arguments[0] if arguments else run.path).name or run.path)


def date(stamp: str | None) -> str:
    """`22 Nov 2026, 13:32:27 UTC`."""
    time = _parsed(stamp)
    if time is None:
        return escaping.one_line(stamp or "")
    return f"{time.day} {time:%b %Y, %H:%M:%S} UTC"


def clock(stamp: str | None) -> str:
    """`13:32:29 UTC`, empty if unknown."""
    time = _parsed(stamp)
    return "" if time is None else f"{time:%H:%M:%S} UTC"


def device(run: RunFacts) -> str:
    """The device by name; a bare architecture is a CPU."""
    name = escaping.one_line(run.environment.get("device", ""))
    return f"CPU ({name})" if name and _CPU.search(name) and "cpu" not in name.lower() else name


def code(run: RunFacts) -> str:
    """The git commit and whether the working tree was clean; empty if unknown."""
    if not run.commit:
        return ""
    state = {True: ", clean", False: ", with changes", None: ""}[run.clean]
    return f"commit {escaping.one_line(run.commit)[:12]}{state}"


def extent(run: RunFacts) -> str:
    """How many steps and ranks there were, as far as there were any."""
    ranks = formatting.plural(run.ranks, "rank") if run.ranks else ""
    return ", ".join(part for part in (words.size(run) if run.steps else "", ranks) if part)


def ending(run: RunFacts) -> str:
    """How the program ended, and after how long; empty where no program was watched: a trace, a log."""
    if run.exit.kind == "unknown":
        return ""
    said = words.ENDED.get(run.exit.kind, escaping.one_line(run.exit.kind))
    exit_code = f", exit code {run.exit.code}" if run.exit.code is not None else ""
    return f"{said}{exit_code}" + (f", after {formatting.duration(run.duration_s)}" if run.duration_s else "")


def _parsed(stamp: str | None) -> datetime | None:
    try:
        time = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
