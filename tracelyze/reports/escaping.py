"""Strings of a run, made harmless for the place they are shown in.

A run is input from outside: its paths, command, exception messages and tensor names may hold anything. Every
renderer passes them through one of these functions; nothing of a run reaches an output by another way.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any

# Control characters, lone surrogates, and the marks that reorder or hide text: a terminal obeys the first, UTF-8
# cannot encode the second, and the third make a line read otherwise than it is.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]"
)
_SPACES = re.compile(r"\s+")

_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
_LINE_START = re.compile(r"^(?:[-+](?=[\s-]|$)|[=#]|\d+[.)](?=\s|$))")
# A zero-width space after these stops GitHub, GitLab and Jira from making a mention, a reference or a link of them.
_REFERENCE = re.compile(
    r"[@#](?=\S)|[!%~](?=[\w\"'{])|&amp;(?=\d)|://|\bwww(?=\.)|\bGH(?=-\d)|\b(?:mailto|xmpp)(?=:)", re.IGNORECASE
)
_ZERO_WIDTH = "\u200b"


def printable(text: object) -> str:
    """`text` with everything that is not a visible character, a tab or a line feed written as `\\x1b` or `\\u202e`."""
    return _UNPRINTABLE.sub(_code_point, str(text).replace("\r\n", "\n"))


def one_line(text: object) -> str:
    """`text` printable and on one line."""
    return _SPACES.sub(" ", printable(text)).strip()


def html(text: object) -> str:
    """`text` for an HTML or SVG text node or a double-quoted attribute."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace('"', "&quot;").replace("'", "&#39;")


def script_json(data: Any) -> str:
    """`data` as JSON that no content can end a script element with, and that JavaScript and JSON read alike."""
    text = json_text(data)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def json_text(data: Any, indent: int | None = None) -> str:
    """`data` as strict JSON, the same bytes for the same data. NaN and infinities become null."""
    return json.dumps(strict(data), ensure_ascii=False, allow_nan=False, indent=indent)


def strict(data: Any) -> Any:
    """`data` as a strict JSON encoder and UTF-8 can write it: finite numbers, no lone surrogates, plain types."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, str):
        return _encodable(data)
    if isinstance(data, dict):
        return {_encodable(str(key)): strict(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [strict(value) for value in data]
    return data


def markdown(text: object, keep_ends: bool = False) -> str:
    """`text` as one line of Markdown that renders as itself: no markup, HTML, link, mention or reference.

    With `keep_ends` blanks at its ends stay, for text that stands beside other text.
    """
    line = _SPACES.sub(" ", printable(text)) if keep_ends else one_line(text)
    escaped = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _MARKDOWN_SPECIAL.sub(r"\\\1", escaped)
    escaped = _REFERENCE.sub(_broken_reference, escaped)
    return _LINE_START.sub(_escaped_line_start, escaped, count=1)


def markdown_code(text: object) -> str:
    """`text` as inline code, with a delimiter longer than any run of backticks in it. Not for a table cell."""
    code = one_line(text)
    fence = "`" * (_longest_backticks(code) + 1)
    pad = " " if code.startswith("`") or code.endswith("`") or not code else ""
    return f"{fence}{pad}{code}{pad}{fence}"


def markdown_block(text: object, language: str = "") -> str:
    """`text` as a fenced code block."""
    code = printable(text)
    fence = "`" * max(3, _longest_backticks(code) + 1)
    return f"{fence}{language}\n{code}\n{fence}"


def shortened(text: str, length: int) -> str:
    """`text` cut to `length` characters, with the number of characters that were cut: more than saying so takes."""
    note = f"… ({len(text) - length:,} more characters)"
    return text if len(text) <= length + len(note) else text[:length] + note


def _code_point(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def _encodable(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" if unicodedata.category(char) == "Cs" else char for char in text)


def _broken_reference(match: re.Match[str]) -> str:
    found = match[0]
    return f":{_ZERO_WIDTH}//" if found == "://" else found + _ZERO_WIDTH


def _escaped_line_start(match: re.Match[str]) -> str:
    return f"{match[0][:-1]}\\{match[0][-1]}"


def _longest_backticks(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
