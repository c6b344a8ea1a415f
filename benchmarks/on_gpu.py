"""Everything that is written for a GPU, checked on one device in at most eight minutes, into one JSON file.

    python benchmarks/on_gpu.py --out on_gpu.json
    python benchmarks/on_gpu.py --device cpu --out logic.json     # the logic where it makes sense, on a CPU

A check ends as "ok", "wrong" (the recording disagrees with the program's own truth, or disturbs it), "failed" (it could
not be made), "needs a GPU", or "no time left". Exit status 1 if any is wrong or failed.

    synchronisation   calls that make the host wait, with and without us (torch.cuda.set_sync_debug_mode)
    device_wait       the idle time that device_wait states against the profiler's, of a loop that waits for its input
                      and of one that does not
    memory            the columns of device memory against the allocator
    out_of_memory     what a death for memory leaves: the finding and its breakdown
    microbatches      how many batches a step accumulates, of a loop without a loader
    scaler            scale and skipped steps under float16 with a GradScaler
    nvml              a reading of the driver every second
    windows           profiler windows, taken by `collect --profile-every`, through the own reader
    cost_1_ms (host-bound), cost_5_ms, cost_20_ms   time of a step with and without us, in turns within one process
    graphs, compiled, plain   the same losses, bit for bit, with and without us
    fast_path         what the hooks state per step of a settled loop, and whether its steps are skipped
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracelyze.analyzers import diagnose
from tracelyze.analyzers.kineto import summarise
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.recorded.run_directory import load

PROGRAMS = Path(__file__).with_name("gpu_programs.py")
SECONDS = 480.0
ALONE = 150.0  # seconds for one program: a first CUDA context and a compilation included
TOLERANCE = 0.1  # of a step: device_wait is taken at other moments than the profiler's marks
Answer = dict[str, Any]
FULL = 24  # blocks of 20 steps with and without us
NEEDS_GPU: Answer = {"status": "needs a GPU"}


def started(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, for so many seconds at most."""
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)


Start = Callable[[Sequence[str], Mapping[str, str], float], "subprocess.CompletedProcess[str]"]


@dataclass
class Bench:
    """Where, how long and by whom programs are run."""

    device: str
    steps: int
    folder: Path
    until: float
    start: Start = started

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def run(self, command: Sequence[str], more: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return self.start(command, {**os.environ, **more}, max(1.0, min(ALONE, self.left)))

    def bare(self, program: str, **more: str) -> Answer:
        return self._run([sys.executable], program, more)[1]

    def recorded(self, program: str, *options: str, fails: bool = False, **more: str) -> tuple[Answer, Process, Path]:
        """The program's truth, what was recorded of it, and where."""
        run = self.folder / f"run-{program}"
        command = [sys.executable, "-m", "tracelyze", "collect", "--out", str(run), *options, "--", sys.executable]
        _, truth = self._run(command, program, more, fails)
        return truth, load(run).processes[0], run

    def _run(self, command: list[str], program: str, more: dict[str, str], fails: bool = False) -> tuple[int, Answer]:
        done = self.run([*command, str(PROGRAMS), program, self.device, str(self.steps)], more)
        if done.returncode and not fails:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-600:]}")
        lines = done.stdout.strip().splitlines()
        return done.returncode, json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}


def judged(right: bool, **numbers: Any) -> Answer:
    return {"status": "ok" if right else "wrong", **numbers}


def same_losses(bench: Bench, program: str) -> Answer:
    bare, (ours, process, _) = bench.bare(program), bench.recorded(program)
    same = bare["losses"] == ours["losses"]
    recorded = process.steps["loss"].tolist()
    true = program == "graphed" or recorded == ours["losses"]  # Of a graph that is replayed no step is seen.
    return judged(same and true, steps=len(bare["losses"]), recorded_steps=len(recorded))


def plain(bench: Bench) -> Answer:
    return same_losses(bench, "plain")


def compiled(bench: Bench) -> Answer:
    return same_losses(bench, "compiled")


def graphs(bench: Bench) -> Answer:
    return same_losses(bench, "graphed") if bench.device == "cuda" else NEEDS_GPU


def synchronisation(bench: Bench) -> Answer:
    if bench.device != "cuda":
        return NEEDS_GPU
    bare, (ours, _, _) = bench.bare("synchronising"), bench.recorded("synchronising")
    before, after = (sum(one["synchronisations"].values()) for one in (bare, ours))
    return judged(after <= before, bare=before, recorded=after, where=ours["synchronisations"])


