"""How numbers are written, everywhere a user reads them: "86%", "4 min 10 s", "0.4 ms", "1.5 GiB", "1,234 steps".

Findings and reports use these functions, so that one page never shows a number in two ways. Three significant digits
are enough to act on. What was not measured (None, or a duration that is not finite) reads "not known".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

UNKNOWN: Final = "not known"

_TIME: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "seconds": 1.0, "min": 60.0, "h": 3600.0}
_SIZE: Final = {"bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_PARTS: Final = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_SOURCE: Final = re.compile(r"^((?:[\w.]+: )?)\[[^\]\s]+\.(?:cc|cpp|cu|h|hpp|cuh):\d+\] ?")
_WORD: Final = 20  # characters: what is longer is no word
_LARGEST_WHOLE: Final = 10**15
_LARGEST: Final = 1e9
_SMALLEST: Final = 1e-4


def number(value: float | int | None, digits: int = 3) -> str:
    """A number to `digits` significant digits: `0.0312`, `185`, `1.2e-07`; NaN and infinities by name.

    The digits before the decimal point are all kept: `12,346`.
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) < _LARGEST_WHOLE:
        return f"{value:,}"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= _LARGEST or 0 < abs(rounded) < _SMALLEST:
        return f"{rounded:.{digits}g}"
    if value == int(value) or abs(rounded) >= 10 ** (digits - 1):
        return f"{value + 0.0:,.0f}"
    return f"{rounded:.{digits}g}"


def percent(share: float | None) -> str:
    """A share of 1 in percent: `86%`, `7.3%`. Only nothing is `0%` and only everything `100%`.

    One too small to have a direction is `under 0.1%`, whatever its sign."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    if share < 0:
        said = percent(-share)
        return said if said.startswith("under") else f"-{said.removeprefix('over ')}"
    value = share * 100
    if 0 < value < 0.1:
        return "under 0.1%"
    if 99.95 <= value < 100:
        return "over 99.9%"
    if value < 9.95 or 99.5 <= value < 100:
        return f"{value:.1f}".removesuffix(".0") + "%"
    return f"{value:,.0f}%"


def share_of(share: float, noun: str) -> str:
    """A share of things that are counted, as in "86% of the steps", or "all steps"."""
    return f"all {noun}" if percent(share) == percent(1.0) else f"{percent(share)} of the {noun}"


def fraction(share: float) -> str:
    """A share that may be tiny: in percent from one percent on (`12%`), else as a number (`3.2e-05`)."""
    return percent(share) if share >= 0.01 else number(share)


def change(share: float) -> str:
    """A relative change, with its sign: `+12%`, `-3.4%`, `0%`; one too small to have a direction is `under 0.1%`."""
    said = percent(abs(share))
    if share == 0 or said.startswith("under"):
        return said
    return f"{'-' if share < 0 else '+'}{said.removeprefix('over ')}"


def duration(seconds: float | None, digits: int = 3) -> str:
    """A length of time: `64 µs`, `0.4 ms`, `12.3 s`; from a minute on in the two units that matter: `4 min 10 s`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"-{duration(-seconds, digits)}"
    if seconds == 0:
        return "0 s"
    if seconds < 0.99995e-4:
        return f"{number(seconds * 1e6, digits)} µs"
    if seconds < 0.9995:
        return f"{number(seconds * 1e3, digits)} ms"
    if seconds < 59.95:
        return f"{number(seconds, digits)} s"
    whole = round(seconds)
    size, name, part, part_name = next(unit for unit in _PARTS if whole >= unit[0])
    rest = whole % size // part
    return f"{whole // size:,} {name}" + (f" {rest} {part_name}" if rest else "")


def size(amount: float | None, digits: int = 3) -> str:
    """Bytes in binary units: `512 bytes`, `1.5 GiB`."""
    if amount is None or not math.isfinite(amount):
        return UNKNOWN
    unit = next((unit for unit in ("TiB", "GiB", "MiB", "KiB") if abs(amount) >= _SIZE[unit] * 0.9995), "bytes")
    return f"{number(round(amount)) if unit == 'bytes' else number(amount / _SIZE[unit], digits)} {unit}"


