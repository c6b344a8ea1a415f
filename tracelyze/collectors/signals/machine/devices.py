"""GPUs that the training uses, once a second, through NVIDIA's management library: load, memory, power, clocks.

The library asks the driver, and a driver in trouble may not answer for minutes: all calls are made on a thread of
their own, which nobody waits for.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of

MAX_DEVICES = 16
# Bits of nvmlDeviceGetCurrentClocksThrottleReasons that say that clocks are lower than they could be.
SLOWED = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
TEMPERATURE, SM_CLOCK = 0, 1  # NVML_TEMPERATURE_GPU, NVML_CLOCK_SM


class Devices(Signal):
    name = "devices"
    columns = columns_of(
        "devices",
        "time step device name busy memory_used memory_total power power_limit temperature clock clock_max slowed_by",
    )
    about = "Load, memory, power, temperature and clocks of the GPUs in use, once a second."
    cost = "a few calls of the driver a second, on a thread of their own"
    may_hang = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._nvml: Any = None
        self._indices: list[int] = []
        self._handles: dict[int, Any] = {}

    def opened(self) -> None:
        cuda = self.torch.cuda
        if not cuda.is_initialized():
            self._do_without("no CUDA device was in use when the training began")
        elif self.torch.version.hip:
            self._do_without("the devices are no NVIDIA devices")
        elif not _installed("nvidia-ml-py"):
            self._do_without("nvidia-ml-py is not installed in the program's environment")
        else:
            import pynvml

            used = [index for index in range(cuda.device_count()) if cuda.memory_allocated(index)]
            self._indices = used[:MAX_DEVICES]
            self._nvml = pynvml

    def every_second(self, row: dict[str, Any]) -> None:
        if not self._handles:
            self._nvml.nvmlInit()
            self._handles = {index: handle_of(self.torch, self._nvml, index) for index in self._indices}
        for index, handle in self._handles.items():
            self.context.emit("devices", row | {"device": index} | reading(self._nvml, handle))

    def _do_without(self, reason: str) -> None:
        self.context.switched_off(self.name, reason)


def handle_of(torch: Any, nvml: Any, index: int) -> Any:
    """The library's handle for torch's device `index`: the two number devices differently."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    if uuid is not None:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = visible.split(",")[index].strip() if visible else str(index)
    if named.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(named))
    return nvml.nvmlDeviceGetHandleByUUID(named)


def reading(nvml: Any, handle: Any) -> dict[str, Any]:
    """What one device says of itself. What it does not support is left out."""
    found: dict[str, Any] = {}

    def ask(name: str, question: Callable[[], Any]) -> None:
        try:
            found[name] = question()
        except nvml.NVMLError:
            return

    def memory() -> int:
        held = nvml.nvmlDeviceGetMemoryInfo(handle)
        found["memory_total"] = held.total
        return int(held.used)

    ask("name", lambda: _text(nvml.nvmlDeviceGetName(handle)))
    ask("busy", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
    ask("memory_used", memory)
    ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
    ask("power_limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)
    ask("temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, TEMPERATURE))
    ask("clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, SM_CLOCK))
    ask("clock_max", lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, SM_CLOCK))
    ask("slowed_by", lambda: _reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)))
    return found


def _reasons(bits: int) -> str | None:
    return ", ".join(reason for bit, reason in SLOWED.items() if bits & bit) or None


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _installed(distribution: str) -> bool:
    """Whether the maintained binding is there: others under the same module name print warnings when imported."""
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
