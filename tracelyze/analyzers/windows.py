"""Windows of torch.profiler that a run recorded: what the rules for Kineto traces say about them.

A window is a few steps, so a rule's finding counts when most windows that could be judged show it. The steps of a trace
are counted from its own start; findings name the steps of the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.kineto.attribution.summary import summarise_file, summarise_trace
from tracelyze.analyzers.kineto.diagnose import as_job, job_charts, judge
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.analyzers.kineto.rules import FIND_LATE_RANKS
from tracelyze.analyzers.merging import gravity
from tracelyze.analyzers.rule import Outcome, Passed, Skipped, together
from tracelyze.diagnosis import Chart, Cost, Evidence, Finding, Picture
from tracelyze.errors import InputError
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.ranks.summary import Summary
    from tracelyze.analyzers.recorded.run import Process

NONE: Final = "no timeline of a few steps was recorded"
MOST: Final = 0.5
MOST_SOURCE: Final = "derived: what is so all the time shows in most windows; single ones meet a checkpoint or an epoch"


@dataclass
class Window:
    """The traces of one window by rank: `files` maps each to its rank. Steps are those of the run.

    `late`: the rank that the others wait for, where a rule says so.
    """

    first_step: int
    last_step: int
    files: dict[Path, int] = field(default_factory=dict)
    late: int | None = None


@dataclass
class Windows:
    """The windows of a run, collected process by process."""

    found: dict[tuple[int, int, int], Window] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, process: Process | Summary, run: Path) -> None:
        """The windows of one process whose traces lie in its folder of `run`."""
        for row in process.windows:
            if not row["file"] or row["first_step"] is None:
                continue
            path = run / process.name / Path(row["file"]).name
            first, last = row["first_step"], row["last_step"] or row["first_step"]
            if path.is_file():
                window = self.found.setdefault((process.attempt, first, process.thread), Window(first, last))
                window.files[path] = process.rank
            else:
                self.notes.append(f"{path.name}: the trace of steps {first} to {last} is missing")

    def judge(
        self, rules: Collection[str], thresholds: Mapping[str, Mapping[str, float]], nothing: str | None
    ) -> dict[str, Outcome]:
        """The answer of each of the trace rules `rules`; a trace that cannot be read is left out and noted.

        `nothing`: why nobody trained, if so.
        """
        answers: dict[str, list[tuple[Window, Outcome]]] = defaultdict(list)
        for key in sorted(self.found) if rules else ():
            try:
                outcomes = judge(self.found[key].files, rules, thresholds)
            except InputError as error:
                self.notes.append(str(error))
                continue
            for rule, outcome in outcomes.items():
                if rule in FIND_LATE_RANKS and isinstance(outcome, list) and outcome:
                    self.found[key].late = outcome[0].ranks[0]
                answers[rule].append((self.found[key], outcome))
        noted = nothing or (f"no profiler window could be read: {self.notes[0]}" if self.notes else "")
        unread = Skipped(noted) if noted else Skipped(NONE, record="--profile-every 100")
        return {rule: _together(answers[rule]) if answers[rule] else unread for rule in rules}

    def picture(self) -> tuple[Picture, list[Chart]]:
        """Timelines and tables of the last window that can be read, when the training was warm, and its charts."""
        from tracelyze.analyzers.kineto.page.picture import Painter

        for key in sorted(self.found, reverse=True):
            window = self.found[key]
            painter = Painter(window.first_step)
            try:
                if len(window.files) == 1:
                    summaries = [summarise_file(path, rank, painter.keep) for path, rank in window.files.items()]
                else:
                    summaries = [summarise_trace(read_trace(path), rank) for path, rank in window.files.items()]
            except InputError:
                continue  # it has been noted by judge()
            picture = painter.finish(summaries)
            if painter.problem:
                self.notes.append(painter.problem)
            job = as_job([painter.numbered(summary) for summary in summaries])
            if window.late is not None:
                painter.late_rank(job.arrivals, window.late)
            return picture, [replace(chart, title=f"{chart.title}, profiled steps") for chart in job_charts(job)]
        return Picture(), []


def _together(answers: Sequence[tuple[Window, Outcome]]) -> Outcome:
    """One answer for all windows."""
    fired = [(window, outcome) for window, outcome in answers if isinstance(outcome, list) and outcome]
    passed = [outcome for _, outcome in answers if isinstance(outcome, Passed)]
    judged = len(fired) + len(passed)
    if not judged:
        first = together([outcome for _, outcome in answers if isinstance(outcome, Skipped)])
        return replace(first, reason=f"{plural(len(answers), 'profiler window')}: {first.reason}")
    if len(fired) <= MOST * judged:
        others = f"; {len(fired)} of {judged} profiler windows show more" if fired else ""
        return Passed(f"{passed[0].reason} (profiler window){others}")
    return [_of_the_run(fired, judged)]


def _of_the_run(fired: Sequence[tuple[Window, list[Finding]]], judged: int) -> Finding:
    """The gravest finding of the windows, in the run's steps, with what it costs per step."""
    window, lead = min(((window, found[0]) for window, found in fired), key=lambda pair: gravity(pair[1]))
    steps = f"profiled steps {window.first_step:,} to {window.last_step:,}"
    several = f" Seen in {len(fired)} of {plural(judged, 'profiler window')}, most clearly in {steps}."
    share = Evidence("profiler windows that show it", len(fired) / judged, "share", MOST, MOST_SOURCE)
    return replace(
        lead,
        summary=lead.summary + several,
        first_step=min(window.first_step for window, _ in fired),
        last_step=max(window.last_step for window, _ in fired),
        ranks=sorted({rank for _, found in fired for rank in found[0].ranks}),
        evidence=[*lead.evidence, share],
        cost=Cost(None, lead.cost.share, lead.cost.of) if lead.cost else None,
        charts=[replace(chart, title=f"{chart.title}, {steps}") for chart in lead.charts],
    )


def joined(recorded: Outcome, profiled: Outcome) -> Outcome:
    """One answer of a rule that both the recorded steps and the windows can give.

    The recorded steps outnumber the profiled ones, which are slower besides; the windows answer where they cannot.
    """
    if isinstance(recorded, Skipped):
        return recorded if isinstance(profiled, Skipped) else profiled
    if not isinstance(recorded, list) or not isinstance(profiled, list):
        return recorded
    shown = profiled[0]
    evidence = [item for item in shown.evidence if item.name not in {known.name for known in recorded[0].evidence}]
    lead = replace(
        recorded[0],
        evidence=[*recorded[0].evidence, *evidence],
        charts=[*recorded[0].charts, *shown.charts],
    )
    return [lead, *recorded[1:]]