def quantity(value: float | int | str | None, unit: str, digits: int = 3) -> str:
    """A value with its unit. Times and sizes take the unit that reads best; a `share` of 1 is written in percent."""
    if isinstance(value, str):
        return f"{value} {unit}".strip()
    if value is None:
        return UNKNOWN
    if unit in ("%", "percent"):
        return f"{number(value, digits)}%"
    if unit == "share":
        return percent(value)
    if unit in _TIME:
        return duration(value * _TIME[unit], digits)
    if unit in _SIZE:
        return size(value * _SIZE[unit], digits)
    whole, _, part = unit.partition("/")
    if whole in _SIZE:
        return f"{size(value * _SIZE[whole], digits)}/{part}"
    return f"{number(value, digits)} {_singular_of(unit) if value == 1 else unit}".strip()


def without_source(message: str) -> str:
    """An error's message without the line of a C++ library that it begins with: `[/pytorch/gloo/buffer.cc:78] …`."""
    return _SOURCE.sub(r"\g<1>", message, count=1)


def in_one_unit(values: Sequence[float], unit: str, digits: int = 3) -> list[str]:
    """Values to be compared, all in the unit that reads best for the largest: `14.5 ms`, `0.05 ms`."""
    units = _TIME if unit in _TIME else _SIZE
    largest = quantity(max(values, key=abs, default=0.0), unit).split(" ")
    if unit not in units or len(largest) != 2 or largest[1] not in units:
        return [quantity(value, unit, digits) for value in values]
    factor = units[unit] / units[largest[1]]
    return [f"{number(value * factor, digits)} {largest[1]}" for value in values]


def plural(count: int, one: str, many: str = "") -> str:
    """A count with its noun: `1 step`, `2,000 steps`, `3 batches`, `2 activities`."""
    return f"{count:,} {one if count == 1 else many or _plural_of(one)}"


def times(count: int) -> str:
    """How many times, or times as much: `once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def capitalized(text: str) -> str:
    """The text with a capital at its beginning, unless it begins with a name from code, as `max_norm` or `nn.Linear`.

    Unlike `str.capitalize` it leaves the other letters as they are.
    """
    first = text.partition(" ")[0]
    is_code = "_" in first or "." in first.rstrip(".") or "(" in first
    return text if is_code else text[:1].upper() + text[1:]


def listed(names: Iterable[object], most: int) -> str:
    """Names as a sentence lists them: `3, 7 and 12`; the first ones, if there are more: `3, 7, 12 and 5 more`."""
    said = [f"{name:,}" if isinstance(name, int) else str(name) for name in names]
    *first, last = [*said[:most], f"{len(said) - most} more"] if len(said) > most else said or [""]
    return f"{', '.join(first)} and {last}" if first else last


def shortened(text: str, most: int) -> str:
    """The text, or its first characters with an ellipsis."""
    return text if len(text) <= most else text[:most].rstrip() + "…"


def end_of_name(name: str, most: int) -> str:
    """A dotted name, or the last parts of it behind an ellipsis: they say what it is, the first ones where it lies."""
    if len(name) <= most:
        return name
    parts = name.split(".")
    ends = (".".join(parts[begin:]) for begin in range(1, len(parts)))
    return "…" + next((end for end in ends if len(end) < most), name[1 - most :])


def abridged(text: str, most: int) -> str:
    """The text, or its beginning and its end with an ellipsis between them: both ends of a message matter."""
    if len(text) <= most:
        return text
    kept = most - 3
    first, last = text[: kept - kept // 2], text[-(kept // 2) :]
    begin, end = first.rpartition(" ")[0], last.partition(" ")[2]  # whole words, where that costs no more than one
    first = begin if len(first) - len(begin) <= _WORD else first
    last = end if len(last) - len(end) <= _WORD else last
    return f"{first.rstrip()} … {last.lstrip()}"


def _singular_of(nouns: str) -> str:
    """The noun of which a unit is the regular plural; any other unit as it is."""
    forms = (f"{nouns[:-3]}y", nouns[:-2], nouns[:-1])
    return nouns if "/" in nouns else next((one for one in forms if one and _plural_of(one) == nouns), nouns)


def _plural_of(noun: str) -> str:
    """The regular English plural. A "ch" spoken as k (epoch) takes an s alone, so only "tch" and "nch" count."""
    if noun.endswith(("s", "x", "z", "sh", "tch", "nch")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"
