"""A traceback as lines of text: own frames with their source, library frames folded, cut in the middle."""

from __future__ import annotations

from typing import Final

from tracelyze import formatting
from tracelyze.reports.wording import tracebacks
from tracelyze.reports.wording.tracebacks import Frame

LONGEST_ERROR: Final = 12
"""Lines of the exception itself; its first and last ones are kept."""


def folded(text: str, most: int) -> list[str]:
    """At most `most` lines of the tracebacks in `text` where that is possible without losing the exception."""
    lines: list[str] = []
    for one in tracebacks.parse(text):
        lines += [" ".join(one.before), ""] if one.before else []
        lines += [tracebacks.HEADER, *_frames(one.frames), *_shortened(one.error, LONGEST_ERROR)]
    return _shortened(lines, most)


def _frames(frames: list[Frame]) -> list[str]:
    lines: list[str] = []
    libraries: list[Frame] = []
    for frame in frames:
        if not frame.own:
            libraries.append(frame)
            continue
        lines += _fold(libraries)
        libraries = []
        function = f", in {frame.function}" if frame.function else ""
        lines += [f'  File "{frame.file}", line {frame.line}{function}', *(f"    {line}" for line in frame.source)]
    return lines + _fold(libraries)


def _fold(frames: list[Frame]) -> list[str]:
    return [f"  ({formatting.plural(len(frames), 'frame')} of libraries)"] if frames else []


def _shortened(lines: list[str], most: int) -> list[str]:
    """The first and the last of the lines, with the number of those left out between them; the end is never cut."""
    if len(lines) <= most:
        return lines
    head = most // 3
    tail = most - head - 1
    return [*lines[:head], f"  ... {len(lines) - head - tail:,} lines left out ...", *lines[-tail:]]
