"""What goes wrong most in a fleet, what it costs, in which runs, and since which commit or on which host."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.diagnosis import severity_rank
from tracelyze.formatting import plural

if TYPE_CHECKING:
    import pyarrow as pa

_READ: Final = ("run", "rule", "status", "severity", "title", "reason", "caused_by", "seconds_lost")
_ABOUT: Final = ("verdict", "started_at", "host", "commit")

_AT_ONCE: Final = 5_000  # rows

MOST: Final = 0.5
"""A commit or host is named where more than this share of the runs with it, and none without it, have the fault: a
share that chance alone reaches in one of 2**n cases for n runs."""
FEWEST: Final = 4
"""Runs with it, and as many judged runs without: fewer agree by accident once in 16 times or more."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Fault:
    """One root cause over all runs. `runs`: each run that has it, with what is wrong there, the gravest first.

    `judged`: how many runs were checked for it. `seconds`: lost in all of them, None if no run shows it.
    `since`: the commit that it came with, with its runs; `where`: the only host that has it; empty where not known.
    """

    rule: str
    severity: str
    runs: dict[str, str]
    judged: int
    seconds: float | None
    since: str
    where: str = ""


@dataclass(frozen=True)
class Summary:
    """The fleet in numbers. `faults` are ordered by the runs that have them, severity and cost; notes come last."""

    runs: int
    verdicts: dict[str, int]
    errors: list[tuple[str, str]]
    faults: list[Fault]

    @property
    def faulty(self) -> int:
        """How many runs have at least one of the faults that are more than a note."""
        return len({run for fault in self.grave for run in fault.runs})

    @property
    def grave(self) -> list[Fault]:
        """The faults that are more than a note."""
        return [fault for fault in self.faults if fault.severity != "info"]


def summarise(fleet: pa.Table) -> Summary:
    """The summary of a fleet's table (see :mod:`tracelyze.fleet.table`)."""
    about: dict[str, Row] = {}
    errors: list[tuple[str, str]] = []
    roots: dict[str, dict[str, Row]] = defaultdict(dict)
    passed: dict[str, list[str]] = defaultdict(list)
    for row in _rows(fleet):
        run = about.setdefault(row["run"], row)["run"]  # one text for all rows of a run
        if row["status"] == "error":
            errors.append((run, row["reason"]))
        elif row["status"] == "fired" and row["caused_by"] is None:
            roots[row["rule"]].setdefault(run, row)
        elif row["status"] == "passed":
            passed[row["rule"]].append(run)
    verdicts = Counter("error" if row["status"] == "error" else str(row["verdict"]) for row in about.values())
    faults = [_fault(rule, found, passed[rule], about) for rule, found in roots.items()]
    faults.sort(
        key=lambda fault: (
            *(fault.severity == "info", -len(fault.runs), severity_rank(fault.severity)),
            *(-(fault.seconds or 0.0), fault.rule),
        )
    )
    return Summary(len(about), dict(verdicts.most_common()), errors, faults)


def _rows(fleet: pa.Table) -> Iterator[Row]:
    """The rows, some thousands at a time: as Python objects all of a large fleet would take ten times its size."""
    for batch in fleet.select([*_READ, *_ABOUT]).to_batches(max_chunksize=_AT_ONCE):
        yield from batch.to_pylist()


def _fault(rule: str, found: Mapping[str, Row], passed: Sequence[str], about: Mapping[str, Row]) -> Fault:
    gravest_first = sorted(found.values(), key=lambda row: (severity_rank(row["severity"]), row["run"]))
    rows = [about[run] for run in found], [about[run] for run in passed]
    since = _since_commit(*rows)
    seconds = [row["seconds_lost"] for row in found.values() if row["seconds_lost"] is not None]
    return Fault(
        rule=rule,
        severity=gravest_first[0]["severity"],
        runs={row["run"]: row["title"] for row in gravest_first},
        judged=len(found) + len(passed),
        seconds=sum(seconds) if seconds else None,
        since=since,
        where="" if since else _on_host(*rows),
    )


def _since_commit(fired: Sequence[Row], passed: Sequence[Row]) -> str:
    """The commit of the first run with the fault, if most runs from it on have the fault and those before had not."""
    known = [row for row in (*fired, *passed) if row["started_at"] and row["commit"]]
    having = {row["run"] for row in fired}
    first = min((row for row in known if row["run"] in having), key=lambda row: row["started_at"], default=None)
    if first is None:
        return ""
    before = [row for row in known if row["started_at"] < first["started_at"]]
    after = [row for row in known if row["started_at"] >= first["started_at"]]
    if any(row["commit"] == first["commit"] for row in before):
        return ""
    count = sum(row["run"] in having for row in after)
    if len(before) < FEWEST or count < FEWEST or count <= MOST * len(after):
        return ""
    return f"commit {first['commit'][:12]}: {count} of {plural(len(after), 'run')}, none of {len(before)} before"


def _on_host(fired: Sequence[Row], passed: Sequence[Row]) -> str:
    """The only host whose runs have the fault, if most of them do and there are other hosts."""
    hosts = {row["host"] for row in fired}
    if len(hosts) != 1 or None in hosts:
        return ""
    (host,) = hosts
    others = [row for row in passed if row["host"] not in (host, None)]
    count, here = len(fired), len(fired) + sum(row["host"] == host for row in passed)
    if len(others) < FEWEST or count < FEWEST or count <= MOST * here:
        return ""
    return f"on host {host} only: {count} of {plural(here, 'run')}, none of {len(others)} elsewhere"
