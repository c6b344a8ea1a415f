"""The signs of a verdict: each its own shape, so that none is told by colour alone."""

from __future__ import annotations

from typing import Final

from tracelyze.reports import words
from tracelyze.reports.markup import Markup, element

_SHAPES: Final = {
    "critical": "M5.2 1h5.6L15 5.2v5.6L10.8 15H5.2L1 10.8V5.2zM5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8",
    "warning": "M8 1.6 15 14H1zM8 6v4M8 12v.01",
    "info": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM8 7.2v4M8 4.6v.01",
    "ok": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM4.8 8.2l2.2 2.3 4.2-4.6",
    "unknown": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM6.1 6.2a2 2 0 1 1 2.6 2.1L8 9.4M8 11.6v.01",
}


def icon(severity: str) -> Markup:
    """The sign alone; it is decoration, the word stands beside it."""
    return element("svg", element("path", d=_SHAPES[severity]), class_="icon", viewBox="0 0 16 16", aria_hidden="true")


def badge(severity: str) -> Markup:
    """The sign with its word."""
    return element("span", icon(severity), " ", words.SEVERITY[severity], class_=f"badge {severity}")