def device_wait(bench: Bench) -> Answer:
    """Shares of the steps: on a CPU what the loader's wait says against the waits timed by hand."""
    found: Answer = {}
    right = True
    for program in ("input_bound", "compute_bound"):
        trace = bench.folder / f"{program}.json"
        truth, process, _ = bench.recorded(program, TRACE=str(trace))
        steps = process.steps
        seconds = float(np.nansum(steps["seconds"][1:]))
        (summary,) = summarise([trace])
        told: Answer = {
            "loader_wait": float(np.nansum(steps["loader_wait"][1:])) / seconds,
            "waits_by_hand": sum(truth["waits"][1:]) / truth["seconds"],
            "steps_in_trace": len(summary.number),
        }
        right &= abs(told["loader_wait"] - told["waits_by_hand"]) <= TOLERANCE
        if bench.device == "cuda":
            first, last = truth["profiled"]
            rows = slice(first, last)
            wait, whole = np.nansum(steps["device_wait"][rows]), np.nansum(steps["seconds"][rows])
            told["device_wait"] = float(wait / whole)
            if summary.device is None:
                raise RuntimeError("the trace shows no work on the device")
            told["idle_by_profiler"] = float(summary.device.cause("input").sum() / summary.duration.sum())
            right &= abs(told["device_wait"] - told["idle_by_profiler"]) <= TOLERANCE
        found[program] = told
    return judged(right, **found)


def memory(bench: Bench) -> Answer:
    truth, process, _ = bench.recorded("memory")
    if bench.device != "cuda":
        return NEEDS_GPU | {"rows": len(process.steps)}
    columns = ("device_allocated", "device_reserved", "device_peak")
    asked = np.array(truth["memory"], dtype=float)
    apart = {}
    for place, column in enumerate(columns):
        known = np.isfinite(process.steps[column])
        apart[column] = float(np.abs(process.steps[column][known] - asked[known, place]).max()) if known.any() else None
    return judged(all(value == 0 for value in apart.values()), largest_difference_bytes=apart)


def out_of_memory(bench: Bench) -> Answer:
    _, _, run = bench.recorded("out_of_memory", fails=True)
    found = [finding for finding in diagnose(run).findings if finding.rule == "out-of-memory"]
    evidence = {one.name: one.value for finding in found for one in finding.evidence}
    sizes = [name for name in evidence if "memory" in name and "host" not in name]
    right = bool(found) and (bool(sizes) or bench.device != "cuda")
    return judged(right, title=found[0].title if found else None, evidence=evidence)


def scaler(bench: Bench) -> Answer:
    truth, process, _ = bench.recorded("scaled")
    steps = process.steps
    skipped = [bool(value == 1) for value in steps["skipped"]]
    known = np.isfinite(steps["scale"])
    scales = np.array(truth["scales"])[known] == steps["scale"][known]
    return judged(
        skipped == truth["skipped"] and bool(scales.all()),
        skipped=sum(truth["skipped"]),
        skipped_recorded=sum(skipped),
        scales_that_agree=float(scales.mean()),
    )


def microbatches(bench: Bench) -> Answer:
    """Known at nearly all steps: at the first it is found out that memory is used again."""
    told: Answer = {}
    right = True
    for program in ("accumulating", "two_losses"):
        truth, process, _ = bench.recorded(program)
        counted = process.steps["microbatches"]
        known = counted[np.isfinite(counted)]
        told[program] = {"known": len(known) / len(counted), "counts": sorted(set(known.tolist()))}
        right &= len(known) > 0.9 * len(counted) and set(known.tolist()) == {float(truth["microbatches"])}
    return judged(right, **told)


def nvml(bench: Bench) -> Answer:
    if bench.device != "cuda":
        return NEEDS_GPU
    _, process, _ = bench.recorded("lasting")
    rows = list(process.tables["devices"].records())
    state = process.signals.get("devices", {})
    if not rows:
        return {"status": "failed", "why": state.get("reason") or "no reading was recorded"}
    return judged(len(rows) >= 2 and all(row["memory_used"] for row in rows), readings=len(rows), last=rows[-1])


