"""What got slower or faster between two sets of traces: by cause, by class of kernels, by operator, by kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from tracelyze.analyzers.comparing.noise import ordered, time_change
from tracelyze.analyzers.kineto.attribution.attribution import CAUSE_TEXT, CAUSES
from tracelyze.analyzers.kineto.attribution.kernel_names import short
from tracelyze.analyzers.kineto.attribution.per_step import COMMUNICATION, COPY, KernelTime, Profile
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.diagnose import as_job
from tracelyze.analyzers.kineto.rule import Job
from tracelyze.analyzers.kineto.timeline.table import Integers
from tracelyze.analyzers.recorded.table import Floats
from tracelyze.comparison import Change, Key, Section, Side
from tracelyze.formatting import percent

_COMPUTING: Final = "computing"
_KEYS: Final[Mapping[str, Key]] = {_COMPUTING: "computing", COMMUNICATION: "communication", COPY: "copy"}
"""Parts of a step, and classes of kernels, that the headline asks for."""
_NO_KEYS: Final[Mapping[str, Key]] = {}
SLOW: Final = 1.5
"""Times the median from which on a step counts as a slow one, as in the diagnosis slow-steps."""
MOST_OPERATORS: Final = 20
MOST_KERNELS: Final = 30
_NAME: Final = 100
_LISTED: Final = 3  # names in one sentence
_NO_OPERATOR: Final = "no operator recorded"


@dataclass(frozen=True)
class TraceSide:
    """All traces of one side: ranks and windows of one job, and their collectives matched."""

    path: str
    profiles: list[Profile]

    @cached_property
    def job(self) -> Job:
        return as_job([profile.summary for profile in self.profiles])

    @property
    def counted(self) -> bool:
        """Whether all traces have steps that can be counted."""
        return all(one.counted for one in self.job.summaries)

    def per_step(self, values: Callable[[Profile], Floats]) -> Floats:
        """Values of each step, shape [steps]: the mean over the ranks of a window, window after window."""
        windows: list[list[Floats]] = []
        met: dict[int, int] = defaultdict(int)
        for profile in self.profiles:
            rank = profile.summary.rank
            if met[rank] == len(windows):
                windows.append([])
            windows[met[rank]].append(values(profile))
            met[rank] += 1
        return np.concatenate([_over_ranks(ranks) for ranks in windows]) if windows else np.zeros(0)

    @cached_property
    def step(self) -> Floats:
        """Time of each step in microseconds."""
        return self.per_step(lambda profile: profile.summary.duration)

    @cached_property
    def outliers(self) -> Integers:
        """The steps that took over half as long again as the median, by their index."""
        few = len(self.step) < _LISTED
        return np.zeros(0, dtype=np.int64) if few else np.flatnonzero(self.step > SLOW * np.median(self.step))

    @cached_property
    def parts(self) -> dict[str, Floats]:
        """What each step's time went into, in microseconds: the parts of a step add up to it."""
        names = dict.fromkeys(name for profile in self.profiles for name in _parts(profile.summary, self.job))
        return {
            name: self.per_step(lambda one, name=name: _parts(one.summary, self.job).get(name, _none(one)))  # type: ignore[misc]
            for name in names
        }

    def kernels(self, key: Callable[[KernelTime], str]) -> dict[str, Floats]:
        """Device time of each step by what `key` says of a kernel, in microseconds."""
        by_profile = [(profile, _sums(profile, key)) for profile in self.profiles]
        table = {id(profile): sums for profile, sums in by_profile}
        names = dict.fromkeys(name for _, sums in by_profile for name in sums)
        return {
            name: self.per_step(lambda one, name=name: table[id(one)].get(name, _none(one)))  # type: ignore[misc]
            for name in names
        }

    def overlap(self) -> float | None:
        """Percentage of the communication that computation hides, None without communication."""
        devices = [one.device for one in self.job.summaries if one.device is not None]
        total = sum(device.communication_total for device in devices)
        return 100 * sum(device.overlapped_total for device in devices) / total if total > 0 else None

    def idle(self) -> float | None:
        """Percentage of the time between a device's first and last activity in which it does nothing."""
        devices = [one.device for one in self.job.summaries if one.device is not None]
        span = sum(device.span for device in devices)
        return 100 * (1 - sum(device.span_busy for device in devices) / span) if span > 0 else None

    def described(self) -> Side:
        """This side as the comparison names it."""
        summaries = self.job.summaries
        names = list(dict.fromkeys(name for one in summaries for name in one.device_names))
        facts = {"steps found by": ", ".join(dict.fromkeys(one.steps_from for one in summaries))}
        if names:
            facts["device"] = ", ".join(names[:4])
        ranks = len({one.rank for one in summaries})
        worlds = [one.world_size for one in summaries if one.world_size is not None]
        if worlds:
            facts["ranks in the job"] = str(max(worlds))
        step = round(float(self.step.mean()) / 1e3, 4) if len(self.step) else None
        return Side(self.path, "trace", len(self.step) if self.counted else 0, ranks, step, facts)


