"""What one trace says, as data: the steps, where their time went, the kernels and operators that took it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tracelyze.analyzers.kineto.attribution import attribution, kernels, totals
from tracelyze.analyzers.kineto.attribution.attribution import CAUSES, DeviceTime, HostRanges, Work
from tracelyze.analyzers.kineto.attribution.collectives import CollectiveTimes
from tracelyze.analyzers.kineto.attribution.optimizers import OptimizerTotal, optimizer_total
from tracelyze.analyzers.kineto.attribution.totals import CallTotal, KernelTotal, OperatorTotal, PageableCopies
from tracelyze.analyzers.kineto.reading import rankfiles
from tracelyze.analyzers.kineto.reading.blocks import Blocks
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.analyzers.kineto.timeline.categories import Activity
from tracelyze.analyzers.kineto.timeline.memory import MemoryUse, memory_use
from tracelyze.analyzers.kineto.timeline.steps import Steps, as_executed, find_steps, on_device_clock
from tracelyze.analyzers.kineto.timeline.table import Array, Floats, Integers, Mask, median, most_frequent
from tracelyze.analyzers.kineto.timeline.trace import Trace
from tracelyze.errors import InputError


@dataclass(frozen=True)
class TraceSummary:
    """One trace file, summed up. Times are microseconds. `file`: its name, also if `path` is the folder of its import.

    `steps_from`: what the steps were found by; `counted`: False if there is one window over the whole trace.
    `number`, `start` (from the first step on) and `duration`: the steps, shape [steps]. `begun`: the first step's
    start on the clock that the files of one job share. `devices`: the accelerators, busiest first. `host`: for a
    trace without device work, what the thread of the steps did, shape [steps, CAUSES], else None. `capability`: the
    compute capability of NVIDIA devices, where known. `executed`: length of the steps on the device's clock, where it
    can be found, shape [steps]; `batches`: calls of the loader by step, shape [steps].
    """

    path: str
    file: str
    rank: int
    world_size: int | None
    device_names: list[str]
    steps_from: str
    counted: bool
    number: Integers
    start: Floats
    duration: Floats
    begun: float
    devices: list[DeviceTime]
    host: Floats | None
    kernels: list[KernelTotal]
    operators: list[OperatorTotal]
    loaders: list[CallTotal]
    syncs: list[CallTotal]
    allocations: list[CallTotal]
    pageable: PageableCopies
    optimizer: OptimizerTotal | None
    memory: MemoryUse | None
    capability: tuple[int, int] | None
    executed: Floats | None
    batches: Integers
    collectives: CollectiveTimes | None
    events: int
    truncated: bool
    stacks: bool
    notes: list[str] = field(default_factory=list)

    @property
    def device(self) -> DeviceTime | None:
        """The busiest device; None if the trace has no device work."""
        return self.devices[0] if self.devices else None

    @property
    def window(self) -> float:
        """All steps together, in microseconds."""
        return float(self.duration.sum())

    @property
    def epoch_starts(self) -> Mask:
        """Steps with more calls of the loader than usual: the one that finds it at its end, and the next epoch's first.

        Shape [steps].
        """
        usual = median(self.batches) if len(self.batches) else 0.0
        return np.asarray((self.batches > usual) & (usual > 0), dtype=bool)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: one entry per step, one per device, with the causes by name."""
        return {
            "path": self.path,
            "file": self.file,
            "rank": self.rank,
            "world_size": self.world_size,
            "device_names": self.device_names,
            "steps_from": self.steps_from,
            "counted": self.counted,
            "events": self.events,
            "truncated": self.truncated,
            "steps": {"number": _list(self.number), "start_us": _list(self.start), "duration_us": _list(self.duration)},
            "devices": [_device(device) for device in self.devices],
            "host_us": None if self.host is None else _causes(self.host),
            "kernels": [vars(kernel) for kernel in self.kernels],
            "operators": [vars(operator) for operator in self.operators],
            "loaders": [vars(call) for call in self.loaders],
            "syncs": [vars(call) for call in self.syncs],
            "allocations": [vars(call) for call in self.allocations],
            "pageable_copies": vars(self.pageable),
            "optimizer": None if self.optimizer is None else vars(self.optimizer),
            "memory": None if self.memory is None else vars(self.memory),
            "notes": self.notes,
        }