def windows(bench: Bench) -> Answer:
    """On a CPU a window shows no kernels; that it is taken and read is what counts."""
    _, process, run = bench.recorded("plain", "--profile-every", str(max(20, bench.steps // 2)))
    taken = list(process.tables["windows"].records())
    kernels = 0
    for trace in sorted(run.rglob("*.json*")):
        if "window" in trace.name or "trace" in trace.name:
            (summary,) = summarise([trace])
            kernels += sum(device.activities for device in summary.devices)
    return judged(bool(taken) and (kernels > 0 or bench.device != "cuda"), windows=len(taken), kernels=kernels)


def fast_path(bench: Bench) -> Answer:
    """Of a device's steps those that are skipped say nothing of the time on it."""
    _, process, _ = bench.recorded("plain", STEPS_MORE="4")
    late = slice(len(process.steps) // 2, None)
    stated = process.steps["overhead"][late] * 1e6
    skipped = float(np.isnan(process.steps["device_seconds"][late]).mean())
    right = bench.device != "cuda" or skipped > 0.5
    return judged(right, stated_us_per_step=float(np.nanmedian(stated)), skipped=skipped)


def cost(milliseconds: float) -> Callable[[Bench], Answer]:
    def check(bench: Bench) -> Answer:
        blocks = FULL if bench.steps >= 100 else 4
        command = [
            sys.executable,
            __file__,
            "--cost",
            str(milliseconds),
            "--device",
            bench.device,
            "--blocks",
            str(blocks),
        ]
        done = bench.run(command, {})
        done.check_returncode()
        told: Answer = json.loads(done.stdout.strip().splitlines()[-1])
        return {"status": "ok", **told}

    return check


CHECKS: dict[str, Callable[[Bench], Answer]] = {
    "plain": plain, "synchronisation": synchronisation, "device_wait": device_wait, "memory": memory,
    "out_of_memory": out_of_memory, "microbatches": microbatches, "scaler": scaler, "nvml": nvml, "windows": windows,
    "cost_1_ms": cost(1), "cost_5_ms": cost(5), "cost_20_ms": cost(20), "graphs": graphs, "compiled": compiled,
    "fast_path": fast_path,
}  # fmt: skip


def turns(milliseconds: float, device: str, blocks: int) -> Answer:
    """Time of a step of about so many milliseconds, block by block with and without the hooks."""
    import torch
    import torch.nn.functional as F
    from hooks import WARM_UP, Switch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    width = 256 if device == "cuda" else 32
    wait = torch.cuda.synchronize if device == "cuda" else _nothing
    with tempfile.TemporaryDirectory() as folder:
        switch = Switch(Path(folder))
        while True:
            model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)]).to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            x, y = torch.randn(256, width, device=device), torch.randn(256, width, device=device)

            def block(steps: int) -> float:
                wait()
                begin = time.perf_counter()
                for _ in range(steps):
                    loss = F.mse_loss(model(x), y)  # noqa: B023
                    optimizer.zero_grad()  # noqa: B023
                    loss.backward()
                    optimizer.step()  # noqa: B023
                wait()
                return 1000 * (time.perf_counter() - begin) / steps

            switch.turn(False)
            block(3)
            if (step := block(5)) >= 0.7 * milliseconds or width >= 16384:
                break
            width = int(width * min(2.0, max(1.1, (milliseconds / step) ** 0.5)))
        switch.turn(True)
        block(WARM_UP if blocks >= FULL else 60)
        differences = []
        for _ in range(blocks):
            switch.turn(False)
            bare = block(20)
            switch.turn(True)
            differences.append(block(20) - bare)
        error = statistics.stdev(differences) / len(differences) ** 0.5
        return {
            "bare_ms": step,
            "added_us": 1000 * statistics.median(differences),
            "standard_error_us": 1000 * error,
            "blocks": blocks,
            "width": width,
        }


def _nothing() -> None:
    """A CPU has done its work when the call returns."""


def machine(device: str) -> Answer:
    import torch

    told: Answer = {"torch": torch.__version__, "cuda": torch.version.cuda, "device": device}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        told |= {"name": properties.name, "memory_bytes": properties.total_memory}
    return told


def answered(
    names: Iterable[str], device: str, steps: int, seconds: float, start: Start = started
) -> dict[str, Answer]:
    """The answers of these checks, none of which begins after so many seconds."""
    until = time.monotonic() + seconds
    answers: dict[str, Answer] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(device, steps, Path(folder), until, start)
            begin = time.monotonic()
            try:
                answers[name] = dict(CHECKS[name](bench)) if bench.left > 0 else {"status": "no time left"}
            except Exception as error:
                answers[name] = {"status": "failed", "why": f"{type(error).__name__}: {str(error)[-800:]}"}
        answers[name]["seconds"] = round(time.monotonic() - begin, 1)
        print(f"{name:16} {answers[name]['status']:12} {answers[name]['seconds']:6.1f} s", file=sys.stderr)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--out", type=Path, default=Path("on_gpu.json"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="after which no further check begins")
    parser.add_argument("--only", action="append", choices=sorted(CHECKS))
    parser.add_argument("--cost", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=int, default=24, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cost:
        print(json.dumps(turns(arguments.cost, arguments.device, arguments.blocks)))
        return
    begin = time.monotonic()
    answers = answered(arguments.only or CHECKS, arguments.device, arguments.steps, arguments.seconds)
    result = {"machine": machine(arguments.device), "seconds": round(time.monotonic() - begin, 1), "checks": answers}
    arguments.out.write_text(json.dumps(result, indent=2, default=str) + "\n")
    sys.exit(any(answer["status"] in ("wrong", "failed") for answer in answers.values()))


if __name__ == "__main__":
    main()
