"""Which kernels move data between ranks: by name, by the collective they carry, by their launch and their stream."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from tracelyze.analyzers.kineto.timeline.categories import Activity, Kind
from tracelyze.analyzers.kineto.timeline.table import Integers, Mask, most_frequent
from tracelyze.analyzers.kineto.timeline.trace import Trace

NAMED: Final = re.compile(
    r"nccl(dev)?kernel|^nccl|rccl|hccl|hcom_|oneccl|msccl|deep_?ep::|nvshmem|rocshmem|flux_comm|userbuffers|"
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|cross_device_reduce|one_?shot|two_?shot|multimem|"
    r"(^|_|::)broadcast_?kernel|symm_mem|(^|::|\s)ep::|(inter|intra)node(_ll)?::|low_latency::|ibgda|quick_?reduce|"
    r"custom_?(all_?reduce|ar)\b|\bar_fusion",
    re.IGNORECASE,
)
"""Names that say it themselves: libraries of collectives, and the collectives that custom kernels implement."""

_HEAD: Final = re.compile(r"[^<(]+")
_FUSED: Final = re.compile(r"^triton_[a-z]+_fused_")
"""A name without its template list and parameters; kernels that torch.compile named after all operators around them."""

_LOCAL: Final = re.compile(
    r"at::native|at_cuda_detail|elementwise|cub::|thrust::|Memcpy|Memset|cutlass|gemm|triton_(poi|red|per)_",
    re.IGNORECASE,
)
"""Kernels that prepare and unpack buffers around a collective: on its stream, or in its call, but local work."""

_MOVES: Final = re.compile(r"^dma(_|\b)|^(memcpy|memset)\b", re.IGNORECASE)
"""Transfers that an accelerator reports among its kernels."""

STREAM_SHARE: Final = 0.5
"""A stream belongs to communication if the kernels recognised otherwise fill more than this share of its busy time."""

SEND_RECEIVE: Final = "send-receive"
KINDS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("all-reduce", r"all_?reduce|cross_device_reduce|one_?shot|two_?shot"),
        ("all-gather", r"all_?gather"),
        ("reduce-scatter", r"reduce_?scatter"),
        ("all-to-all", r"all_?to_?all|alltoall|dispatch|combine"),
        ("broadcast", r"broadcast"),
        ("reduce", r"reduce"),
        (SEND_RECEIVE, r"send|recv"),
    )
)


def collective_kind(text: str) -> str:
    """The collective that a kernel's name or its "Collective name" speaks of; "communication" if neither says."""
    return next((kind for kind, pattern in KINDS if pattern.search(text)), "communication")


def says_so(name: str) -> bool:
    """Whether the name of a kernel itself, not that of a type that it works with, says that it communicates."""
    head = _HEAD.match(name.replace("(anonymous namespace)::", ""))
    return head is not None and NAMED.search(head.group()) is not None and _FUSED.match(name) is None


def communication_rows(trace: Trace, launch_of: Integers) -> Mask:
    """The device rows that are communication, shape [device rows]. `launch_of`: each row's launch, -1 if unknown.

    A row counts if its name says so, if it carries a collective's name, or if it was launched inside a communication
    call; of the rest, what runs on a stream that such kernels dominate. The last two hold only away from the stream
    that has most of a device's kernels, and not for local kernels: a call may wrap a good deal of ordinary work.
    """
    device = trace.device
    named = np.array([says_so(name) for name in trace.device_names], dtype=bool)
    local = np.array([bool(_LOCAL.search(name) or _MOVES.search(name)) for name in trace.device_names], dtype=bool)
    if not len(device):
        return np.zeros(0, dtype=bool)
    name = device["name"]
    is_kernel = device["kind"] == Kind.KERNEL
    known: Mask = is_kernel & (named[name] | (device["collective"] > 0))
    rest = is_kernel & ~known & ~local[name] & ~_main_queues(trace, is_kernel)[device["queue"]]
    known |= rest & _inside_calls(trace, launch_of, rest)
    duration = device["end"] - device["start"]
    busy = np.bincount(device["queue"], weights=np.where(is_kernel, duration, 0.0), minlength=len(trace.queues))
    communicating = np.bincount(device["queue"], weights=np.where(known, duration, 0.0), minlength=len(trace.queues))
    dominated = (busy > 0) & (communicating > STREAM_SHARE * busy)
    return np.asarray(known | (rest & dominated[device["queue"]]))


def _main_queues(trace: Trace, is_kernel: Mask) -> Mask:
    """Of all queues, those that have most kernels of their device, shape [queues]."""
    counts = np.bincount(trace.device["queue"][is_kernel], minlength=len(trace.queues))
    most: dict[tuple[Any, Any], int] = {}
    for number, (process, device, _) in enumerate(trace.queues):
        best = most.setdefault((process, device), number)
        if counts[number] > counts[best]:
            most[process, device] = number
    main = np.zeros(len(trace.queues), dtype=bool)
    main[list(most.values())] = True
    return main


def computing_rows(trace: Trace, communication: Mask) -> Mask:
    """The device rows that compute: kernels that neither communicate nor only move data, shape [device rows]."""
    moves = np.array([bool(_MOVES.search(name)) for name in trace.device_names], dtype=bool)
    if not len(trace.device):
        return np.zeros(0, dtype=bool)
    return np.asarray((trace.device["kind"] == Kind.KERNEL) & ~communication & ~moves[trace.device["name"]])


def _inside_calls(trace: Trace, launch_of: Integers, rows: Mask) -> Mask:
    """Of the masked rows, those whose launch lies within a communication call on the launching thread."""
    inside = np.zeros(len(launch_of), dtype=bool)
    calls = trace.host[Activity.COMMUNICATION]
    if not len(calls):
        return inside
    candidates = np.flatnonzero(rows & (launch_of >= 0))
    launches = launch_of[candidates]
    launched, threads = trace.launches["start"][launches], trace.launches["thread"][launches]
    for thread in most_frequent(calls["thread"]):
        own = calls["thread"] == thread
        order = np.argsort(calls["start"][own], kind="stable")
        starts = calls["start"][own][order]
        ends = np.maximum.accumulate(calls["end"][own][order])
        mine = threads == thread
        before = np.searchsorted(starts, launched[mine], side="right") - 1
        inside[candidates[mine]] = (before >= 0) & (ends[before] >= launched[mine])
    return inside
