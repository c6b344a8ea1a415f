"""The program's modes for torch functions, but for those that only give a default device.

`torch.set_default_device(...)` and `with torch.device(...)` are such modes: they add a device to calls that make
tensors, notice nothing, and hold for whole programs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from tracelyze.collectors.internals.private_names import FUNCTION_MODES, MODE_AT, find

DEVICES: Final = "torch.utils._device"


def watching(torch: Any) -> Callable[[], int] | None:
    """What counts the modes that would see a call of a function of torch; None if this torch does not tell."""
    count: Callable[[], int] | None = find(torch, FUNCTION_MODES)
    mode_at = find(torch, MODE_AT)
    if count is None or mode_at is None:
        return count

    def others() -> int:
        number = count()
        if not number:
            return 0
        default = getattr(sys.modules.get(DEVICES), "DeviceContext", None)
        return sum([type(mode_at(place)) is not default for place in range(number)])

    return others
