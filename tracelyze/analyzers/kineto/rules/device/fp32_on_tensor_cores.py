"""fp32-on-tensor-cores: matrix products run in full float32 on a device whose tensor cores could take them."""

from __future__ import annotations

import re
from typing import Final

from tracelyze.analyzers.kineto.attribution.summary import TraceSummary
from tracelyze.analyzers.kineto.rule import ENOUGH, PROFILED, Job, TraceRule, charts, measured, on_device, span
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding
from tracelyze.formatting import percent

FULL: Final = re.compile(
    r"(^|_|[^a-z])sgemm|simt_sgemm|scudnn|_ffma_|f32f32_f32f32_f32|gemm[a-z0-9]*_kernel<float|convolve_sgemm|"
    r"(dgrad|wgrad\w*)_engine<float|winograd\w*<float",
    re.IGNORECASE,
)
"""Names of products in full float32 on NVIDIA devices: single-precision kernels of cuBLAS, CUTLASS and cuDNN."""

TENSOR: Final = re.compile(r"tensorop|tf32|s1688|16816|xmma.*(bf16|f16)", re.IGNORECASE)
FIRST: Final = (8, 0)
GAIN: Final = 7 / 8
SAVED: Final = "derived: TF32 multiplies at most eight times as fast (A100: 156 against 19.5 TFLOPS)"


def check(summary: TraceSummary, job: Job, limits: Limits) -> Outcome:
    if summary.capability is None:
        return Skipped("the trace names no NVIDIA device with tensor cores", "not-applicable")
    if summary.capability < FIRST:
        return Passed(f"no TF32 on this device (compute capability {summary.capability[0]}.{summary.capability[1]})")
    computing = sum(kernel.time_us for kernel in summary.kernels if kernel.kind == "compute")
    full = [
        kernel
        for kernel in summary.kernels
        if kernel.kind == "compute" and FULL.search(kernel.name) and not TENSOR.search(kernel.name)
    ]
    part = sum(kernel.time_us for kernel in full) / max(computing, 1e-9)
    device = summary.device
    assert device is not None
    value = part * float(device.compute.sum()) / max(summary.window, 1e-9)
    if part < limits["dominating"] or value < limits["share"]:
        return Passed(f"matrix products in full float32 take {percent(part)} of the computation")
    first, last = span(summary)
    return [
        Finding(
            rule="fp32-on-tensor-cores",
            severity="info",
            confidence="likely",
            title=f"{percent(part)} of the computation multiplies matrices in float32, without tensor cores",
            summary=(
                f"{', '.join(summary.device_names[:1])} has tensor cores, and these products do not use them: "
                f"{full[0].name[:80]} and {len(full) - 1} others take {percent(value)} of the step."
            ),
            fix=(
                "Allow TF32 for matrix products, or train under bfloat16 autocast. Leave it if the training is "
                "sensitive to rounding and this is on purpose."
            ),
            fix_code="torch.set_float32_matmul_precision('high')\ntorch.backends.cudnn.allow_tf32 = True",
            first_step=first,
            last_step=last,
            evidence=[
                Evidence(
                    "products in full float32",
                    round(part, 4),
                    "share",
                    *limits.against("dominating"),
                    of="the computation",
                ),
                measured("products in full float32, of the step", value, limits, "share"),
                Evidence("predicted saving, at most", round(GAIN * value, 4), "share", None, SAVED, of="the step"),
            ],
            cost=Cost(None, round(GAIN * value, 4), PROFILED),
            charts=charts(summary, job),
            false_alarm="Full float32 on purpose: small systems of equations, physics, or a comparison of precisions.",
        )
    ]


RULE: Final = TraceRule(
    id="fp32-on-tensor-cores",
    family="precision",
    severity="info",
    title="Matrix products in full float32 on tensor cores",
    about="Adds up the kernels whose names say single precision, on NVIDIA devices that have TF32.",
    check=on_device(check),
    verify=(
        "Profile a few steps again: kernels with tf32 or bf16 in their names take the place of sgemm, and the step "
        "is shorter."
    ),
    thresholds=(
        *ENOUGH,
        Threshold("dominating", 0.5, "share of the computation", "derived: more than all other kernels together"),
        Threshold("share", 0.2, "share of the step", "derived: at eight times the speed, less saves less than a sixth"),
    ),
    not_when="the products run on tensor cores (TF32, 16 bit), the device has no TF32, or other kernels dominate",
    references=("https://pytorch.org/docs/stable/notes/cuda.html#tf32-on-ampere",),
)
