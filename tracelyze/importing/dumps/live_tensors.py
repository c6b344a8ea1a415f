"""What of the allocator's memory was in use at one time, by the lines of the program that asked for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from tracelyze.formatting import plural, size

MOST_LINES = 5
NO_LINE = "lines that were not recorded"
_OF_TORCH = ("/torch/", "/site-packages/", "/dist-packages/")

Blocks = dict[int, tuple[int, str]]
"""By address: bytes, and the line that asked for them."""


def own_frame(frames: Any) -> tuple[str, int] | None:
    """File and line of the innermost frame of Python outside torch and other packages, else of the innermost one."""
    listed = [f for f in frames if isinstance(f, dict)] if isinstance(frames, list) else []
    python = [f for f in listed if str(f.get("filename", "")).endswith(".py")]
    own = [f for f in python if not any(part in str(f["filename"]) for part in _OF_TORCH)]
    found = next(iter(own or python), None)
    if found is None:
        return None
    line = found.get("line")
    return str(found["filename"])[:500], line if isinstance(line, int) and 0 <= line < 2**31 else 0


def in_use(segments: Iterable[Mapping[str, Any]]) -> Blocks:
    """The blocks that are in use in the segments of a snapshot."""
    found: Blocks = {}
    for segment in segments:
        address = _number(segment, "address")
        blocks = segment.get("blocks")
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("state") == "active_allocated":
                found[_number(block, "address") or address] = _held(block)
            address += _number(block, "size")
    return found


def at(entries: list[dict[str, Any]], place: int, end: Blocks) -> Blocks:
    """What was in use at the entry `place` of a trace that ends at `end`: what came after it is taken back.

    An entry of a free block names the line that had asked for it, as torch writes it.
    """
    found = dict(end)
    for entry in reversed(entries[place + 1 :]):
        if entry.get("action") == "alloc":
            found.pop(_number(entry, "addr"), None)
        elif entry.get("action") == "free_completed":
            found[_number(entry, "addr")] = _held(entry)
    return found


def largest(blocks: Blocks) -> list[str]:
    """The lines that hold most, in words: "12 GiB in 96 tensors, from train.py:90"."""
    by_line: dict[str, list[int]] = defaultdict(list)
    for amount, line in blocks.values():
        by_line[line].append(amount)
    most = sorted(by_line.items(), key=lambda one: -sum(one[1]))[:MOST_LINES]
    return [f"{size(sum(held))} in {plural(len(held), 'tensor')}, from {line}" for line, held in most]


def _held(entry: Mapping[str, Any]) -> tuple[int, str]:
    where = own_frame(entry.get("frames"))
    return _number(entry, "size"), f"{where[0]}:{where[1]}" if where else NO_LINE


def _number(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0
