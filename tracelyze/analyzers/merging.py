"""The same fault on several ranks or optimizers is one finding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.diagnosis import CONFIDENCES, Cost, Finding, severity_rank
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_CHARTS = 4
SHOWN = 3  # places at which the same fault was found too


def merge(findings: Sequence[Finding]) -> list[Finding]:
    """One finding for all `findings` of one rule: the gravest, which then speaks for all of them. Empty for none.

    Ranks are united, the onset is the earliest, costs are the largest (ranks run side by side), charts of the others
    follow those of the gravest.
    """
    if len(findings) <= 1:
        return list(findings)
    ordered = sorted(findings, key=gravity)
    lead, others = ordered[0], ordered[1:]
    ranks = sorted({rank for finding in findings for rank in finding.ranks})
    summary = lead.summary
    elsewhere = [finding for finding in others if finding.ranks == lead.ranks]
    places = list(dict.fromkeys(place for finding in elsewhere if (place := _place(finding, lead))))
    if places:
        lines_only = all(finding.title == lead.title for finding in elsewhere)
        more = f"; and {plural(len(places) - SHOWN, 'other place')}" if len(places) > SHOWN + 1 else ""
        shown = places[:SHOWN] if more else places
        what = "The same holds elsewhere" if lines_only else "Found besides"
        summary += f" {what}: {'; '.join(shown)}{more}."
    if len(ranks) > 1:
        lines = {finding.location.line for finding in findings if finding.location is not None}
        whose = f"; the line is that of rank {lead.ranks[0]}" if len(lines) > 1 and lead.location is not None else ""
        summary += f" Seen on {plural(len(ranks), 'rank')}: {_listed(ranks)}{whose}."
    charts = [chart for finding in ordered for chart in finding.charts][: max(MAX_CHARTS, len(lead.charts))]
    return [
        replace(
            lead,
            summary=summary,
            ranks=ranks,
            trainings=list(dict.fromkeys(name for finding in ordered for name in finding.trainings)),
            first_step=min((f.first_step for f in findings if f.first_step is not None), default=None),
            last_step=max((f.last_step for f in findings if f.last_step is not None), default=None),
            first_second=min((f.first_second for f in findings if f.first_second is not None), default=None),
            first_at=min((f.first_at for f in findings if f.first_at is not None), default=None),
            cost=_largest([finding.cost for finding in findings]),
            charts=charts,
        )
    ]


def lightened(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, of which :func:`merge` makes the same, without those charts that it would leave out.

    A fault of a thousand ranks has a thousand pictures, of which four are shown.
    """
    drawn = sorted((index for index, one in enumerate(findings) if one.charts), key=lambda at: gravity(findings[at]))
    dropped = set(drawn[MAX_CHARTS:])
    return [replace(one, charts=[]) if index in dropped else one for index, one in enumerate(findings)]


def gravity(finding: Finding) -> tuple[int, int, float, float]:
    """Sort key: gravest first. Severity, confidence, seconds lost, onset."""
    seconds = finding.cost.seconds if finding.cost and finding.cost.seconds is not None else 0.0
    onset = float("inf") if finding.first_step is None else float(finding.first_step)
    return severity_rank(finding.severity), CONFIDENCES.index(finding.confidence), -seconds, onset


def _largest(costs: Sequence[Cost | None]) -> Cost | None:
    known = [cost for cost in costs if cost is not None]
    return max(known, key=lambda cost: (cost.seconds or 0.0, cost.share or 0.0), default=None)


def _place(finding: Finding, lead: Finding) -> str:
    """By what a finding differs from `lead`, which is shown: its title, else its line; empty where neither differs."""
    if finding.title != lead.title:
        return finding.title
    where = finding.location
    same = where is None or (lead.location is not None and where.line == lead.location.line)
    return "" if where is None or same else f"{where.file.rsplit('/', 1)[-1]}:{where.line}"


def _listed(ranks: Sequence[int]) -> str:
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]} to {ranks[-1]}"
    return listed(ranks, most=8)