@dataclass(frozen=True)
class Attributed:
    """A trace while all of it is in memory. `launch_of`: the launch of each device row; `rows`: those of each device.

    `blocks`: where in the file to read again; it is empty for a trace that was imported.
    """

    trace: Trace
    steps: Steps
    launch_of: Integers
    work: Work
    host: HostRanges
    rows: dict[str, Array | slice]
    blocks: Blocks


Keep = Callable[[Attributed, "TraceSummary"], None]
"""Takes from a trace, before it is given up, what a picture needs of it."""


def summarise(paths: Sequence[Path | str], keep: Keep | None = None) -> list[TraceSummary]:
    """A summary of each trace, folders replaced by the traces in them, ordered by rank and then by time.

    One unreadable file among several is noted and left out. Raises InputError where no path holds a trace. `keep` gets
    to see the trace, if it is the only one.
    """
    files = rankfiles.trace_files(paths)
    show = keep if len(files) == 1 else None
    summaries: list[TraceSummary] = []
    refused: list[InputError] = []
    for position, path in zip(rankfiles.positions(files), files, strict=True):
        try:
            read = summarise_trace(read_trace(path), position) if show is None else summarise_file(path, position, show)
            summaries.append(read)
        except InputError as error:
            refused.append(error)
    if not summaries:
        raise refused[0]
    left_out = [*map(str, refused), *(reason for path in paths for reason in rankfiles.left_out(Path(path)))]
    summaries[0].notes.extend(f"Left out: {reason}." for reason in left_out)
    return sorted(summaries, key=lambda summary: (summary.rank, summary.begun))


def summarise_file(path: Path, position: int, keep: Keep) -> TraceSummary:
    """The summary of one trace file, shown to `keep`."""
    blocks = Blocks()
    return summarise_trace(read_trace(path, blocks), position, keep, blocks)


def summarise_trace(
    trace: Trace, position: int = 0, keep: Keep | None = None, blocks: Blocks | None = None
) -> TraceSummary:
    """The summary of one trace, which is used up. `position`: its rank if neither the file nor its name holds one."""
    steps = find_steps(trace) or Steps("nothing", np.zeros(0, np.int64), np.zeros(0), np.zeros(0), -1, counted=False)
    host = HostRanges(trace)
    launch_of = attribution.launches_of(trace)
    for table in (trace.device, trace.launches):
        table.drop("correlation")  # a large trace has a million of them, and the links are made
    marks, executed = steps, on_device_clock(trace, steps, launch_of)
    steps = as_executed(trace, steps, executed)
    communication = kernels.communication_rows(trace, launch_of)
    work = Work(communication, kernels.computing_rows(trace, communication))
    owners = _owners(trace)
    devices = [
        attribution.device_time(trace, steps, name, rows, launch_of, work, host) for name, rows in owners if len(steps)
    ]
    notes = list(trace.notes)
    if len(steps) and not devices:
        notes.append("The trace holds no device activity: only the host's side of each step could be looked at.")
    if devices and not len(trace.launches) and not any(len(table) for table in trace.host.values()):
        notes.append("The trace holds no host activity: why the device was idle is not known.")
    if len(devices) > 1:
        notes.append(f"The trace holds {len(devices)} devices; the findings are about the busiest of them.")
    origin = float(steps.start[0]) if len(steps) else 0.0
    summary = TraceSummary(
        path=str(trace.path),
        file=trace.file,
        rank=rankfiles.rank_of(trace, position),
        world_size=rankfiles.world_size(trace),
        device_names=rankfiles.device_names(trace, [name for name, _ in owners]),
        steps_from=steps.source,
        counted=steps.counted,
        number=steps.number,
        start=steps.start - origin,
        duration=steps.end - steps.start,
        begun=origin + trace.base,
        devices=sorted(devices, key=lambda device: -device.span_busy),
        host=attribution.host_time(steps, host) if len(steps) and not devices else None,
        kernels=totals.kernel_totals(trace, work),
        operators=totals.operator_totals(trace, launch_of),
        loaders=totals.call_totals(trace, Activity.INPUT, marks),
        syncs=totals.call_totals(trace, Activity.SYNC, marks),
        allocations=totals.call_totals(trace, Activity.ALLOCATOR, marks),
        pageable=totals.pageable_copies(trace, steps, work),
        optimizer=optimizer_total(trace, marks, launch_of),
        memory=memory_use(trace, marks),
        executed=None if executed is None else executed.end - executed.start,
        batches=totals.calls_per_step(trace, Activity.INPUT, marks),
        capability=rankfiles.capability(trace),
        collectives=_collectives(trace, steps, communication),
        events=trace.events,
        truncated=trace.truncated,
        stacks=trace.stacks,
        notes=notes,
    )
    if keep is not None:
        keep(Attributed(trace, steps, launch_of, work, host, dict(owners), blocks or Blocks()), summary)
    return summary


