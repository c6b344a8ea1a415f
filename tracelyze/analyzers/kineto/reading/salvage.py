"""Reading events one by one out of text that the fast path refused: broken records, odd values, the end of the file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from tracelyze.analyzers.kineto.reading.events import Span, lenient

_DECODER: Final = json.JSONDecoder(strict=False)
_BETWEEN: Final = re.compile(r"[\s,\x00]*")
_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]|"', re.DOTALL)
_NEXT_RECORD: Final = re.compile(r'\}\s*,?\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s|bp)"\s*:)')
_WORD: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+]?\b(?:nan|inf|infinity)\b', re.IGNORECASE | re.DOTALL)
_STRAY_BACKSLASH: Final = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')

LARGEST_PARSED: Final = 4 << 20
"""Characters of one record that are looked into here; larger ones count as lost."""

_DEEPEST: Final = 1000
_TOO_DEEP: Final = -1
_ENDS_TRIED: Final = 8
"""Levels of nesting that are followed, and how many possible ends of a broken record are tried."""


@dataclass
class Salvage:
    """What was read: events, bytes used up, whether the array's closing bracket was met, records repaired and lost."""

    events: list[Span] = field(default_factory=list)
    consumed: int = 0
    ended: bool = False
    repaired: int = 0
    lost: int = 0


def salvage(block: bytes, final: bool) -> Salvage:
    """The events at the start of `block`, which begins between two records of the event array.

    `final`: nothing follows, so an unfinished record at the end is left over and not waited for.
    """
    text = block.decode("utf-8", "surrogateescape")
    found = Salvage()
    no_events: set[int] = set()
    at = 0
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        if at >= len(text):
            break
        if text[at] == "]":
            found.ended = True
            at += 1
            break
        whole = _parsed(text, at)
        step = _repair(text, at, final, no_events) if whole is None else (*whole, False)
        if step is None:
            break
        value, at, repaired = step
        _take(value, repaired, found)
    found.consumed = len(text[:at].encode("utf-8", "surrogateescape"))
    return found


def _parsed(text: str, at: int) -> tuple[Any, int] | None:
    """The value at `at` and its end; None if it is no whole object, or a large one, which takes 30 times its size."""
    if not text.startswith("{", at):
        return None
    if len(text) - at > LARGEST_PARSED:
        closed = _closing_bracket(text, at)
        if closed is None or not 0 < closed - at <= LARGEST_PARSED:
            return None
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _take(value: Any, repaired: bool, found: Salvage) -> None:
    try:
        event = lenient(value)
    except ValueError:
        found.lost += 1
        return
    found.repaired += repaired
    if event is None:
        return
    clean = event.name.encode("utf-8", "replace").decode()
    found.repaired += clean != event.name and not repaired
    event.name = clean
    found.events.append(event)


def _repair(text: str, at: int, final: bool, no_events: set[int]) -> tuple[Any, int, bool] | None:
    """The broken record at `at`, put right: its value, its end, True. An unreadable one has the value None.

    None if the record may simply continue behind the text. `no_events`: places where no event begins, as is found out.
    """
    breaks = []
    for match in _NEXT_RECORD.finditer(text, at):
        breaks.append(match)
        if len(breaks) == _ENDS_TRIED:
            break
    closed = _closing_bracket(text, at) if text[at] == "{" else None
    for end in sorted({*(match.start() + 1 for match in breaks), *([closed] if closed and closed > 0 else [])}):
        if end - at > LARGEST_PARSED:
            break
        try:
            value = json.loads(_sanitised(text[at:end]), strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value, end, True
    for match in breaks:
        if match.end() not in no_events:
            if _is_event(text, match.end()):
                return None, match.end(), False
            no_events.add(match.end())
    if closed and closed > 0:
        return None, closed, False
    if (closed == _TOO_DEEP or text[at] != "{") and not final:
        return None, max(at + 1, len(text) - 64), False
    return None


def _is_event(text: str, at: int) -> bool:
    """Whether a whole event, and not a part of one, stands at `at`."""
    whole = _parsed(text, at)
    return whole is not None and isinstance(whole[0], dict) and "ph" in whole[0]


def _closing_bracket(text: str, at: int) -> int | None:
    """Where the value that opens at `at` is closed, if it is; _TOO_DEEP if no decoder can follow it."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        mark = token.group()
        if mark in "{[":
            depth += 1
            if depth > _DEEPEST:
                return _TOO_DEEP
        elif mark in "}]":
            depth -= 1
            if depth == 0:
                return token.end()
        elif mark == '"':
            return None
    return None


def _sanitised(record: str) -> str:
    """The record without what JSON does not know: bare nan and inf, backslashes that escape nothing."""

    def replace(match: re.Match[str]) -> str:
        found = match.group()
        if not found.startswith('"'):
            return "null"
        return _STRAY_BACKSLASH.sub(lambda part: part.group() if part.group(1) else "\\\\", found)

    return _WORD.sub(replace, record)
