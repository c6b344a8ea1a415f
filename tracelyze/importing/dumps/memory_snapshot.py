"""Snapshots of torch.cuda.memory (`_dump_snapshot`): what the allocator held when an allocation failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracelyze.errors import Cause, InputError
from tracelyze.formatting import size
from tracelyze.importing.dumps import live_tensors, plain_pickle
from tracelyze.importing.run_builder import Log


@dataclass(frozen=True)
class Level:
    """Bytes of one device at one time: in live tensors, and in segments that the allocator holds."""

    live: int
    reserved: int


def looks_so(head: bytes) -> bool:
    """Whether a file begins as such a snapshot does."""
    return plain_pickle.looks_so(head) and b"segments" in head[:64]


def read(file: Path) -> Log:
    """The first allocation that failed, as the exception that it raised, with what was held then.

    A dump is often taken after the memory was freed: its segments say nothing of the failure. The trace is replayed
    backwards from the dump to the failure instead.
    """
    snapshot = plain_pickle.load(file)
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
        raise InputError(Cause.OTHER_CONTENT, f"{file}: no snapshot of torch.cuda.memory: it lacks segments")
    segments = [segment for segment in snapshot["segments"] if isinstance(segment, dict)]
    traces = snapshot.get("device_traces")
    events: list[dict[str, Any]] = []
    live = live_tensors.in_use(segments)
    for device, trace in enumerate(traces if isinstance(traces, list) else []):
        entries = [entry for entry in trace if isinstance(entry, dict)] if isinstance(trace, list) else []
        failed = next((place for place, entry in enumerate(entries) if entry.get("action") == "oom"), None)
        if failed is not None:
            here = [segment for segment in segments if segment.get("device", 0) == device]
            if not events:
                live = live_tensors.at(entries, failed, live_tensors.in_use(here))
            events += _failure(device, entries[failed], level_at(entries, failed, _level(here)))
    most = live_tensors.largest(live)
    note: tuple[str, ...] = () if events else (f"{file}: no allocation failed in the trace of this snapshot",)
    if most and not events:
        note += (f"live in this snapshot: {'; '.join(most)}",)
    held = _level(segments)
    facts = {"segments": len(segments), "live_bytes": held.live, "reserved_bytes": held.reserved, "live": most}
    return Log("memory-snapshot", file, [], facts, note, {"events": events}, of_training=True)


def _level(segments: Iterable[Mapping[str, Any]]) -> Level:
    listed = list(segments)
    return Level(sum(_whole(s, "allocated_size") for s in listed), sum(_whole(s, "total_size") for s in listed))


def level_at(entries: list[dict[str, Any]], place: int, end: Level) -> Level:
    """What was held at the entry `place` of a trace that ends at `end`: what came after it is taken back."""
    live, reserved = end.live, end.reserved
    for entry in entries[place + 1 :]:
        amount, action = _whole(entry, "size"), entry.get("action")
        live += {"alloc": -amount, "free_completed": amount}.get(str(action), 0)
        reserved += {
            "segment_alloc": -amount,
            "segment_map": -amount,
            "segment_free": amount,
            "segment_unmap": amount,
        }.get(str(action), 0)
    return Level(max(live, 0), max(reserved, 0))


def _failure(device: int, entry: Mapping[str, Any], level: Level) -> list[dict[str, Any]]:
    """Rows of the table events: the exception with what is known of the memory then, and the end."""
    wanted, left = _whole(entry, "size"), _whole(entry, "device_free")
    idle = max(level.reserved - level.live, 0)
    free = f"only {size(idle)} were" if idle else "none was"
    why = (
        f"of {size(level.reserved)} held by the allocator {size(idle)} were free, but in pieces: fragmentation"
        if idle >= wanted > 0
        else f"of {size(level.reserved)} held by the allocator {free} free: capacity, not fragmentation"
    )
    text = (
        f"CUDA out of memory. Tried to allocate {size(wanted)} on device {device} with {size(left)} left there; "
        f"{size(level.live)} were in live tensors; {why}"
    )
    own = live_tensors.own_frame(entry.get("frames"))
    where = {"file": own[0], "line": own[1]} if own else {}
    return [{"kind": "exception", "name": "torch.OutOfMemoryError", "text": text, **where}]


def _whole(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and abs(value) < 2**62 else 0
