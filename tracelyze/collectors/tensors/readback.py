"""Numbers that live on a device, read without making the host wait for it.

On the CPU a value is there at once. On CUDA the numbers are packed into one small tensor, copied to pinned memory
behind the work that produces them, and read steps later, when an event says that the copy is done. No event is asked
while a CUDA graph is captured: the question alone would make the capture fail, whatever the event is of
(`cudaStreamCaptureModeGlobal` in NVIDIA's documentation, which `torch.cuda.graph` uses by default).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self


class Readback:
    """Scalars on their way to the host. `fill(row)` hands them, as floats, to the function given here."""

    def __init__(self, torch: Any, tensors: Sequence[Any], use: Callable[[dict[str, Any], list[float]], None]) -> None:
        """`tensors`: scalars on one device, or one tensor of any shape."""
        self._use = use
        self._event: Any = None
        self._cuda = torch.cuda
        if isinstance(tensors, torch.Tensor):
            self._read_whole(torch, tensors)
            return
        kind = tensors[0].device.type
        if kind == "cpu":
            self._host = [float(tensor.detach().item()) for tensor in tensors]
            return
        if kind != "cuda":
            raise NotImplementedError(f"values on {kind} devices cannot be read without waiting for the device")
        with torch.no_grad():
            self._copy(torch, torch.stack([tensor.detach().reshape(()).to(torch.float32) for tensor in tensors]))

    @classmethod
    def of_columns(cls, torch: Any, values: Mapping[str, Any]) -> Self:
        """Scalars on one device that are columns of a row, by their names."""
        names = list(values)
        return cls(torch, list(values.values()), lambda row, read: row.update(zip(names, read, strict=True)))

    def _read_whole(self, torch: Any, tensor: Any) -> None:
        with torch.no_grad():
            numbers = tensor.detach().flatten()
            if numbers.device.type == "cpu":
                self._host = numbers.tolist()
            else:
                self._copy(torch, numbers.to(torch.float32))

    def _copy(self, torch: Any, packed: Any) -> None:
        self._buffer = torch.empty(packed.numel(), dtype=torch.float32, device="cpu", pin_memory=True)
        self._buffer.copy_(packed, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def arrived(self) -> bool:
        """Whether the numbers can be read without waiting."""
        return self._event is None or (not self._cuda.is_current_stream_capturing() and bool(self._event.query()))

    def fill(self, row: dict[str, Any]) -> None:
        """Hand the numbers over. Waits for the device if they have not arrived (only done at the end of the run)."""
        if self._event is not None:
            self._event.synchronize()
            self._host = self._buffer.tolist()
        self._use(row, self._host)


class Known:
    """A part of a row that needs no waiting. Has the same methods as a Readback."""

    def __init__(self, fill: Callable[[dict[str, Any]], None]) -> None:
        self.fill = fill

    def arrived(self) -> bool:
        return True


class EventPair:
    """Device time between two CUDA events, added to a column of a row. Has the same methods as a Readback."""

    def __init__(self, torch: Any, begin: Any, end: Any, column: str) -> None:
        self._cuda, self._begin, self._end, self._column = torch.cuda, begin, end, column

    def arrived(self) -> bool:
        return not self._cuda.is_current_stream_capturing() and bool(self._end.query())

    def fill(self, row: dict[str, Any]) -> None:
        self._end.synchronize()
        row[self._column] = row.get(self._column, 0.0) + self._begin.elapsed_time(self._end) / 1000.0
