"""Console logs that spread one step over several lines: OLMo, Composer, and the tables of Stable-Baselines3."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_HEADING = re.compile(r"\[(?:(?:global_)?step|batch|iteration|iter)=(\d[\d,]*)(?:/[\d,]+)?[^\]]*\]:?\s*$")
_ITEM = re.compile(r"^\s+(?:Train |Eval )?([A-Za-z][\w./@-]*)\s*[=:]\s*(\S+)\s*$")
_RULE = re.compile(r"^[-+=]{8,}\s*$")
_CELLS = re.compile(r"^\|\s*(\S.*?)\s*\|\s*(\S*)\s*\|\s*$")
_COUNTS = ("time/total_timesteps", "total_timesteps")  # what numbers the tables
_MOST = 500  # lines of a block


def joined(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with each block of them as a single one: `step: 20, train/loss: 2.1`. All others stay as they are."""
    block: list[str] = []
    table, section = False, ""
    for line in lines:
        heading, cells = _HEADING.search(line), _CELLS.match(line)
        if _RULE.match(line):
            yield from _table(block) if table else _heading(block)
            block, table, section = [], True, ""
        elif table and cells and len(block) < _MOST:
            section = cells[1] if cells[1].endswith("/") else section
            if cells[2]:
                block.append(f"{section}{cells[1]}: {cells[2]}")
        elif block and not table and (item := _ITEM.match(line)) and len(block) < _MOST:
            block.append(f"{item[1]}: {item[2]}")
        else:
            yield from _table(block) if table else _heading(block)
            block, table = [f"step: {heading[1]}"] if heading else [], False
            if not heading:
                yield line
    yield from _table(block) if table else _heading(block)


def _heading(block: list[str]) -> list[str]:
    return [", ".join(block)] if block else []


def _table(block: list[str]) -> list[str]:
    """A table is a step only if a row counts; any other one is left out, as its lines say nothing one by one."""
    named = dict(line.split(": ", 1) for line in block)
    count = next((named[name] for name in _COUNTS if name in named), None)
    return [] if count is None else [", ".join([f"step: {count}", *block])]