def _over_ranks(values: Sequence[Floats]) -> Floats:
    if len({len(one) for one in values}) == 1:
        return np.asarray(np.mean(values, axis=0))
    return np.concatenate(values)


def _none(profile: Profile) -> Floats:
    return np.zeros(len(profile.summary.duration))


def _parts(summary: TraceSummary, job: Job) -> dict[str, Floats]:
    device = summary.device
    if device is None:
        table = summary.host if summary.host is not None else np.zeros((0, len(CAUSES)))
        return {CAUSE_TEXT[name]: table[:, index] for index, name in enumerate(CAUSES)}
    waiting = job.waiting_steps(summary)
    exposed = device.exposed_communication
    parts = {_COMPUTING: device.compute}
    if waiting is None:
        parts["communication, not hidden"] = exposed
    else:
        waited = np.minimum(waiting, exposed)
        parts |= {"waiting for other ranks": waited, "communication, not hidden": exposed - waited}
    parts["copies and fills, not hidden"] = device.exposed_copy
    return parts | {f"idle: {CAUSE_TEXT[name]}": device.causes[:, index] for index, name in enumerate(CAUSES)}


def _sums(profile: Profile, key: Callable[[KernelTime], str]) -> dict[str, Floats]:
    sums: dict[str, Floats] = {}
    for kernel in profile.kernels:
        name = key(kernel)
        sums[name] = sums[name] + kernel.time if name in sums else kernel.time
    return sums


def sections(a: TraceSide, b: TraceSide) -> list[Section]:
    """Every table of the comparison of traces."""
    return [
        Section("step", "The step", "Mean time of a step, and what the device did with it.", _totals(a, b)),
        Section(
            "causes",
            "Where the step went",
            "Parts of a step that add up to it: work of the device, and its idle time by what the host was doing.",
            _compared(a, a.parts, b.parts, len(CAUSES) + 5, _KEYS),
        ),
        Section(
            "classes",
            "By class of kernels",
            "Device time by what the kernels do. Work that runs side by side counts for each.",
            _compared(a, a.kernels(_class), b.kernels(_class), 20, _KEYS),
        ),
        Section(
            "operators",
            "By operator",
            "Device time of the kernels that each outermost operator launched.",
            _shortened(_compared(a, a.kernels(_operator), b.kernels(_operator), MOST_OPERATORS)),
        ),
        Section(
            "kernels",
            "By kernel",
            "Device time of each kernel. What only one side has is put together by the operator that launched it.",
            _by_kernel(a, b),
        ),
    ]


def _class(kernel: KernelTime) -> str:
    return kernel.kind if kernel.kind in (COPY, COMMUNICATION) else f"{kernel.kind} kernels"


def _operator(kernel: KernelTime) -> str:
    return kernel.operator[:_NAME] or _NO_OPERATOR


def _compared(
    a: TraceSide, before: dict[str, Floats], after: dict[str, Floats], most: int, keys: Mapping[str, Key] = _NO_KEYS
) -> list[Change]:
    step = float(a.step.mean()) if len(a.step) else 0.0
    names = dict.fromkeys((*before, *after))
    changes = [time_change(name, before.get(name), after.get(name), step) for name in names]
    return ordered([replace(change, key=keys.get(change.name, "")) for change in changes], most)


def _shortened(changes: Sequence[Change]) -> list[Change]:
    """With names as people say them, and the whole ones beside, where that leaves them different."""
    said = Counter(short(change.name) for change in changes)
    return [
        replace(change, name=short(change.name), detail=change.name)
        if said[short(change.name)] == 1 and short(change.name) != change.name and not change.detail
        else change
        for change in changes
    ]


def _totals(a: TraceSide, b: TraceSide) -> list[Change]:
    step = float(a.step.mean()) if len(a.step) else 0.0
    rows = [replace(time_change("step", a.step, b.step, step), key="step")]
    if len(a.outliers) or len(b.outliers):
        before, after = (np.delete(side.step, side.outliers) for side in (a, b))
        rows.append(replace(time_change("step, without slow ones", before, after, step), key="usual-step"))
    if any(one.device is not None for side in (a, b) for one in side.job.summaries):
        rows += [
            time_change("device busy", a.per_step(_busy), b.per_step(_busy), step),
            time_change("device idle", a.per_step(_idle), b.per_step(_idle), step),
            Change("device idle, first to last activity", _rounded(a.idle()), _rounded(b.idle()), "%"),
        ]
    if a.overlap() is not None or b.overlap() is not None:
        hidden = "communication hidden behind computation"  # its time stands with the classes of kernels
        rows.append(Change(hidden, _rounded(a.overlap()), _rounded(b.overlap()), "%"))
    return rows


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _busy(profile: Profile) -> Floats:
    device = profile.summary.device
    return _none(profile) if device is None else device.busy


