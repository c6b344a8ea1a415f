"""The comparison as JSON: the contract itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.reports import escaping

if TYPE_CHECKING:
    from tracelyze.comparison import Comparison


def render(comparison: Comparison) -> str:
    """The same bytes for the same comparison; NaN and infinities are null."""
    return escaping.json_text(comparison.to_dict(), indent=1) + "\n"
