"""Where time went, on traces whose answer is known by construction. Unless said otherwise figures are exact: the traces
are made of whole microseconds, far below where double precision rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kineto.made import MAIN, Made, training
from tracelyze.analyzers.kineto import summarise
from tracelyze.analyzers.kineto.attribution import attribution
from tracelyze.analyzers.kineto.attribution.attribution import CAUSES
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.reading.reader import read_trace


def summary(made: Made, path) -> TraceSummary:
    return summarise([made.write(path / "trace.json")])[0]


def share(one: TraceSummary, cause: str) -> float:
    assert one.device is not None
    return float(one.device.cause(cause).sum()) / one.window


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries(
        {
            "steps": st.integers(1, 4),
            "kernels": st.integers(1, 30),
            "kernel": st.integers(1, 300),
            "launch": st.integers(4, 200),
            "loading": st.integers(0, 4000),
            "preparing": st.integers(0, 2000),
            "waiting": st.booleans(),
            "allocating": st.integers(0, 1000),
            "copying": st.integers(0, 500),
            "communicating": st.integers(0, 900),
        }
    )
)
def test_parts_add_up_to_the_step(tmp_path, how):
    one = summary(training(**how), tmp_path)
    device = one.device
    assert device is not None
    assert len(one.number) == how["steps"]
    assert np.allclose(device.busy, device.compute + device.exposed_communication + device.exposed_copy, atol=1e-6)
    assert np.allclose(device.idle, device.causes.sum(axis=1), atol=1e-6)
    assert np.allclose(device.duration, device.busy + device.causes.sum(axis=1), atol=1e-6)
    assert (device.causes >= -1e-6).all()
    compute = how["steps"] * (how["kernels"] + 1) * how["kernel"]
    assert device.compute.sum() == pytest.approx(compute)
    assert device.exposed_copy.sum() == pytest.approx(how["steps"] * how["copying"])


def test_loading_is_the_only_cause_where_the_host_only_loads(tmp_path):
    one = summary(training(loading=30_000, kernels=200, kernel=100, launch=20), tmp_path)
    assert one.device is not None
    assert (one.device.cause("input")[1:] == 30_000).all()
    assert share(one, "input") > 0.9 * float(one.device.idle.sum()) / one.window


def test_loading_behind_a_full_queue_costs_nothing(tmp_path):
    made = Made()
    for step in range(5):
        begin = made.now
        made.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5_000, "user_annotation")
        for _ in range(50):
            made.launch("gemm", 400)
        made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
    one = summary(made, tmp_path)
    assert one.device is not None
    assert one.device.cause("input")[1:].sum() == 0


def test_gaps_of_slow_launches_are_the_hosts(tmp_path):
    one = summary(training(kernel=10, launch=100), tmp_path)
    # Of each 100 us the kernel takes 10, the next launch comes 65 later, and its kernel starts 25 after the call.
    assert share(one, "operator") == pytest.approx(0.65, abs=0.01)
    assert share(one, "device") == pytest.approx(0.25, abs=0.01)


def test_allocation_and_preparation_are_told_apart(tmp_path):
    one = summary(training(allocating=5_000, preparing=7_000), tmp_path)
    assert one.device is not None
    assert one.device.cause("allocator").tolist() == [5_000] * 6
    assert one.device.cause("preparation") == pytest.approx([7_000 + 50] * 6, abs=100)


def test_idle_after_each_wait_is_charged_to_it(tmp_path):
    calm, stalled = (summary(training(waiting=w, kernels=200), tmp_path).device for w in (False, True))
    assert calm is not None
    assert stalled is not None
    # Ten waits per step: each leaves the device idle from its own end (2 us) to the first launch, 15 us later.
    assert stalled.after_sync.sum() - calm.after_sync.sum() == pytest.approx(6 * 10 * (2 + 20 * 0.75), rel=0.2)


def test_communication_beside_computation_is_hidden(tmp_path):
    made = Made()
    begin = made.now
    made.span("kernel", "gemm", begin + 100, 1000, pid=0, tid=7, stream=7, device=0)
    made.span("kernel", "ncclDevKernel_AllReduce_Sum_bf16", begin + 600, 1000, pid=0, tid=20, stream=20, device=0)
    made.span("user_annotation", "ProfilerStep#1", begin, 2000)
    device = summary(made, tmp_path).device
    assert device is not None
    assert device.communication.tolist() == [1000]
    assert device.exposed_communication.tolist() == [500]
    assert device.busy.tolist() == [1500]


@pytest.mark.parametrize(
    ("name", "labels", "inside", "talks"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float", {}, False, True),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", {}, False, True),
        ("void deep_ep::intranode::dispatch<4, 768>", {}, False, True),
        ("cross_device_reduce_1stage", {}, False, True),
        ("my_exchange", {"Collective name": "alltoallv", "Process Group Name": "3"}, False, True),
        ("my_exchange", {}, True, True),
        ("void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 8>(int)", {}, False, True),
        ("void userbuffers_fp16_sum_inplace_gpu_rr_rs<8>(int)", {}, False, True),
        ("rcclGenericKernel<0, false>(ncclDevComm*, ncclWork*)", {}, False, True),
        ("triton_poi_fused_add_all_reduce_wait_tensor_5", {}, False, False),
        ("void layer_norm_kernel<float, BlockAllReduce<256>>(float*)", {}, False, False),
        ("my_exchange", {}, False, False),
        ("void at::native::vectorized_elementwise_kernel<4>", {}, True, False),
        ("ampere_sgemm_128x64", {}, False, False),
    ],
)
def test_what_counts_as_communication(tmp_path, name, labels, inside, talks):
    made = training(steps=3, kernels=20)
    for _ in range(3):
        begun = made.now
        made.launch(name, 500, stream=30, **labels)
        if inside:
            made.span("cpu_op", "record_param_comms", begun, made.now - begun)
    found = {kernel.name: kernel.kind for kernel in summary(made, tmp_path).kernels}
    assert (found[name] == "communication") is talks
    assert found["gemm_0"] == "compute"


def test_two_devices_of_one_process_are_kept_apart(tmp_path):
    made = training(steps=3, kernels=20)
    for one in list(made.events):
        if one["cat"] == "kernel" and one["name"] == "gemm_0":
            other = one["args"] | {"device": 1}
            made.span("kernel", "gemm_0", one["ts"], one["dur"], pid=1, tid=7, **other)
    devices = summary(made, tmp_path).devices
    assert [device.activities for device in devices] == [3 * 21, 3 * 4]


def test_activity_without_a_launch_is_busy_time(tmp_path):
    made = training(steps=3, kernels=20)
    before = summary(made, tmp_path).device
    for one in made.events:
        if one["cat"] == "cuda_runtime":
            one["args"]["correlation"] = -5
    after = summary(made, tmp_path).device
    assert before is not None
    assert after is not None
    assert after.busy.tolist() == before.busy.tolist()


def test_trace_without_a_device_tells_the_hosts_side(tmp_path):
    made = training(steps=5, loading=20_000, launch=100)
    made.events = [one for one in made.events if one["cat"] in ("cpu_op", "user_annotation")]
    one = summary(made, tmp_path)
    assert one.devices == []
    assert one.host is not None
    assert one.host[:, CAUSES.index("input")].tolist() == [20_000] * 5
    assert one.host.sum(axis=1) == pytest.approx(one.duration)


STEP_SOURCES = [
    ({}, "ProfilerStep", 6),
    ({"marks": False}, "optimizer steps", 5),
    ({"marks": False, "optimizer": False, "loading": 500}, "batches from the loader", 5),
    ({"marks": False, "optimizer": False}, "repetitions of python", 5),
]


@pytest.mark.parametrize(("how", "source", "count"), STEP_SOURCES)
def test_steps_are_found_without_the_profilers_marks(tmp_path, how, source, count):
    one = summary(training(**how), tmp_path)
    assert (one.steps_from, len(one.number), one.counted) == (source, count, True)
    assert one.duration == pytest.approx(one.duration[0], rel=0.1)


def test_steps_are_found_in_kernels_alone(tmp_path):
    made = training(marks=False, optimizer=False, preparing=300)
    kernels = [one for one in made.events if one["cat"] in ("kernel", "cuda_runtime")]
    for number in range(6):
        kernels[(2 * 200 + 1) * number + 1]["name"] = "first_of_step"
    made.events = [one for one in kernels if "Synchronize" not in one["name"]]
    one = summary(made, tmp_path)
    assert one.steps_from == "repetitions of a sequence of kernels"
    assert len(one.number) == 5


def test_a_trace_without_repetition_is_one_window(tmp_path):
    made = Made()
    for number in range(20):
        made.launch(f"kernel_{number}", 100)
    one = summary(made, tmp_path)
    assert (one.steps_from, one.counted, len(one.number)) == ("the whole trace", False, 1)


def test_steps_of_a_host_that_runs_far_ahead_are_the_devices(tmp_path):
    made = Made()
    for step in range(6):
        begin = made.now
        for _ in range(30):
            made.launch("gemm", 1000)
        made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
    one = summary(made, tmp_path)
    assert one.steps_from == "ProfilerStep, as executed by the device"
    assert one.duration.tolist() == [30_000] * 6
    assert one.device is not None
    assert one.device.idle.sum() == 0


def test_python_frames_name_the_line_behind_a_wait(tmp_path):
    made = training(waiting=True)
    made.span(
        "python_function", "torch/nn/modules/module.py(1500): _call_impl", made.base, made.now - made.base, tid=MAIN
    )
    made.span("python_function", "train.py(12): main", made.base, made.now - made.base, tid=MAIN)
    call = summary(made, tmp_path).syncs[0]
    assert (call.file, call.line, call.function) == ("train.py", 12, "main")
    assert call.count >= 60


def test_operators_own_the_device_time_of_their_kernels(tmp_path):
    one = summary(training(steps=2, kernels=10, kernel=100, optimizer=False), tmp_path)
    assert {op.name: (op.launches, op.time_us) for op in one.operators} == {
        f"aten::gemm_{i}": (4, 400.0) for i in range(5)
    }


def test_ranks_merged_into_one_file_keep_their_own_launches(tmp_path):
    """Both processes number their launches from 1 on, on streams of the same number; the second rank runs later."""
    ranks = [training(steps=4, kernels=50, loading=500), training(steps=4, kernels=50, loading=500, base=1_000_400.0)]
    for rank, made in enumerate(ranks):
        for event in made.events:
            if "stream" in event["args"]:
                event["pid"] = event["args"]["device"] = rank
            else:
                event["pid"] += rank
    merged = Made(events=[event for pair in zip(*(made.events for made in ranks), strict=True) for event in pair])
    trace = read_trace(merged.write(tmp_path / "merged.json"))
    link = attribution.launches_of(trace)
    devices = np.array([device for _, device, _ in trace.queues])[trace.device["queue"]]
    processes = np.array([process for process, _ in trace.threads])[trace.launches["thread"][link]]
    assert (link >= 0).all()
    assert (processes == devices + 100).all()
    alone = read_trace(ranks[1].write(tmp_path / "alone.json"))
    own = link[devices == 1]
    expected = alone.launches["start"][attribution.launches_of(alone)]
    assert (trace.launches["start"][own] == expected).all()


MAKERS: dict[str, dict[str, str]] = {
    "AMD": {"cuda_runtime": "hip_runtime", "cuda": "hip"},
    "agnostic": {"cuda_runtime": "runtime"},
    "Moore Threads": {"cuda_runtime": "musa_runtime", "cuda": "musa"},
    "Enflame": {"cuda_runtime": "gcu_runtime", "gpu_memcpy": "GCU_MEMCPY", "cuda": "tops"},
    "Cambricon": {
        "cuda_runtime": "privateuse1_runtime",
        "cudaStreamSynchronize": "cnrtQueueSync",
        "cudaDeviceSynchronize": "cnrtDeviceSync",
        "cuda": "cnrt",
    },
    "Ascend": {
        "cuda_runtime": "privateuse1_driver",
        "cudaStreamSynchronize": "aclrtSynchronizeStream",
        "cudaDeviceSynchronize": "aclrtSynchronizeDevice",
        "cuda": "aclrt",
    },
    "Intel": {
        "cuda_runtime": "xpu_runtime",
        "cudaLaunchKernel": "urEnqueueKernelLaunch",
        "cudaStreamSynchronize": "urQueueFinish",
        "cudaDeviceSynchronize": "urEventWait",
        "cudaMemcpyAsync": "urEnqueueUSMMemcpy",
        "cudaMalloc": "urUSMDeviceAlloc",
    },
    "Intel, Level Zero": {
        "cuda_runtime": "xpu_driver",
        "cudaLaunchKernel": "zeCommandListAppendLaunchKernel",
        "cudaStreamSynchronize": "zeCommandQueueSynchronize",
        "cudaDeviceSynchronize": "zeEventHostSynchronize",
        "cudaMemcpyAsync": "zeCommandListAppendMemoryCopy",
        "cudaMalloc": "zeMemAllocDevice",
    },
    "Meta": {"cuda_runtime": "mtia_runtime", "kernel": "mtia_ccp_events"},
    "Habana": {"cuda_runtime": "hpu_op"},
    "Habana, all one": {"cuda_runtime": "hpu_op", "kernel": "hpu_op"},
    "unknown": {"cuda_runtime": "new_runtime", "kernel": "new_work", "gpu_memcpy": "new_memcpy"},
}


@pytest.mark.parametrize("maker", MAKERS)
def test_the_hardware_of_every_maker_is_attributed_alike(tmp_path, maker):
    made = training(steps=5, kernels=60, copying=300, allocating=400, loading=900)
    (known,) = summarise([made.write(tmp_path / "cuda.json")])
    words = MAKERS[maker]
    for event in made.events:
        runtime = event["cat"] == "cuda_runtime"
        event["cat"] = words.get(event["cat"], event["cat"])
        if runtime:
            event["name"] = words.get(event["name"], event["name"].replace("cuda", words.get("cuda", "cuda")))
            event["args"].setdefault("correlation", 10_000_000)
    (other,) = summarise([made.write(tmp_path / "other.json")])
    assert known.device is not None
    assert other.device is not None
    assert (other.device.busy == known.device.busy).all()
    assert (other.device.exposed_copy == known.device.exposed_copy).all()
    for cause in ("sync", "allocator", "input", "copy"):
        assert other.device.cause(cause).sum() == pytest.approx(known.device.cause(cause).sum(), abs=1), cause
    assert known.device.cause("allocator").sum() > 1000
