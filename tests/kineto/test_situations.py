"""What traces of other hardware, frameworks and loops look like: healthy ones stay silent, faults get their name.

Each is a small simulation (see made.py): names, categories and order of events are those of the real thing, times are
round numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.kineto.made import MAIN, Made
from tracelyze.analyzers.kineto import diagnose_traces, summarise
from tracelyze.diagnosis import Diagnosis

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "totalGlobalMem": 85018279936}
MI300 = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "totalGlobalMem": 206141652992}
GEMM = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4>>"


def diagnose(made: Made, path: Any, **how: Any) -> Diagnosis:
    return diagnose_traces(made.write(path / "trace.json"), **how)


def status(made: Made, path: Any, rule: str) -> str:
    (check,) = diagnose(made, path, select=[rule]).checks
    return check.status


def fired(diagnosis: Diagnosis) -> set[str]:
    return {finding.rule for finding in diagnosis.findings}


def loop(made: Made, steps: int, body: Callable[[int], None], marks: bool = True) -> Made:
    """`steps` times the body, with the profiler's marks around each."""
    for step in range(steps):
        begin = made.now
        body(step)
        if marks:
            made.span("user_annotation", f"ProfilerStep#{step}", begin, made.now - begin)
    return made


def gpu(made: Made, name: str, start: float, length: float, stream: int, **args: Any) -> None:
    """Device work without a launch of its own."""
    made.span("kernel", name, start, length, pid=0, tid=stream, device=0, stream=stream, **args)


def graphed() -> Made:
    """CUDA graphs: one launch per step, hundreds of kernels that bear its number; the host waits for the step's end."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        made.launch("Memcpy HtoD (Pinned -> Device)", 40, cat="gpu_memcpy", call="cudaMemcpyAsync")
        made.correlation += 1
        made.span("cuda_runtime", "cudaGraphLaunch", made.now, 60, correlation=made.correlation)
        made.now += 60
        start = max(made.device_free, made.now)
        for index in range(300):
            gpu(made, FLASH if index % 10 == 0 else GEMM, start, 60, 7, correlation=made.correlation)
            start += 61
        made.device_free = start
        made.synchronise("cudaEventSynchronize")

    return loop(made, 6, body)


def inference() -> Made:
    """Generation by a language model: no optimizer, no loader, no ProfilerStep; each token ends in a read of it."""
    made = Made(properties={"deviceProperties": [H100]})
    for _ in range(40):
        for index in range(60):
            made.launch("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64" if index % 3 else FLASH, 40, 12)
        made.launch("Memcpy DtoH (Device -> Pinned)", 2, cat="gpu_memcpy", call="cudaMemcpyAsync")
        made.synchronise()
    return made


def compiled() -> Made:
    """torch.compile: triton kernels launched by the driver, a fused optimizer."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for index in range(150):
            made.launch(f"triton_poi_fused_add_mul_{index % 7}", 80, 15, call="cuLaunchKernel")
            made.launch("triton_tem_fused_addmm_3", 120, 15, call="cuLaunchKernelEx")
        begun = made.now
        made.launch("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdam>", 400, 60)
        made.span("user_annotation", "Optimizer.step#AdamW.step", begun, made.now - begun)
        made.host("Torch-Compiled Region: 0/0", 5)

    return loop(made, 6, body)


