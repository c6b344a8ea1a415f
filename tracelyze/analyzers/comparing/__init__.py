"""Two runs, or two sets of profiler traces, side by side: :func:`compare` says what got slower or faster, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracelyze.comparison import Change, Comparison, Section, SettingChange
from tracelyze.errors import Cause, InputError
from tracelyze.version import __version__

if TYPE_CHECKING:
    from tracelyze.analyzers.comparing.traces import TraceSide
    from tracelyze.analyzers.recorded.run import Run

__all__ = ["compare"]

_PROFILED: Final = " (profiler windows)"


def compare(a: Path | str, b: Path | str) -> Comparison:
    """What changed from A to B: trace files, folders of rank files, run directories, imported ones included.

    Two recorded runs are compared by their steps, and by their profiler windows where both have some. Raises
    InputError, in one line, where a path holds neither, and where the two cannot be compared.
    """
    from tracelyze.analyzers import kineto

    before, after = Path(a), Path(b)
    if not any(kineto.is_trace(path) for path in (before, after)):
        return _of_runs(before, after)
    sides = [_trace_side(path) if kineto.is_trace(path) else _profiled(path) for path in (before, after)]
    return _of_traces(sides[0], sides[1])


def _of_traces(one: TraceSide, two: TraceSide) -> Comparison:
    from tracelyze.analyzers.comparing import traces
    from tracelyze.analyzers.comparing.findings import finding_changes
    from tracelyze.analyzers.kineto.diagnose import diagnose_job

    a, b = one.described(), two.described()
    both = [name for name in a.facts if name in b.facts and name in ("device", "ranks in the job")]
    settings = [
        SettingChange("machine", name, a.facts[name], b.facts[name]) for name in both if a.facts[name] != b.facts[name]
    ]
    found = finding_changes(diagnose_job([one.path], one.job), diagnose_job([two.path], two.job))
    sections = [section for section in traces.sections(one, two) if section.changes]
    comparison = Comparison(a, b, "unknown", "", None, sections, found, settings, traces.notes(one, two), __version__)
    return _judged(comparison, "step")


def _of_runs(a: Path, b: Path) -> Comparison:
    from tracelyze.analyzers import engine
    from tracelyze.analyzers.comparing import pictures, runs, settings, traces
    from tracelyze.analyzers.comparing.findings import finding_changes
    from tracelyze.analyzers.recorded import run_directory

    one, two = run_directory.load(a), run_directory.load(b)
    found = finding_changes(engine.diagnose(one), engine.diagnose(two))
    sections = runs.sections(one, two)
    notes = runs.notes(one, two)
    before, after = _windows(one), _windows(two)
    if before is not None and after is not None:
        extra = [section for section in traces.sections(before, after) if section.changes]
        sections += [replace(section, title=section.title + _PROFILED) for section in extra]
        notes += traces.notes(before, after)
    comparison = Comparison(
        runs.side(one),
        runs.side(two),
        "unknown",
        "",
        None,
        sections,
        found,
        settings.setting_changes(one, two),
        notes,
        __version__,
        charts=pictures.charts(one, two),
    )
    return _judged(comparison, "recorded")


def _profiled(path: Path) -> TraceSide:
    """The profiler windows of a recorded run, to be compared with traces."""
    from tracelyze.analyzers.recorded import run_directory

    windows = _windows(run_directory.load(path))
    if windows is None:
        raise InputError(
            Cause.NOT_COMPARABLE,
            f"{path}: a recorded run without profiler windows cannot be compared with a trace; compare it with another "
            "run, or record one with collect --profile-every N",
        )
    return windows


def _trace_side(path: Path) -> TraceSide:
    from tracelyze.analyzers.comparing.traces import TraceSide
    from tracelyze.analyzers.kineto.attribution.per_step import Profile, profile
    from tracelyze.analyzers.kineto.reading import rankfiles

    profiles: list[Profile] = []
    refused: list[InputError] = []
    files = rankfiles.trace_files([path])
    for position, file in zip(rankfiles.positions(files), files, strict=True):
        try:
            profiles.append(profile(file, position))
        except InputError as error:
            refused.append(error)
    if not profiles:
        raise refused[0]
    profiles.sort(key=lambda one: (one.summary.rank, one.summary.begun))
    profiles[0].summary.notes.extend(f"Left out: {error}." for error in refused)
    return TraceSide(str(path), profiles)


def _windows(run: Run) -> TraceSide | None:
    """The profiler windows of a recorded run, None if it has none that can be read."""
    from tracelyze.analyzers.comparing.traces import TraceSide
    from tracelyze.analyzers.kineto.attribution.per_step import Profile, profile
    from tracelyze.analyzers.windows import Windows

    windows = Windows()
    for process in run.processes:
        windows.add(process, run.path)
    profiles: list[Profile] = []
    for key in sorted(windows.found):
        for path, rank in windows.found[key].files.items():
            try:
                profiles.append(profile(path, rank))
            except InputError:
                continue
    return TraceSide(str(run.path), profiles) if profiles else None


def _judged(comparison: Comparison, where: str) -> Comparison:
    """The comparison with its verdict, by the time of a step in the section `where`."""
    from tracelyze.analyzers.comparing.headline import headline, verdict_of

    step: Change | None = next((one for one in comparison.section(where) if one.key == "step"), None)
    explained = _explaining(comparison, where)
    known = step is not None and step.before and step.after
    first, lead = headline(step, explained, comparison.findings, comparison.settings, comparison.other_loss)
    return replace(
        comparison,
        verdict=verdict_of(step),
        headline=first,
        lead=lead,
        ratio=round(step.after / step.before, 4) if known and step and step.before and step.after else None,
    )


def _explaining(comparison: Comparison, where: str) -> list[Section]:
    """The sections that explain the difference: those of traces, else the times that were recorded."""
    if where == "step":
        return comparison.sections
    parts = [one for one in comparison.section("recorded") if one.key in ("loader-wait", "recording")]
    return [Section("causes", "", "", parts), *comparison.sections]
