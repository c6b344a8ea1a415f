"""A traceback for somebody who has to repair it: own frames first, library frames folded, the exception in full.

Long tracebacks are cut in the middle and never at their end, where the exception stands.
"""

from __future__ import annotations

import re

from tracelyze import formatting
from tracelyze.reports import escaping
from tracelyze.reports.markup import Child, Markup, element
from tracelyze.reports.wording.tracebacks import Frame, Traceback, parse

_LONGEST_MESSAGE = 3000  # characters
_MOST_FRAMES = 60


def cards(text: str, heading: str) -> Markup:
    """The tracebacks of a chain as one card."""
    shown = [_of(one) for one in parse(text)]
    title = element("h3", heading) if heading else None
    return element("div", title, element("div", shown, class_="frames"), class_="card")


def _of(one: Traceback) -> Child:
    introduced = " ".join(one.before)
    return [
        element("p", escaping.shortened(introduced, 300), class_="note") if introduced else None,
        _frames(one.frames),
        _error(one.error),
    ]


def _frames(frames: list[Frame]) -> list[Markup]:
    """Own frames open, each run of library frames folded; what is too long is cut in the middle."""
    shown: list[Markup] = []
    kept = frames
    cut = len(frames) - _MOST_FRAMES
    if cut > 0:
        kept = frames[: _MOST_FRAMES // 2] + frames[-_MOST_FRAMES // 2 :]
    libraries: list[Frame] = []
    for index, frame in enumerate(kept):
        if cut > 0 and index == _MOST_FRAMES // 2:
            shown += _folded(libraries)
            libraries = []
            shown.append(element("p", f"{formatting.plural(cut, 'frame')} left out", class_="note"))
        if not frame.own:
            libraries.append(frame)
            continue
        shown += _folded(libraries)
        libraries = []
        shown.append(_frame(frame, "frame own"))
    return shown + _folded(libraries)


def _folded(frames: list[Frame]) -> list[Markup]:
    if not frames:
        return []
    names = list(dict.fromkeys(_package(frame) for frame in frames))
    said = f"{formatting.plural(len(frames), 'frame')} in {', '.join(names[:3])}"
    return [element("details", element("summary", said), [_frame(frame, "frame") for frame in frames])]


def _frame(frame: Frame, kind: str) -> Markup:
    function = f", in {frame.function}" if frame.function else ""
    place = frame.file if frame.own else _after_packages(frame.file)
    source = [line for line in frame.source if line.strip(" ~^")]  # markers point nowhere once a line is wrapped
    return element(
        "div",
        element("span", f"{place}, line {frame.line}{function}"),
        element("pre", escaping.shortened("\n".join(source), 2000)) if source else None,
        class_=kind,
    )


def _error(lines: list[str]) -> Child:
    text = "\n".join(lines)
    if not text:
        return None
    half = _LONGEST_MESSAGE // 2
    if len(text) > _LONGEST_MESSAGE:
        text = f"{text[:half]}\n… ({len(text) - 2 * half:,} characters left out) …\n{text[-half:]}"
    return element("pre", text, class_="error")


def _package(frame: Frame) -> str:
    """`torch` of `…/site-packages/torch/nn/modules/module.py`; Python's own library is named so."""
    inside = re.split(r"(?:site|dist)-packages/", frame.file)
    return re.split(r"[/.]", inside[-1])[0] if len(inside) > 1 else "Python's library"


def _after_packages(path: str) -> str:
    return re.split(r"(?:site|dist)-packages/|lib/python3[.\d]*/", path)[-1]
