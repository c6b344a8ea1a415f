"""Whose the memory of a device was when an allocation failed, as torch's own message says, and how it came to that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.formatting import plural, size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats

# c10/cuda/CUDACachingAllocator.cpp writes these sentences; those of other processes since torch 2.1, where the driver
# tells who they are.
SIZE: Final = r"([\d.]+) (bytes|KiB|MiB|GiB)"
UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
OTHERS: Final = re.compile(rf"Process (\d+) has {SIZE} memory in use")
OWN: Final = re.compile(rf"this process has {SIZE} memory in use")
WHOLE: Final = re.compile(rf"total capacity of {SIZE}")
ROOM: Final = 0.8
"""Share of a device. Derived: others that hold less than a fifth of it are not what fills it."""
GREW: Final = 1.25
"""Times what it was. Derived: a training holds the same at the end of each step, and batches of one size need the same
within it; the last batch of a pass, or a longer one, changes that by less than a quarter."""
EARLY: Final = 0.25
"""Share of the steps, of which the middle says what it was. Derived: later ones may be a part of the climb."""
ASKED: Final = re.compile(rf"Tried to allocate {SIZE}")


@dataclass(frozen=True)
class Holders:
    """Bytes of a device, and who held them. `others`: by process id, the largest first; empty where nobody else was
    named."""

    whole: float | None
    own: float | None
    asked: float | None
    others: tuple[tuple[int, float], ...]

    @property
    def of_others(self) -> float:
        """Bytes that other processes held."""
        return sum(held for _, held in self.others)

    @property
    def told(self) -> bool:
        """Whether it is known how much of the device others held."""
        return self.own is not None and self.whole is not None

    @property
    def would_fit_alone(self) -> bool:
        """Whether what was asked for would have fitted with room to spare, had this process been alone on the device.
        Without room, a program that needs more from step to step would soon have met the limit by itself."""
        if self.own is None or self.whole is None or self.asked is None or not self.others:
            return False
        return self.own + self.asked < ROOM * self.whole


def asked_and_held(held: Holders | None) -> str:
    """What was asked for and what was held in one sentence; empty where the message does not say."""
    if held is None or held.asked is None or held.own is None or held.whole is None:
        return ""
    return f"PyTorch asked for {size(held.asked)} more, and this process held {size(held.own)} of {size(held.whole)}."


def course(optimization: Optimization | None) -> str:
    """Whether what is held from step to step grew, or what single steps need beside it; empty where neither did."""
    if optimization is None:
        return ""
    kept, peak = (_known(optimization.steps[name]) for name in ("device_allocated", "device_peak"))
    if len(kept) < 2 or kept.max() <= 0:
        return ""
    before, after = _early(kept), float(kept[-1])
    if after > GREW * before:
        return f"What is held at the end of a step grew from {size(before)} to {size(after)}: something is kept."
    first, most = _early(peak), float(peak[-1])
    if most > GREW * first:
        return (
            f"What is held at the end of a step stayed at {size(after)}, and the most that a step needs rose from "
            f"{size(first)} to {size(most)} in {plural(len(optimization.steps), 'step')}: its inputs grew, or it "
            "computes more at once."
        )
    return ""


def _known(values: Floats) -> Floats:
    return np.asarray(values[np.isfinite(values)])


def _early(values: Floats) -> float:
    return float(np.median(values[: max(1, int(EARLY * len(values)))]))


def holders(text: str) -> Holders:
    """What the message of an exception says. Everything is None or empty where it says nothing."""
    others = [(int(number), _bytes(size, unit)) for number, size, unit in OTHERS.findall(text)]
    named = tuple(sorted(others, key=lambda one: -one[1]))
    return Holders(_first(WHOLE, text), _first(OWN, text), _first(ASKED, text), named)


def _first(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return None if found is None else _bytes(found[1], found[2])


def _bytes(size: str, unit: str) -> float:
    return float(size) * UNITS[unit]