def _idle(profile: Profile) -> Floats:
    device = profile.summary.device
    return _none(profile) if device is None else device.idle


def _by_kernel(a: TraceSide, b: TraceSide) -> list[Change]:
    """Kernels of the same name; the others by operator and class, then by class alone."""
    step = float(a.step.mean()) if len(a.step) else 0.0
    names = [{kernel.name for profile in side.profiles for kernel in profile.kernels} for side in (a, b)]
    shared = names[0] & names[1]
    homes = [
        {(k.operator, k.kind) for p in side.profiles for k in p.kernels if k.name not in shared} for side in (a, b)
    ]
    common = homes[0] & homes[1]

    def key(kernel: KernelTime) -> str:
        if kernel.name in shared:
            return kernel.name
        if (kernel.operator, kernel.kind) in common:
            return f"{_class(kernel)} of {short(_operator(kernel))}, by other names"
        return f"{_class(kernel)} of other names and operators"

    before, after = a.kernels(key), b.kernels(key)
    changes = [
        time_change(name, before.get(name), after.get(name), step, "" if name in shared else _names(a, b, key, name))
        for name in dict.fromkeys((*before, *after))
    ]
    return _shortened(ordered(changes, MOST_KERNELS))


def _names(a: TraceSide, b: TraceSide, key: Callable[[KernelTime], str], row: str) -> str:
    """The kernels that a row stands for, on each side."""
    names = []
    for letter, side in (("A", a), ("B", b)):
        times: dict[str, float] = defaultdict(float)
        for profile in side.profiles:
            for kernel in profile.kernels:
                if key(kernel) == row:
                    times[kernel.name] += float(kernel.time.sum())
        if times:
            best = sorted(times, key=lambda name: -times[name])
            more = f" and {len(best) - _LISTED} more" if len(best) > _LISTED else ""
            names.append(f"{letter}: {', '.join(map(short, best[:_LISTED]))}{more}")
    return "; ".join(names)


def notes(a: TraceSide, b: TraceSide) -> list[str]:
    """What limits the comparison."""
    said = [*_unlike(a, b), *dict.fromkeys(note for side in (a, b) for note in _limits(side))]
    sources = [{one.steps_from for one in side.job.summaries} for side in (a, b)]
    if sources[0] != sources[1]:
        said.append(
            f"Steps were found by different marks (A: {_any(sources[0])}, B: {_any(sources[1])}): a step may not be "
            "the same thing on both sides."
        )
    stacks = [any(one.stacks for one in side.job.summaries) for side in (a, b)]
    if stacks[0] != stacks[1]:
        said.append(f"Only {'A' if stacks[0] else 'B'} recorded Python stacks, which slows its host down.")
    return said


def _unlike(a: TraceSide, b: TraceSide) -> list[str]:
    """That the sides ran on other devices, or on other numbers of ranks: then times differ for that reason alone."""
    said = []
    devices = [_any({name for one in side.job.summaries for name in one.device_names}) for side in (a, b)]
    if all(devices) and devices[0] != devices[1]:
        said.append(f"The sides ran on different devices (A: {devices[0]}, B: {devices[1]}).")
    worlds = [max((one.world_size or 0 for one in side.job.summaries), default=0) for side in (a, b)]
    if all(worlds) and worlds[0] != worlds[1]:
        said.append(f"The jobs had different numbers of ranks (A: {worlds[0]}, B: {worlds[1]}).")
    return said


def _any(values: Iterable[str]) -> str:
    return ", ".join(sorted(values))


def _limits(side: TraceSide) -> list[str]:
    said = [f"{side.path}: {note}" for one in side.job.summaries for note in one.notes]
    if not side.counted:
        said.append(f"{side.path}: no steps were found; everything is per trace instead of per step, without noise.")
    if len(side.outliers):
        lost = percent(float(side.step[side.outliers].sum() / side.step.sum()))
        said.append(
            f"{side.path}: {len(side.outliers)} of {len(side.step)} steps took over half as long again as the median, "
            f"{lost} of the time. They are part of all means."
        )
    return said
