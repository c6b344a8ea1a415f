"""The signs of the verdicts: each its own shape, so that none depends on color alone."""

from __future__ import annotations

from typing import Final

from tracelyze.reports.markup import Markup, element

_WORDS: Final = {"critical": "Critical", "warning": "Warning", "info": "Note", "ok": "OK", "unknown": "Unknown"}
_SHAPES: Final = {
    "critical": "M5 1.2h6L14.8 5v6L11 14.8H5L1.2 11V5zM8 4.6v4M8 11.2v.01",
    "warning": "M8 1.6 15 14H1zM8 6v4M8 12v.01",
    "info": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM8 7.2v4M8 4.6v.01",
    "ok": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM4.8 8.2l2.2 2.3 4.2-4.6",
    "unknown": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM6 6.2a2 2 0 1 1 2.8 2.1c-.6.3-.8.6-.8 1.2M8 11.8v.01",
}


def icon(severity: str) -> Markup:
    """The sign alone; it is decoration, the word stands beside it."""
    return element("svg", element("path", d=_SHAPES[severity]), class_="icon", viewBox="0 0 16 16", aria_hidden="true")


def badge(severity: str) -> Markup:
    """The sign with its word."""
    kind = "none" if severity == "unknown" else severity
    return element("span", icon(severity), _WORDS[severity], class_=f"badge {kind}")


def logo() -> Markup:
    """A trace in a square."""
    return element(
        "svg",
        element("rect", width=20, height=20, rx=5, fill="var(--text)"),
        element(
            "path",
            d="M3.5 11.5h3l2-6 3 9 2-5.500h3",
            fill="none",
            stroke="var(--surface)",
            stroke_width="1.8",
            stroke_linejoin="round",
            stroke_linecap="round",
        ),
        width=20,
        height=20,
        viewBox="0 0 20 20",
        aria_hidden="true",
    )
