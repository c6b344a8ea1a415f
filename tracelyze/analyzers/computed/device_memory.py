"""Whose the memory of a device was when an allocation failed, as torch's own message says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# c10/cuda/CUDACachingAllocator.cpp writes these sentences; those of other processes since torch 2.1, where the driver
# tells who they are.
SIZE: Final = r"([\d.]+) (bytes|KiB|MiB|GiB)"
UNITS: Final = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
OTHERS: Final = re.compile(rf"Process (\d+) has {SIZE} memory in use")
OWN: Final = re.compile(rf"this process has {SIZE} memory in use")
WHOLE: Final = re.compile(rf"total capacity of {SIZE}")
ROOM: Final = 0.8
"""Share of a device. Derived: others that hold less than a fifth of it are not what fills it."""
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
