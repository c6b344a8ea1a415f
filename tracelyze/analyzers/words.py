"""Numbers in words, the way findings print them."""

from __future__ import annotations


def number(value: float) -> str:
    """Three significant digits, with thousands separated: 0.000123 -> "0.000123", 12345.6 -> "12,346"."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}[str(value)]
    if abs(value) >= 1e9:
        return f"{value:.2e}"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percent(share: float) -> str:
    """A share between 0 and 1 as a percentage."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.1f} %" if value >= 1 else f"{value:.2g} %"


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h" if seconds < 72 * 3600 else f"{seconds / 86400:.3g} days"


def memory(size: float) -> str:
    """Bytes in binary units."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if abs(size) >= 2**power:
            return f"{size / 2**power:.3g} {unit}"
    return f"{size:.0f} bytes"


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 step", "2,000 steps"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('s') else 's'}"
