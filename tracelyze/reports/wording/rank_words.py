"""What is said of ranks that should agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.formatting import listed
from tracelyze.reports import escaping

if TYPE_CHECKING:
    from tracelyze.diagnosis import Agreement, Diagnosis

STATES: Final = {"agree": "OK", "odd": "not OK", "own": "may differ"}
_SHOWN: Final = 8  # ranks that are named
_LONGEST: Final = 300  # characters


def who(one: Agreement) -> str:
    """The ranks that are unlike the others, or nothing."""
    return f"{'rank' if len(one.ranks) == 1 else 'ranks'} {listed(one.ranks, _SHOWN)}" if one.ranks else ""


def said(one: Agreement) -> str:
    """What was compared, and what came of it."""
    return escaping.shortened(escaping.one_line(one.said), _LONGEST)


def odd(diagnosis: Diagnosis) -> list[str]:
    """A line for each thing in which ranks are not as they should be."""
    lines = []
    for one in diagnosis.ranks:
        if one.state == "odd":
            since = f"since step {one.since:,}" if one.since is not None else ""
            where = ", ".join(part for part in (who(one), since) if part)
            lines.append(f"Ranks, {one.name.lower()}{f' ({where})' if where else ''}: {said(one)}")
    return lines
