"""Small traces, idle time without a name, and what else a trace may not hide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tracelyze.analyzers.comparing import compare
from tracelyze.analyzers.kineto import diagnose_traces
from tracelyze.analyzers.kineto.attribution.kernels import says_so
from tracelyze.analyzers.kineto.attribution.per_step import profile
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.analyzers.kineto.timeline.steps import find_steps

from .made import Made, training


@pytest.mark.parametrize(
    "name",
    [
        "void deep_ep::internode::dispatch<false, 8>(int*)",
        "uccl::ep::internode::dispatch<1>",
        "void ep::intranode::combine<__nv_bfloat16>(int)",
        "nvshmemi_transfer_rma_block",
        "vllm::cross_device_reduce_1stage<float>",
        "void quickreduce::allreduce_prototype_twoshot<int>()",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<half>()",
    ],
)
def test_kernels_that_communicate(name: str) -> None:
    assert says_so(name)


@pytest.mark.parametrize(
    "name", ["void deep_gemm::fp8_gemm<1>", "at::native::step::kernel<int>", "void moe::dispatch_tokens()"]
)
def test_kernels_that_do_not(name: str) -> None:
    assert not says_so(name)


def test_what_a_small_trace_shows_is_possible(tmp_path: Path) -> None:
    """Two steps, each with half of its time before the first kernel."""
    small = training(steps=2, kernels=60, kernel=30, launch=10, preparing=2000).write(tmp_path / "small.json")
    diagnosis = diagnose_traces(small)
    (finding,) = [one for one in diagnosis.findings if one.rule == "dataloader-bottleneck"]
    assert finding.confidence == "possible"
    assert "too few" in finding.summary or "too little" in finding.summary
    healthy = diagnose_traces(training(steps=2, kernels=60, kernel=30, launch=10).write(tmp_path / "healthy.json"))
    assert (healthy.verdict, healthy.findings) == ("unknown", []), "that a small trace shows nothing says nothing"


def test_launches_are_counted_however_short_the_trace(tmp_path: Path) -> None:
    """10 ms with a gap before each of 1,200 kernels."""
    quick = training(steps=4, kernels=300, kernel=2, launch=8).write(tmp_path / "quick.json")
    findings = {one.rule: one for one in diagnose_traces(quick).findings}
    assert findings["host-bound"].confidence != "possible"


def late() -> Made:
    """Every copy begins 3 ms after it was launched, on an idle device."""
    made = Made()
    for step in range(6):
        begin = made.now
        for _ in range(50):
            made.launch("mm", 40)
        made.now = made.device_free
        made.correlation += 1
        made.span("cuda_runtime", "cudaMemcpyAsync", made.now, 5, correlation=made.correlation)
        labels = {"device": 0, "stream": 7, "correlation": made.correlation}
        made.span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", made.now + 3000, 100, pid=0, tid=7, **labels)
        made.now = made.device_free = made.now + 3100
        made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
    return made


def test_idle_time_with_work_queued_has_a_name(tmp_path: Path) -> None:
    diagnosis = diagnose_traces(late().write(tmp_path / "late.json"))
    (note,) = [note for note in diagnosis.run.notes if note.startswith("The device is idle")]
    assert "launch latency or waiting on the device" in note
    assert "late on Memcpy HtoD" in note
    busy = diagnose_traces(training(steps=6, kernels=200, kernel=100, launch=20).write(tmp_path / "busy.json"))
    assert not [note for note in busy.run.notes if note.startswith("The device is idle")]


def test_kernels_belong_to_the_step_that_launched_them(tmp_path: Path) -> None:
    """The third of six steps launches twice as much as the others, which runs on into the fourth."""
    made = Made()
    for step in range(6):
        begin = made.now
        for _ in range(100 if step == 2 else 50):
            made.launch("mm", 30, host=10)
        made.now += 100
        made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
    table = profile(made.write(tmp_path / "ahead.json")).kernels
    (kernel,) = table
    assert kernel.time.tolist() == [1500, 1500, 3000, 1500, 1500, 1500]


def test_a_comparison_says_first_that_devices_and_ranks_differ(tmp_path: Path) -> None:
    sides = []
    for name, ranks in (("A100", 8), ("V100", 2)):
        made = training(steps=6, kernels=200, world_size=ranks)
        made.properties["deviceProperties"] = [{"id": 0, "name": name}]
        sides.append(made.write(tmp_path / f"{name}.json"))
    notes = compare(*sides).notes
    assert notes[0].startswith("The sides ran on different devices (A: A100, B: V100)")
    assert notes[1].startswith("The jobs had different numbers of ranks (A: 8, B: 2)")


def test_steps_are_no_small_calls(tmp_path: Path) -> None:
    """A property is read before each step and in its middle; the function of the step is seen as well."""
    made = Made()
    for _ in range(8):
        made.host("train.py(3): counter", 1, cat="python_function")
        begin = made.now
        for half in range(2):
            for _ in range(30):
                made.launch("mm", 8, host=10)
            if not half:
                made.host("train.py(9): step_number", 1, cat="python_function")
        made.span("python_function", "train.py(20): train_step", begin, made.now - begin)
        made.now += 20
    steps = find_steps(read_trace(made.write(tmp_path / "frames.json")))
    assert steps is not None
    assert steps.source == "repetitions of train.py(20): train_step"
    assert np.allclose(np.diff(steps.start), steps.start[1] - steps.start[0])
