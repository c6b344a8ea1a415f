"""The same programs in the words of several makers' profilers, and what each microsecond of them went into.

Numbers are compared with those of raster.py, which looks at every microsecond by itself: equal to a microsecond per
step, the grid's own coarseness.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.kineto import raster
from tests.kineto.raster import PARTS, Program, Work
from tracelyze.analyzers.kineto import diagnose_traces, summarise
from tracelyze.analyzers.kineto.attribution.attribution import CAUSES
from tracelyze.analyzers.kineto.reading.importer import import_traces
from tracelyze.analyzers.kineto.timeline.categories import Activity, Kind, activity_of

NAMES = {
    "operator": "aten::op",
    "launch": "cudaLaunchKernel",
    "copy": "cudaMemcpyAsync",
    "graph": "cudaGraphLaunch",
    "stream synchronise": "cudaStreamSynchronize",
    "device synchronise": "cudaDeviceSynchronize",
    "allocate": "cudaMalloc",
    "loader": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "optimizer": "Optimizer.step#AdamW.step",
    "save": "torch/serialization.py(943): save",
    "collect": "Python GC",
    "all-reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "to device": "Memcpy HtoD (Pinned -> Device)",
}
METADATA = {
    "Collective name": "allreduce",
    "dtype": "BFloat16",
    "In msg nelems": 123,
    "Out msg nelems": 123,
    "Group size": 8,
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}


def nvidia(row: Work) -> tuple[Any, Any, dict[str, Any]]:
    return row.device, row.stream, {"device": row.device, "context": 1, "stream": row.stream, "grid": [1, 1, 1]}


def amd(row: Work) -> tuple[Any, Any, dict[str, Any]]:
    stream = {7: 0, 20: 5}[row.stream]
    return row.device + 2, stream, {"device": row.device + 2, "stream": stream, "kind": "Dispatch Task"}


def intel(row: Work) -> tuple[Any, Any, dict[str, Any]]:
    return row.device, 3000 + row.stream, {"appended": 1, "submitted": 2, "device": row.device, "sycl queue": "0x55ab"}


def meta(row: Work) -> tuple[Any, Any, dict[str, Any]]:
    return "MTIA", row.stream, {"device": row.device, "stream": row.stream}


KINETO = {
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "kernel": "kernel",
    "copy": "gpu_memcpy",
    "link": "correlation",
    "lane": nvidia,
    "names": NAMES,
}
HIP = {
    "launch": "hipExtModuleLaunchKernel",
    "copy": "hipMemcpyAsync",
    "graph": "hipGraphLaunch",
    "stream synchronise": "hipStreamSynchronize",
    "device synchronise": "hipEventSynchronize",
    "allocate": "hipExtMallocWithFlags",
    "all-reduce": "ncclDevKernel_Generic_1(ncclDevComm*, unsigned long, ncclWork*)",
    "to device": "CopyHostToDevice",
}
UNIFIED = {
    "launch": "urEnqueueKernelLaunch",
    "copy": "urEnqueueUSMMemcpy",
    "graph": "urEnqueueCommandBufferExp",
    "stream synchronise": "urQueueFinish",
    "device synchronise": "urEventWait",
    "allocate": "urUSMDeviceAlloc",
    "all-reduce": "oneccl_allreduce_pcie_kernel<sycl::bf16>",
    "to device": "zeCommandListAppendMemoryCopy(M2D)[4096 bytes]",
}
SUBMITTED = {
    "launch": "runFunction - job_prep_and_submit_for_execution",
    "stream synchronise": "mtiaStreamSynchronize",
    "device synchronise": "mtiaDeviceSynchronize",
    "allocate": "mtiaMalloc",
    "copy": "mtiaMemcpyAsync",
    "all-reduce": "hccl_all_reduce_kernel",
    "to device": "dma_request",
}
CONVENTIONS: dict[str, dict[str, Any]] = {
    "CUDA": {**KINETO, "collective": METADATA},
    "CUDA, driver": {**KINETO, "runtime": "cuda_driver", "names": {**NAMES, "launch": "cuLaunchKernelEx"}},
    "nanoseconds": {**KINETO, "base": 4_447_660_000_000.0},
    "since 1970": {**KINETO, "base": 1_717_171_717_000_000, "stamp": int},
    "2021": {**KINETO, "operator": "Operator", "runtime": "Runtime", "kernel": "Kernel", "copy": "Memcpy"}
    | {"flat": True},
    "ROCm": {**KINETO, "lane": amd, "names": {**NAMES, **HIP}},
    "ROCm, by its own name": {**KINETO, "runtime": "hip_runtime", "lane": amd, "names": {**NAMES, **HIP}},
    "XPU": {**KINETO, "runtime": "xpu_runtime", "lane": intel, "names": {**NAMES, **UNIFIED}},
    "MTIA": {
        **KINETO,
        "runtime": "mtia_runtime",
        "kernel": "mtia_ccp_events",
        "copy": "mtia_ccp_events",
        "lane": meta,
        "names": {**NAMES, **SUBMITTED},
    },
}
PROGRAMS = {
    "loading": {"loading": 4_000},
    "preparing": {"preparing": 3_000},
    "exposed": {"communicating": 900, "overlapped": False},
    "overlapped": {"communicating": 700},
    "allocating": {"allocating": 2_500},
    "a slow host": {"kernel": 5, "host": 60},
    "accumulating": {"batches": 4, "kernels": 30, "loading": 300},
    "validating": {"validating": True},
    "from step 1201 on": {"first": 1201, "loading": 500},
}


def compare(made: Program, path: Any, document: Any, steps: list[tuple[int, int, int]] | None = None) -> str:
    """Asserts that the summary of `document` says what each microsecond of `made` went into; what steps came from."""
    path.write_text(json.dumps(document))
    (one,) = summarise([path])
    expected = raster.truth(made, steps)
    assert len(one.devices) == len(expected)
    for device, known in zip(sorted(one.devices, key=lambda d: d.process), expected.values(), strict=True):
        assert one.number.tolist() == [step["number"] for step in known]
        for index, step in enumerate(known):
            for part in PARTS:
                assert getattr(device, part)[index] == pytest.approx(step[part], abs=1), (part, step["number"])
            causes = {name: float(device.cause(name)[index]) for name in CAUSES}
            for name, time in causes.items():
                # What was launched at the same moment as the step's first work counts as preparation or not.
                assert time == pytest.approx(step["causes"].get(name, 0), abs=2), (name, step, causes)
    return one.steps_from


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_microsecond(tmp_path, convention, program):
    made = raster.training(**PROGRAMS[program])  # type: ignore[arg-type]
    found = compare(made, tmp_path / "t.json", {"traceEvents": raster.events(made, CONVENTIONS[convention])})
    assert found == "ProfilerStep"


@pytest.mark.parametrize("seed", range(60))
def test_anything_in_any_order(tmp_path, seed):
    made = raster.anything(seed)
    chosen = random.Random(seed)
    # What was written in 2021 does not tell annotations from operators.
    words = CONVENTIONS[chosen.choice([name for name in CONVENTIONS if name != "2021"])]
    written = raster.events(made, words)
    chosen.shuffle(written)
    compare(made, tmp_path / "t.json", {"traceEvents": written})


def test_saving_and_collecting_garbage_have_names_of_their_own(tmp_path):
    made = raster.training(saving=5_000, collecting=3_000)
    compare(made, tmp_path / "t.json", raster.events(made, CONVENTIONS["CUDA"]))


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("convention", ["CUDA", "ROCm", "XPU"])
def test_pauses_within_a_graph_are_the_devices_also_where_its_work_bears_no_number(
    tmp_path, convention, numbered, copied
):
    made = raster.decoding(numbered=numbered, copied=copied)
    compare(made, tmp_path / "t.json", {"traceEvents": raster.events(made, CONVENTIONS[convention])})


@pytest.mark.parametrize("convention", ["CUDA", "ROCm", "XPU"])
def test_two_devices_of_one_process_each_have_their_own_time(tmp_path, convention):
    made = raster.pipeline()
    compare(made, tmp_path / "t.json", {"traceEvents": raster.events(made, CONVENTIONS[convention])})


def test_marks_within_marks_are_no_steps(tmp_path):
    made = raster.training(loading=500)
    inner = [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{90 + number}", "pid": raster.MAIN}
        | {"tid": raster.MAIN, "ts": start + 200, "dur": 50}
        for number, start, _ in made.steps
    ]
    compare(made, tmp_path / "t.json", {"traceEvents": [*raster.events(made, CONVENTIONS["CUDA"]), *inner]})


def numbers_as_text(event: dict[str, Any]) -> None:
    event["args"] = {key: str(value) for key, value in event["args"].items()}


def everything_as_text(event: dict[str, Any]) -> None:
    event |= {key: str(event[key]) for key in ("ts", "dur", "pid", "tid")}


def whole_numbers_with_a_point(event: dict[str, Any]) -> None:
    if "correlation" in event["args"]:
        event["args"]["correlation"] = float(event["args"]["correlation"])


def nulls(event: dict[str, Any]) -> None:
    if event["cat"] == "cpu_op":
        event["args"] |= {"stream": None, "correlation": None, "device": None}


def addresses_for_streams(event: dict[str, Any]) -> None:
    if event["cat"] in ("kernel", "gpu_memcpy"):
        event["args"]["stream"] = hex(event["args"]["stream"])


@pytest.mark.parametrize(
    "change", [numbers_as_text, everything_as_text, whole_numbers_with_a_point, nulls, addresses_for_streams]
)
def test_values_of_other_types(tmp_path, change):
    made = raster.training(loading=500, communicating=300)
    written = raster.events(made, CONVENTIONS["nanoseconds"])
    for event in written:
        if event["ph"] == "X":
            change(event)
    compare(made, tmp_path / "t.json", {"traceEvents": written})


@pytest.mark.parametrize(
    ("anchor", "source"), [("optimizer", "optimizer steps"), ("loader", "batches from the loader")]
)
def test_steps_without_marks_end_where_their_anchor_does(tmp_path, anchor, source):
    made = raster.training(steps=6, loading=600)
    if anchor == "loader":
        made.host = [one for one in made.host if one.role != "optimizer"]
    ends = [one.end for one in made.host if one.role == anchor]
    steps = [(index + 1, ends[index], ends[index + 1]) for index in range(len(ends) - 1)]
    written = raster.events(made, CONVENTIONS["CUDA"], marks=False)
    assert compare(made, tmp_path / "t.json", {"traceEvents": written}, steps) == source


def test_steps_that_stop_for_garbage_are_said_to(tmp_path):
    made = raster.training(steps=12, kernels=120, collecting=40_000, every=5)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(raster.events(made, CONVENTIONS["CUDA"])))
    (finding,) = diagnose_traces(path).findings
    assert finding.rule == "slow-steps"
    assert "Python's garbage collection" in finding.summary
    assert "gc.freeze()" in finding.fix


@pytest.mark.parametrize(
    ("kind", "name", "activity"),
    [
        (Kind.ANNOTATION, "[pl][profile][_TrainingEpochLoop].train_dataloader_next", Activity.INPUT),
        (Kind.ANNOTATION, "[pl][profile][_EvaluationLoop].val_next", Activity.INPUT),
        (Kind.ANNOTATION, "batch-generator", Activity.INPUT),
        (Kind.ANNOTATION, "## data loading ##", Activity.INPUT),
        (Kind.ANNOTATION, "get next batch", Activity.INPUT),
        (Kind.ANNOTATION, "## forward ##", Activity.PYTHON),
        (Kind.ANNOTATION, "database_update", Activity.PYTHON),
        (Kind.ANNOTATION, "[pl][profile][Callback]ModelCheckpoint{'monitor': None}.on_train_batch_end",
         Activity.CHECKPOINT),
        (Kind.ANNOTATION, "## checkpoint ##", Activity.CHECKPOINT),
        (Kind.ANNOTATION, "activation checkpointing of the block", Activity.PYTHON),
        (Kind.FRAME, "<built-in function collect>", Activity.GARBAGE),
        (Kind.RUNTIME, "hipExtMallocWithFlags", Activity.ALLOCATOR),
        (Kind.RUNTIME, "AscendCL@aclrtMalloc", Activity.ALLOCATOR),
        (Kind.RUNTIME, "mcMemcpy", Activity.SYNC),
        (Kind.RUNTIME, "cuMemcpyDtoH_v2", Activity.SYNC),
        (Kind.RUNTIME, "cudaMemcpyAsync", Activity.COPY),
        (Kind.RUNTIME, "hipMemcpyWithStream", Activity.SYNC),
        (Kind.RUNTIME, "cudaMemGetInfo", Activity.RUNTIME),
    ],
)  # fmt: skip
def test_what_a_name_says(kind, name, activity):
    assert activity_of(kind, name) is activity


def test_a_diagnosis_names_what_the_program_does(tmp_path):
    made = raster.training(steps=6, kernels=120, loading=12_000)
    for convention, words in CONVENTIONS.items():
        path = tmp_path / "t.json"
        path.write_text(json.dumps({"traceEvents": raster.events(made, words)}))
        assert [one.rule for one in diagnose_traces(path).findings] == ["dataloader-bottleneck"], convention


def test_an_import_keeps_which_calls_replay_a_graph(tmp_path):
    made = raster.decoding(numbered=False, copied=False)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(raster.events(made, CONVENTIONS["CUDA"])))
    import_traces([path], tmp_path / "run")
    (file,), (stored,) = summarise([path]), summarise([tmp_path / "run"])
    assert stored.to_dict()["devices"] == file.to_dict()["devices"]
