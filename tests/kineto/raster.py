"""Traces whose every microsecond is known, and what a step's time went into by looking at each microsecond alone.

An independent second opinion: :func:`truth` shares no code with the package, and works on the simulated program, not on
the trace, so that it knows the launch of every piece of work also where the trace does not tell it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.kineto.made import Event

PRIORITY = "garbage input sync allocator copy communication checkpoint optimizer launch operator python".split()
GENERAL = ("launch", "operator", "python", "unrecorded")
MAIN, BACKWARD = 4242, 4300
PARTS = ("duration", "busy", "compute", "communication", "exposed_communication", "exposed_copy")


@dataclass
class Range:
    """A stretch of host activity. `role`: what it is, for the words of a trace; `number`: what it launches, if it is
    a runtime call."""

    activity: str
    role: str
    start: int
    end: int
    thread: int
    number: int | None = None


@dataclass
class Work:
    """Device work, its launch, and the number that the trace gives it."""

    kind: str
    role: str
    start: int
    end: int
    device: int
    stream: int
    number: int
    launched: int
    thread: int


@dataclass
class Program:
    """A host and devices, in whole microseconds. `now`: the host's clock; `free`: when each stream runs empty."""

    seed: int = 0
    now: int = 1000
    host: list[Range] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    free: dict[tuple[int, int], int] = field(default_factory=dict)
    numbers: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def spend(self, activity: str, role: str, length: int, thread: int = MAIN) -> None:
        """The host does something for `length`."""
        self.host.append(Range(activity, role, self.now, self.now + length, thread))
        self.now += length

    def launch(
        self,
        kind: str,
        role: str,
        length: int,
        thread: int = MAIN,
        device: int = 0,
        stream: int = 7,
        host: int = 12,
        after: int = 0,
        call: str = "launch",
    ) -> int:
        """An operator of `host` us, a call in its middle, and the work behind it; when the work ends."""
        begun, called = self.now, self.now + host // 3
        returned = called + max(1, host // 3)
        self.numbers += 1
        start = max(self.free.get((device, stream), 0), returned + self.random.randint(1, 4), after)
        end = self.free[device, stream] = start + length
        self.host.append(Range("operator", "operator", begun, begun + host, thread))
        activity = {"launch": "launch", "copy": "copy"}[call]
        self.host.append(Range(activity, call, called, returned, thread, self.numbers))
        self.work.append(Work(kind, role, start, end, device, stream, self.numbers, called, thread))
        self.now = begun + host
        return end

    def replay(self, kernels: int, length: int, pause: int, numbered: bool) -> None:
        """One call that starts many kernels, a pause between each two; `numbered`: they bear its number."""
        self.numbers += 1
        self.host.append(Range("launch", "graph", self.now, self.now + 30, MAIN, self.numbers))
        start = max(self.free.get((0, 7), 0), self.now + 20)
        for index in range(kernels):
            number = self.numbers if numbered else 0
            self.work.append(Work("compute", f"gemm_{index % 7}", start, start + length, 0, 7, number, self.now, MAIN))
            start += length + pause
        self.free[0, 7] = start - pause
        self.now += 30

    def synchronise(self, device: int = 0, role: str = "stream synchronise") -> None:
        """The host waits until the device is done."""
        end = max([self.now, *(free for (one, _), free in self.free.items() if one == device)]) + 2
        self.spend("sync", role, end - self.now)

    def end_step(self, begun: int, number: int | None = None) -> None:
        self.steps.append((len(self.steps) if number is None else number, begun, self.now))


def training(  # noqa: C901 - one parameter, one line
    seed: int = 1,
    steps: int = 5,
    kernels: int = 60,
    kernel: int = 80,
    loading: int = 0,
    preparing: int = 0,
    communicating: int = 0,
    overlapped: bool = True,
    allocating: int = 0,
    saving: int = 0,
    collecting: int = 0,
    every: int = 2,
    batches: int = 1,
    validating: bool = False,
    first: int = 0,
    host: int = 12,
) -> Program:
    """A data-parallel training: forward on one thread, backward on another, all-reduces on a stream of their own."""
    made = Program(seed)
    for step in range(steps):
        begun = made.now
        for batch in range(batches):
            if loading:
                made.spend("input", "loader", loading)
            if preparing:
                made.spend("operator", "operator", preparing)
            made.launch("copy", "to device", 40, call="copy")
            for index in range(kernels // 3):
                made.launch("compute", f"gemm_{index % 5}", kernel + made.random.randint(0, 9), host=host)
            made.now += made.random.randint(1, 9)
            back = made.now
            for index in range(2 * kernels // 3):
                length = kernel + made.random.randint(0, 9)
                end = made.launch("compute", f"gemm_{index % 5}", length, thread=BACKWARD, host=host)
                if communicating and index % 10 == 9 and batch == batches - 1:
                    after = end - kernel if overlapped else end
                    made.launch("communication", "all-reduce", communicating, BACKWARD, stream=20, host=9, after=after)
            made.host.append(Range("operator", "operator", back, made.now, MAIN))
        if allocating:
            made.synchronise(role="device synchronise")
            made.spend("allocator", "allocate", allocating)
        begun_update = made.now
        made.launch("compute", "multi_tensor_apply_kernel", 60, after=max(made.free.values()))
        made.host.append(Range("optimizer", "optimizer", begun_update, made.now, MAIN))
        if saving and step % every == every - 1:
            made.synchronise()
            made.spend("checkpoint", "save", saving)
        if collecting and step % every == every - 1:
            made.synchronise()
            made.spend("garbage", "collect", collecting)
        if validating and step % 3 == 2:
            for index in range(40):
                made.launch("compute", f"gemm_{index % 3}", kernel, host=host)
        made.synchronise()
        made.now += made.random.randint(3, 20)
        made.end_step(begun, first + step)
    return made


def pipeline(steps: int = 5) -> Program:
    """One process, two devices: micro-batches pass from the first to the second."""
    made = Program(3)
    for _ in range(steps):
        begun = made.now
        made.spend("input", "loader", 800)
        for _ in range(4):
            for index in range(10):
                made.launch("compute", f"gemm_{index % 3}", 150)
            passed = made.launch("copy", "Memcpy PtoP (Device -> Device)", 50, call="copy")
            for index in range(10):
                made.launch("compute", f"gemm_{index % 3}", 150, device=1, after=passed)
        for device in (0, 1):
            made.launch("compute", "multi_tensor_apply_kernel", 60, device=device)
        made.synchronise(0)
        made.synchronise(1)
        made.end_step(begun)
    return made


def decoding(steps: int = 6, numbered: bool = True, copied: bool = True) -> Program:
    """A graph per step, with the host waiting for it."""
    made = Program(3)
    for _ in range(steps):
        begun = made.now
        if copied:
            made.launch("copy", "to device", 40, call="copy")
        made.replay(200, 30, 12, numbered)
        made.synchronise()
        made.spend("python", "metrics", 500)
        made.end_step(begun)
    return made


def anything(seed: int) -> Program:
    """A few steps of anything in any order, from `seed`."""
    made = Program(seed)
    chosen = made.random
    waits = {
        "input": "loader",
        "allocator": "allocate",
        "checkpoint": "save",
        "garbage": "collect",
        "python": "metrics",
    }
    for _ in range(chosen.randint(3, 6)):
        begun = made.now
        for _ in range(chosen.randint(1, 6)):
            what = chosen.choice(
                [*waits, "forward", "backward", "sync", "communication", "copy", "graph", "", "update"]
            )
            before = made.now
            if what in waits:
                made.spend(what, waits[what], chosen.randint(10, 3_000))
            elif what in ("forward", "backward"):
                thread = MAIN if what == "forward" else BACKWARD
                for index in range(chosen.randint(1, 25)):
                    stream, length, host = chosen.choice([7, 7, 7, 20]), chosen.randint(2, 200), chosen.randint(9, 60)
                    made.launch("compute", f"gemm_{index % 3}", length, thread, stream=stream, host=host)
                made.host.append(Range("operator", "operator", before, made.now, MAIN))
            elif what == "communication":
                after = before + chosen.randint(0, 500)
                made.launch(what, "all-reduce", chosen.randint(10, 3_000), BACKWARD, stream=20, after=after)
            elif what == "copy":
                made.launch(what, "to device", chosen.randint(3, 800), stream=chosen.choice([7, 20]), call="copy")
            elif what == "graph":
                made.replay(chosen.randint(2, 50), chosen.randint(2, 40), chosen.randint(0, 9), True)
            elif what == "update":
                made.launch("compute", "multi_tensor_apply_kernel", 60)
                made.host.append(Range("optimizer", "optimizer", before, made.now, MAIN))
            elif what == "sync":
                made.synchronise()
            else:
                made.now += chosen.randint(10, 1_500)
        if chosen.random() < 0.7:
            made.synchronise()
        made.now += chosen.randint(1, 50)
        made.end_step(begun)
    return made


def truth(made: Program, steps: list[tuple[int, int, int]] | None = None) -> dict[int, list[dict[str, Any]]]:
    """By device and step: number, the parts of PARTS in microseconds, and idle time by cause."""
    steps = steps or made.steps
    length = max(made.now, *(one.end for one in [*made.work, *made.host])) + 1
    doing = {(thread, name): np.zeros(length, bool) for thread in (MAIN, BACKWARD) for name in PRIORITY}
    for one in made.host:
        doing[one.thread, one.activity][one.start : one.end] = True
    launches = [one.start for one in made.host if one.number is not None]
    return {
        device: [
            _step(sorted((one for one in made.work if one.device == device), key=lambda w: w.start), doing, launches, s)
            for s in steps
        ]
        for device in sorted({one.device for one in made.work})
    }


def _step(
    rows: list[Work], doing: dict[tuple[int, str], Any], launches: list[int], step: tuple[int, int, int]
) -> dict[str, Any]:
    number, begin, end = step
    length = len(next(iter(doing.values())))
    on = {kind: np.zeros(length, bool) for kind in ("compute", "communication", "copy")}
    for row in rows:
        on[row.kind][row.start : row.end] = True
    within = slice(begin, end)
    computes, talks, copies = (on[kind][within] for kind in ("compute", "communication", "copy"))
    busy = computes | talks | copies
    starts = np.array([row.start for row in rows])
    first = min((one for one in launches if begin <= one < end), default=None)
    causes: dict[str, int] = {}
    for moment in (np.flatnonzero(~busy) + begin).tolist():
        next_one = int(np.searchsorted(starts, moment, side="right"))
        cause = _cause(moment, rows[next_one] if next_one < len(rows) else None, doing, first)
        causes[cause] = causes.get(cause, 0) + 1
    return {
        "number": number,
        "duration": end - begin,
        "busy": int(busy.sum()),
        "compute": int(computes.sum()),
        "communication": int(talks.sum()),
        "exposed_communication": int((talks & ~computes).sum()),
        "exposed_copy": int((copies & ~talks & ~computes).sum()),
        "causes": causes,
    }


def _cause(moment: int, ends: Work | None, doing: dict[tuple[int, str], Any], first: int | None) -> str:
    """Why the device is idle at one moment; `ends`: the work that ends the gap."""
    if ends is not None and moment >= ends.launched:
        return "device"
    threads = {MAIN} if ends is None else {MAIN, ends.thread}
    names = (name for name in PRIORITY if any(doing[thread, name][moment] for thread in threads))
    cause = next(names, "unrecorded")
    leads = ends is not None and first is not None and ends.launched <= first
    return "preparation" if leads and cause in GENERAL else cause


def events(made: Program, words: dict[str, Any], marks: bool = True) -> list[Event]:
    """The program as a profiler would write it down; `words`: see the conventions of test_conventions."""
    names, written = words["names"], []

    def span(cat: str, name: str, pid: Any, tid: Any, start: int, end: int, **args: Any) -> None:
        stamp = words.get("stamp", float)
        written.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": stamp(start + words.get("base", 0)),
                "dur": stamp(end - start),
                "args": args,
            }
        )

    for one in made.host:
        runtime = one.role in RUNTIME
        annotation = words["operator"] if words.get("flat") else "user_annotation"
        frame = "python_function" if one.activity in ("garbage", "checkpoint") else annotation
        cat = words["runtime"] if runtime else words["operator"] if one.role == "operator" else frame
        number = one.number if one.number is not None else 600_000 + len(written)
        span(cat, names.get(one.role, one.role), MAIN, one.thread, one.start, one.end,
             **({words["link"]: number} if runtime else {"External id": 7, "Ev Idx": len(written)}))  # fmt: skip
    for row in made.work:
        pid, tid, args = words["lane"](row)
        labels = words.get("collective", {}) if row.kind == "communication" else {}
        cat = words["copy"] if row.kind == "copy" else words["kernel"]
        span(cat, names.get(row.role, row.role), pid, tid, row.start, row.end,
             **args, **labels, **({words["link"]: row.number} if row.number >= 0 else {}))  # fmt: skip
    if marks:
        for number, start, end in made.steps:
            span(
                words["operator"] if words.get("flat") else "user_annotation",
                f"ProfilerStep#{number}",
                MAIN,
                MAIN,
                start,
                end,
            )
    return [*written, *_beside(made, words, span)]


RUNTIME = ("launch", "copy", "graph", "stream synchronise", "device synchronise", "allocate")


def _beside(made: Program, words: dict[str, Any], span: Any) -> list[Event]:
    """What else a profiler writes, none of which is work: marks on the device's lanes, waits between streams, flows."""
    if words.get("flat"):
        return []
    for number, start, end in made.steps:
        span("gpu_user_annotation", f"ProfilerStep#{number}", 0, 7, start + 37, end + 55)
    start = made.steps[0][1]
    span("overhead", "Activity Buffer Request", -1, 0, start + 5, start + 900)
    span("Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", start, made.now)
    for row in made.work[:40]:
        waits = {"cuda_sync_kind": "Stream Wait Event", "stream": 7, "wait_on_stream": 20, "device": 0}
        span("cuda_sync", "Stream Wait Event", 0, 7, row.start, row.start, correlation=row.number + 700_000, **waits)
        span("cuda_sync", "Event Sync", 0, -1, row.start, row.end + 900, stream=-1, device=0, correlation=1)
        span("cuda_event", "CUDA Event Record", 0, 7, row.start, row.start + 5000, stream=7, device=0)
        span("mtia_insight", "queue", 0, 7, row.start, row.end + 5000, stream=7, device=0)
    return [
        {"ph": phase, "id": row.number, "pid": MAIN, "tid": MAIN, "ts": row.start, "cat": "ac2g", "name": "ac2g"}
        for row in made.work
        for phase in "sf"
    ]