def sharded() -> Made:
    """FSDP over nodes: gathers and scatters on streams of their own, beside computation, with collective metadata."""
    made = Made(world_size=64, properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        begin = max(made.device_free, made.now)
        for index in range(100):
            made.launch(GEMM, 300, 20)
            if index % 10 == 0:
                names = ("_allgather_base", "_reduce_scatter_base")
                gpu(
                    made,
                    f"ncclDevKernel_{'AllGather' if index < 50 else 'ReduceScatter'}_RING_LL(ncclDevKernelArgsStorage)",
                    begin + index * 300,
                    1_500,
                    20,
                    **{"Collective name": names[index >= 50], "Process Group Name": "0", "dtype": "BFloat16"},
                )
        made.span("cpu_op", "record_param_comms", made.now, 3)

    return loop(made, 6, body)


def megatron() -> Made:
    """Pipeline and tensor parallel: micro-batches, each with a send and receive."""
    made = Made(world_size=16, properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(8):
            for _ in range(20):
                made.launch(GEMM, 250, 25)
            made.launch("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 60, 20, stream=30)
        made.launch("void transformer_engine::multi_tensor_apply_kernel<AdamFunctor>", 500, 40)

    return loop(made, 5, body)


def experts(exposed: bool) -> Made:
    """Mixture of experts through DeepEP: dispatch and combine kernels, beside computation or alone."""
    made = Made(world_size=8, properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(30):
            for _ in range(5):
                made.launch(GEMM, 200, 20)
            for name in ("void deep_ep::internode::dispatch<true, 8>", "void deep_ep::internode::combine<true, 8>"):
                if exposed:
                    made.launch(name, 300, 20, stream=40)
                else:
                    gpu(made, name, max(made.device_free - 400, made.base), 300, 40)

    return loop(made, 5, body)


def amd() -> Made:
    """ROCm: hip calls, Cijk kernels, stream 0."""
    made = Made(properties={"deviceProperties": [MI300]})

    def body(step: int) -> None:
        for _ in range(150):
            made.launch("Cijk_Ailk_Bljk_BBS_BH_MT256x256x64", 150, 15, call="hipExtModuleLaunchKernel", stream=0)
        made.launch("Memcpy HtoD (Host -> Device)", 30, 20, cat="gpu_memcpy", call="hipMemcpyWithStream", stream=0)

    return loop(made, 6, body)


def amd_single_precision() -> Made:
    """The same in float32 by name: AMD's capability numbers are not NVIDIA's."""
    made = amd()
    for one in made.events:
        one["name"] = one["name"].replace("Cijk_Ailk_Bljk_BBS", "Cijk_Ailk_Bljk_SB_sgemm")
    return made


def logged_now_and_then() -> Made:
    """.item() every tenth step, and tensorboard with it: nothing to speak of."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(120):
            made.launch(GEMM, 100, 15)
        if step % 10 == 9:
            made.synchronise()
            made.host("torch/utils/tensorboard/writer.py(350): add_scalar", 900, "python_function")

    return loop(made, 20, body)


def warmed_up() -> Made:
    """The first step compiles and allocates; memory grows to its size and stays."""
    made = Made(properties={"deviceProperties": [H100]})
    reserved = 0

    def body(step: int) -> None:
        nonlocal reserved
        if step == 0:
            made.host("Torch-Compiled Region: 0/0 (compile)", 900_000, "user_annotation")
            made.host("cudaMalloc", 3_000, "cuda_runtime")
        for index in range(120):
            made.launch(GEMM, 150, 15)
            if step == 0 and index % 10 == 0:
                reserved += 2**30
            allocated = int(2**30 * (2 + 9 * min(index, 120 - index) / 60))
            memory(made, min(allocated, reserved), reserved)

    return loop(made, 8, body)


def memory(made: Made, allocated: int, reserved: int) -> None:
    """The profiler's record of a change of device memory."""
    args = {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Total Allocated": allocated, "Total Reserved": reserved}
    made.events.append(
        {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": MAIN, "tid": MAIN, "ts": made.now}
        | {"args": args}
    )


def tf32() -> Made:
    """A100 with TF32 on: tensor-core kernels whose inputs are float32."""
    return products("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4>", 300)


def products(name: str, length: float, device: dict[str, Any] = H100, other: float = 20) -> Made:
    made = Made(properties={"deviceProperties": [device]})

    def body(step: int) -> None:
        for _ in range(60):
            made.launch(name, length, 15)
            made.launch("void at::native::vectorized_elementwise_kernel<4, AddFunctor<float>>", other, 10)

    return loop(made, 6, body)


def device_only(pause: float = 10) -> Made:
    """A trace of the device alone, without a host: nothing can be said of what it waited for."""
    made = Made(properties={"deviceProperties": [MI300]})
    start = made.base
    for _ in range(12):
        for index in range(60):
            gpu(made, f"Cijk_{index % 7}" if index else "first_of_step", start, 100, 0)
            start += 100 + pause
    return made


def backward_thread() -> Made:
    """Autograd launches the backward from a thread of its own, while the main thread waits for it."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(60):
            made.launch(GEMM, 60, 15)
        known = len(made.events)
        for _ in range(120):
            made.launch(GEMM, 60, 15)
        for one in made.events[known:]:
            if one["pid"] == MAIN:
                one["tid"] = 200
        made.synchronise()

    return loop(made, 6, body)


def accumulated() -> Made:
    """Four batches per optimizer step, and no marks of the profiler."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(4):
            made.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 100, "user_annotation")
            for _ in range(50):
                made.launch(GEMM, 100, 15)
        begun = made.now
        made.launch("void at::native::multi_tensor_apply_kernel<Adam>", 300, 50)
        made.span("user_annotation", "Optimizer.step#AdamW.step", begun, made.now - begun)

    return loop(made, 8, body, marks=False)


def hidden_loader() -> Made:
    """A loader that takes nine tenths of the step, behind a queue that is always full."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        made.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 9_000, "user_annotation")
        for _ in range(100):
            made.launch(GEMM, 100, 8)

    return loop(made, 10, body)


HEALTHY = {
    "the device alone": device_only,
    "the device alone, half idle": lambda: device_only(pause=100),
    "backward in a thread": backward_thread,
    "accumulation": accumulated,
    "a loader that hides": hidden_loader,
    "CUDA graphs": graphed,
    "inference": inference,
    "torch.compile": compiled,
    "FSDP": sharded,
    "Megatron": megatron,
    "DeepEP, hidden": lambda: experts(exposed=False),
    "ROCm": amd,
    "ROCm, float32": amd_single_precision,
    "logging every ten steps": logged_now_and_then,
    "warm-up": warmed_up,
    "TF32": tf32,
    "float32 beside longer work": lambda: products("ampere_sgemm_128x64_nn", 30, other=200),
    "float32 on a V100": lambda: products("volta_sgemm_128x64_nn", 300, H100 | {"computeMajor": 7, "name": "V100"}),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_traces_stay_silent(tmp_path, name):
    diagnosis = diagnose(HEALTHY[name](), tmp_path)
    assert fired(diagnosis) == set(), diagnosis.findings
    assert not [check for check in diagnosis.checks if "failed" in check.reason]


def item_every_step() -> Made:
    """loss.item() after each step, and half a step's worth of Python behind it."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(100):
            made.launch(GEMM, 100, 15)
        begun = made.now
        made.launch("Memcpy DtoH (Device -> Pageable)", 2, cat="gpu_memcpy", call="cudaMemcpyAsync")
        made.synchronise()
        made.span("cpu_op", "aten::item", begun, made.now - begun)
        made.host("metrics.py(12): update", 4_000, "python_function")

    return loop(made, 8, body)


def saving_every_third() -> Made:
    """torch.save in every fifth step, seen through Python stacks."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(100):
            made.launch(GEMM, 100, 15)
        made.synchronise()
        if step % 5 == 4:
            made.host("torch/serialization.py(930): save", 60_000, "python_function")

    return loop(made, 12, body)


def epochs(length: int, steps: int = 20, stall: float = 400_000) -> Made:
    """Workers that are started anew for every epoch of `length` steps."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        wait = stall if step % length == 0 else 60
        if step and step % length == 0:  # the call that finds the loader at its end
            made.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 20, "user_annotation")
        made.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", wait, "user_annotation")
        for _ in range(100):
            made.launch(GEMM, 500, 15)
        made.synchronise()

    return loop(made, steps, body)


def tensor_by_tensor(kernel: float = 3, backward: float = 100) -> Made:
    """A single-tensor optimizer over 300 tensors."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(150):
            made.launch(GEMM, backward, 15)
        begun = made.now
        for _ in range(300):
            made.launch("void at::native::vectorized_elementwise_kernel<4, AddFunctor<float>>", kernel, 60)
        made.span("user_annotation", "Optimizer.step#RMSprop.step", begun, made.now - begun)
        made.synchronise()

    return loop(made, 6, body)


def fragmented(retry: bool = False) -> Made:
    """Lengths vary, blocks do not fit: new segments in every step although half of the memory is free."""
    made = Made(properties={"deviceProperties": [H100]})
    reserved = 20 * 2**30

    def body(step: int) -> None:
        nonlocal reserved
        for index in range(150):
            made.launch(GEMM, 150, 15)
            if index % 50 == 10:
                memory(made, 12 * 2**30, reserved)
                if retry:
                    reserved -= 2**28
                    memory(made, 12 * 2**30, reserved)
                made.host("cudaMalloc", 300, "cuda_runtime")
                reserved += 2**28
                memory(made, 12 * 2**30 + 2**28, reserved)

    return loop(made, 8, body)


def reading_pageable() -> Made:
    """A large batch copied from pageable memory, with the device idle meanwhile."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        made.launch("Memcpy HtoD (Pageable -> Device)", 3_000, 20, cat="gpu_memcpy", call="cudaMemcpyAsync")
        made.synchronise()
        for _ in range(100):
            made.launch(GEMM, 100, 15)

    return loop(made, 8, body)


def emptied_cache() -> Made:
    """torch.cuda.empty_cache() in the loop: freed, and allocated anew."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for index in range(100):
            made.launch(GEMM, 100, 15)
            if index % 10 == 5:
                made.synchronise("cudaDeviceSynchronize")
                made.host("cudaFree" if index < 50 else "cudaMalloc", 900, "cuda_runtime")

    return loop(made, 8, body)


def gathered_on_the_host() -> Made:
    """Metrics are summed over all ranks by gloo after every step, with the device idle."""
    made = Made(world_size=8, properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(100):
            made.launch(GEMM, 100, 15)
        made.synchronise()
        made.host("gloo:all_reduce", 4_000, "user_annotation")

    return loop(made, 8, body)


def reduced_after_the_backward() -> Made:
    """One bucket for all gradients: reduced when the backward is over."""
    made = Made(world_size=32, properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(100):
            made.launch(GEMM, 150, 20)
        labels = {"Collective name": "allreduce", "Process Group Name": "0", "dtype": "BFloat16"}
        made.launch("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)", 9_000, stream=20, **labels)

    return loop(made, 6, body)


def read_back() -> Made:
    """A large tensor comes to ordinary host memory in every step, and the host is inside the copy until then."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(100):
            made.launch(GEMM, 100, 15)
        made.correlation += 1
        labels = {"device": 0, "stream": 7, "correlation": made.correlation}
        begun, start = made.now, max(made.device_free, made.now + 5)
        made.device_free = made.now = start + 5_000
        made.span("cuda_runtime", "cudaMemcpyAsync", begun, made.now - begun, correlation=made.correlation)
        made.span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", start, 5_000, pid=0, tid=7, **labels)

    return loop(made, 8, body)


def collected_garbage() -> Made:
    """Every fifth step stands still for 40 ms, and the trace shows nothing of why."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(100):
            made.launch(GEMM, 100, 15)
        made.synchronise()
        made.now += 40_000 if step % 5 == 4 else 0

    return loop(made, 20, body)


FAULTY = {
    "gloo": (gathered_on_the_host, {"exposed-communication"}),
    "one bucket": (reduced_after_the_backward, {"exposed-communication"}),
    "read back": (read_back, {"pageable-copies"}),
    "garbage": (collected_garbage, {"slow-steps"}),
    "DeepEP, exposed": (lambda: experts(exposed=True), {"exposed-communication"}),
    "item every step": (item_every_step, {"sync-stalls"}),
    "checkpoints": (saving_every_third, {"slow-steps"}),
    "epochs": (lambda: epochs(6), {"epoch-boundary-stall"}),
    "optimizer": (tensor_by_tensor, {"optimizer-for-loop"}),
    "fragmentation": (fragmented, {"memory-fragmentation"}),
    "retries": (lambda: fragmented(retry=True), {"memory-fragmentation"}),
    "pageable": (reading_pageable, {"pageable-copies"}),
    "empty_cache": (emptied_cache, {"allocator-stalls"}),
    "float32": (lambda: products("ampere_sgemm_128x64_nn", 300), {"fp32-on-tensor-cores"}),
    "float32 on H100": (
        lambda: products("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_ffma_aligna4", 300),
        {"fp32-on-tensor-cores"},
    ),
    "float32 convolutions": (
        lambda: products("void implicit_convolve_sgemm<float, float, 1024, 6, 7>", 300),
        {"fp32-on-tensor-cores"},
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_faults_get_their_name(tmp_path, name):
    make, expected = FAULTY[name]
    diagnosis = diagnose(make(), tmp_path)
    assert {finding.rule for finding in diagnosis.roots()} == expected, diagnosis.findings
    for finding in diagnosis.findings:
        assert finding.fix
        assert finding.summary


def test_batches_that_come_in_bursts_are_a_slow_loader(tmp_path):
    """Four workers that are too slow deliver together: a long wait in every fourth step, and no epoch ends there."""
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        wait = 300_000 if step % 4 == 0 else 60
        made.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", wait, "user_annotation")
        for _ in range(100):
            made.launch(GEMM, 500, 15)
        made.synchronise()

    findings = fired(diagnose(loop(made, 21, body), tmp_path))
    assert "dataloader-bottleneck" in findings
    assert "epoch-boundary-stall" not in findings


@pytest.mark.parametrize("every", [2, 3, 5, 10])
def test_a_host_that_waits_now_and_then_has_no_slow_steps(tmp_path, every):
    made = Made(properties={"deviceProperties": [H100]})

    def body(step: int) -> None:
        for _ in range(120):
            made.launch(GEMM, 100, 15)
        if step % every == every - 1:
            made.synchronise()

    assert fired(diagnose(loop(made, 21, body), tmp_path)) == set()


def test_a_device_without_a_host_is_said_to_be(tmp_path):
    notes = diagnose(device_only(pause=100), tmp_path).run.notes
    assert any("no host activity" in note for note in notes)


def test_what_is_not_known_is_said_to_be(tmp_path):
    (finding,) = diagnose(collected_garbage(), tmp_path).findings
    assert "nothing recorded" in finding.summary
    assert finding.confidence == "possible"


def test_what_slow_steps_did_is_said(tmp_path):
    (finding,) = diagnose(saving_every_third(), tmp_path).findings
    assert "saving or logging" in finding.summary
    assert finding.first_step == 4


def test_an_epochs_length_and_cost_are_told(tmp_path):
    findings = {one.rule: one for one in diagnose(epochs(6), tmp_path).findings}
    stall = findings["epoch-boundary-stall"]
    assert "6 steps apart" in stall.summary
    # 400 ms more per six steps of 50 ms.
    assert stall.evidence[0].value == pytest.approx(400 / (400 + 6 * 50), abs=0.02)
    assert findings["slow-steps"].caused_by == "epoch-boundary-stall"
    assert "persistent_workers" in stall.fix_code


@pytest.mark.parametrize(
    "made",
    [
        epochs(100),  # the first batch of all
        epochs(6, steps=20, stall=60_000),  # workers that start at once
        epochs(15, steps=20),  # one long wait may be anything
    ],
)
def test_first_batches_that_are_no_stall(tmp_path, made):
    assert status(made, tmp_path, "epoch-boundary-stall") == "passed"


@pytest.mark.parametrize(
    "made",
    [
        tensor_by_tensor(kernel=60),  # as long as a launch: the device is busy
        tensor_by_tensor(backward=2_000),  # the loop hides behind the backward's queue
    ],
)
def test_loops_of_the_optimizer_that_cost_nothing(tmp_path, made):
    assert status(made, tmp_path, "optimizer-for-loop") == "passed"


def test_products_that_use_the_tensor_cores_or_take_little_time(tmp_path):
    tensor_cores = products("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4>", 300)
    for made in (tensor_cores, products("ampere_sgemm_128x64_nn", 30, other=200)):
        assert status(made, tmp_path, "fp32-on-tensor-cores") == "passed"


def test_the_advice_names_what_the_optimizer_has(tmp_path):
    findings = {one.rule: one for one in diagnose(tensor_by_tensor(), tmp_path).findings}
    assert "RMSprop(model.parameters(), lr=lr, foreach=True)" in findings["optimizer-for-loop"].fix_code


def test_memory_of_an_imported_trace_is_that_of_the_file(tmp_path):
    from tracelyze.analyzers.kineto.reading.importer import import_traces

    path = fragmented().write(tmp_path / "trace.json")
    import_traces([path], tmp_path / "run")
    assert summarise([tmp_path / "run"])[0].memory == summarise([path])[0].memory


def test_the_kernels_of_a_graph_are_computation(tmp_path):
    one = summarise([graphed().write(tmp_path / "trace.json")])[0]
    assert one.device is not None
    assert float(one.device.idle.sum()) < 0.05 * one.window
    assert one.device.compute.sum() == pytest.approx(6 * 300 * 60, rel=0.01)


@pytest.mark.parametrize("optimizers", [1, 2, 3])
@pytest.mark.parametrize("slow", [0, 60_000])
def test_several_optimizers_at_the_end_of_a_batch_make_one_step(tmp_path, optimizers, slow):
    """Without marks and without a loader; every third batch may be slow, which makes no burst of the others."""
    made = Made(properties={"deviceProperties": [H100]})
    ends = []

    def body(step: int) -> None:
        for _ in range(60):
            made.launch(GEMM, 100, 15)
        made.synchronise()
        made.now += slow if step % 3 == 2 else 0
        for _ in range(optimizers):
            begun = made.now
            made.launch("void at::native::multi_tensor_apply_kernel<Adam>", 100, 40)
            made.span("user_annotation", "Optimizer.step#AdamW.step", begun, made.now - begun)
        ends.append(made.now)

    (one,) = summarise([loop(made, 13, body, marks=False).write(tmp_path / "trace.json")])
    assert one.steps_from == "optimizer steps"
    assert one.duration.tolist() == [end - begin for begin, end in pairwise(ends)]