def _owners(trace: Trace) -> list[tuple[str, Array | slice]]:
    """The devices of the trace and the rows of each."""
    if not len(trace.device):
        return []
    names = [str(process if device == -1 else device) for process, device, _ in trace.queues]
    distinct = {name: index for index, name in enumerate(sorted(set(names)))}
    if len(distinct) == 1:
        return [(names[0], slice(None))]
    owner = np.array([distinct[name] for name in names])[trace.device["queue"]]
    ordered = list(distinct)
    return [(ordered[index], np.flatnonzero(owner == index)) for index in sorted(most_frequent(owner))]


def _collectives(trace: Trace, steps: Steps, communication: Array) -> CollectiveTimes | None:
    rows = np.flatnonzero(communication)
    if not len(rows):
        return None
    start, end = trace.device["start"][rows], trace.device["end"][rows]
    known: dict[tuple[int, int], str] = {}
    labels = []
    for name, collective in zip(
        trace.device["name"][rows].tolist(), trace.device["collective"][rows].tolist(), strict=True
    ):
        if (name, collective) not in known:
            said = trace.collectives[collective]
            kind = kernels.collective_kind(said.name or trace.device_names[name])
            known[name, collective] = f"{kind} [{said.group}]" if said.group else kind
        labels.append(known[name, collective])
    keys = sorted(set(labels))
    place = {label: index for index, label in enumerate(keys)}
    key = np.array([place[label] for label in labels], dtype=np.int64)
    step = np.searchsorted(steps.start, start, side="right") - 1
    step = np.where((step >= 0) & (start <= steps.end[np.maximum(step, 0)]), step, -1) if len(steps) else step
    return CollectiveTimes(keys, key, start + trace.base, end + trace.base, step)


def _device(device: DeviceTime) -> dict[str, Any]:
    columns = {
        "busy_us": device.busy,
        "idle_us": device.idle,
        "compute_us": device.compute,
        "communication_us": device.communication,
        "exposed_communication_us": device.exposed_communication,
        "exposed_copy_us": device.exposed_copy,
        "idle_after_sync_us": device.after_sync,
        "host_waited_us": device.waited,
    }
    return {
        "device": device.process,
        "activities": device.activities,
        "span_us": device.span,
        "span_busy_us": device.span_busy,
        "idle_by_cause_us": _causes(device.causes),
        **{name: _list(values) for name, values in columns.items()},
    }


def _causes(causes: Floats) -> dict[str, list[float]]:
    return {name: _list(causes[:, index]) for index, name in enumerate(CAUSES) if causes[:, index].any()}


def _list(values: Array) -> list[Any]:
    return [round(value, 3) if isinstance(value, float) else value for value in values.tolist()]
