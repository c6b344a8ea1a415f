"""Traces made by a small simulation of a host that launches work and a device that runs it in order.

What each trace contains is known by construction: durations are whole microseconds given by the caller.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]
MAIN = 100


@dataclass
class Made:
    """Events in the making. `now`: the host's clock, `device_free`: when the device's queue runs empty."""

    rank: int = 0
    world_size: int = 1
    base: float = 1_000_000.0
    properties: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    now: float = 0.0
    device_free: float = 0.0
    correlation: int = 0

    def __post_init__(self) -> None:
        self.now = self.device_free = self.base

    def host(self, name: str, length: float, cat: str = "cpu_op", tid: Any = MAIN) -> Event:
        """Something the host does from now on for `length`; the clock moves on."""
        event = self.span(cat, name, self.now, length, tid=tid)
        self.now += length
        return event

    def span(
        self, cat: str, name: str, start: float, length: float, pid: Any = MAIN, tid: Any = MAIN, **args: Any
    ) -> Event:
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": args}
        self.events.append(event)
        return event

    def launch(
        self,
        name: str,
        length: float,
        host: float = 10,
        cat: str = "kernel",
        call: str = "cudaLaunchKernel",
        **args: Any,
    ) -> float:
        """An operator of `host` us whose call, in its middle, queues `length` us of work; when the work ends."""
        self.correlation += 1
        self.span("cpu_op", f"aten::{name}", self.now, host)
        called = self.now + host / 2
        self.span("cuda_runtime", call, called, host / 4, correlation=self.correlation)
        start = max(self.device_free, called + host / 4)
        stream = args.pop("stream", 7)
        labels = {"device": 0, "stream": stream, "correlation": self.correlation, **args}
        self.span(cat, name, start, length, pid=0, tid=stream, **labels)
        self.device_free = start + length
        self.now += host
        return self.device_free

    def synchronise(self, call: str = "cudaStreamSynchronize") -> None:
        """The host waits until the device has done everything."""
        end = max(self.device_free, self.now) + 2
        self.span("cuda_runtime", call, self.now, end - self.now)
        self.now = end

    def document(self) -> dict[str, Any]:
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Made GPU"}],
            "distributedInfo": {"rank": self.rank, "world_size": self.world_size},
            "traceEvents": self.events,
            **self.properties,
        }

    def write(self, path: Path, **dump: Any) -> Path:
        return write(path, self.document(), **dump)


def write(path: Path, document: Any, **dump: Any) -> Path:
    """A document as JSON, packed if the name ends in .gz."""
    text = json.dumps(document, **dump).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def training(
    steps: int = 6,
    kernels: int = 200,
    kernel: float = 100,
    launch: float = 20,
    loading: float = 0,
    preparing: float = 0,
    waiting: bool = False,
    reading: float = 0,
    allocating: float = 0,
    copying: float = 0,
    communicating: float = 0,
    slow: dict[int, float] | None = None,
    marks: bool = True,
    optimizer: bool = True,
    workers: bool = False,
    rank: int = 0,
    world_size: int = 1,
    base: float = 1_000_000.0,
) -> Made:
    """A training of `steps` steps; times in microseconds. Per step: loading, then preparing, a pageable copy, then
    `kernels` kernels of length `kernel` whose launch takes the host `launch` each, an allocation in their middle, a
    collective, and a wait for the device after every 20 kernels if `waiting`, each followed by `reading` us of
    the host's. `slow` adds host time to single steps. A
    step ends with the device idle.
    """
    made = Made(rank=rank, world_size=world_size, base=base)
    loader = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    for step in range(steps):
        begin = made.now
        if loading:
            made.host(f"enumerate(DataLoader)#{loader}.__next__", loading, "user_annotation")
        if preparing:
            made.host("aten::stack", preparing)
        if copying:
            made.launch("Memcpy HtoD (Pageable -> Device)", copying, cat="gpu_memcpy", call="cudaMemcpyAsync")
            made.synchronise()
        for index in range(kernels):
            made.launch(f"gemm_{index % 5}", kernel, launch)
            if allocating and index == kernels // 2:
                made.synchronise("cudaDeviceSynchronize")
                made.host("cudaMalloc", allocating, "cuda_runtime")
            if waiting and index % 20 == 19:
                made.synchronise()
                if reading:
                    made.host("aten::item", reading)
        if communicating:
            made.launch("ncclDevKernel_AllReduce_Sum_f32", communicating, launch, stream=20)
        if optimizer:
            begun = made.now
            made.launch("multi_tensor_apply", kernel, launch)
            made.span("user_annotation", "Optimizer.step#SGD.step", begun, made.now - begun)
        made.synchronise()
        made.host("python", (slow or {}).get(step, 0.0) + 50, "user_annotation")
        if marks:
            made.span("user_annotation", f"ProfilerStep#{step + 1}", begin, made.now - begin)
    return made
