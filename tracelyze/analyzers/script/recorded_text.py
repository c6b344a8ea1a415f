"""The text of the script as far as it was recorded: some lines around each place that was seen (table sites)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracelyze.diagnosis import Excerpt, Location

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from tracelyze.analyzers.recorded.run import Process

_HEAD: Final = re.compile(r"\s*(?:async def|def|class)\b")
_AROUND: Final = 3  # lines before and after one, as of those that were recorded for themselves
_TORCH: Final = re.compile(r"(?<![\w.])torch\.")
WITHIN: Final = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")  # which stand within a function


def lines(process: Process) -> Iterator[Location]:
    """Every recorded line, with its indentation; those near several places come several times."""
    for row, excerpt in _excerpts(process):
        for number, text in enumerate(excerpt.lines, excerpt.first_line):
            yield Location(row["file"] or "", number, row["function"] or "", text)


def matching(process: Process, pattern: re.Pattern[str]) -> list[Location]:
    """The recorded lines that a pattern is found in, each once."""
    found = (replace(one, source=one.source.strip()) for one in lines(process) if pattern.search(one.source))
    return list({one.file_line: one for one in found}.values())


def everything(process: Process) -> Iterator[str]:
    """What was recorded of each place: the lines around it, or itself alone."""
    return (str(row["excerpt"] or row["source"] or "") for row in process.sites.shared_records())


def of_file(process: Process, file: str) -> dict[int, str]:
    """The recorded lines of a file, by their numbers."""
    found: dict[int, str] = {}
    for row, excerpt in _excerpts(process):
        if row["file"] == file:
            found |= dict(enumerate(excerpt.lines, excerpt.first_line))
    return found


def names_torch(process: Process, file: str) -> bool:
    """Whether a recorded line of the file says `torch.`, so that a line which is put there may say it, too."""
    return any(_TORCH.search(line) for line in of_file(process, file).values())


def around(process: Process, location: Location) -> dict[int, str]:
    """The recorded lines around all places in the function of a location, by their numbers."""
    found: dict[int, str] = {}
    for row, excerpt in _excerpts(process):
        if (row["file"], row["function"]) == location.file_function:
            found |= dict(enumerate(excerpt.lines, excerpt.first_line))
    return found


def of_function(process: Process, location: Location) -> dict[int, str]:
    """The recorded lines that belong to the function of a location, by their numbers: not those of a function above or
    below it, which may have the same name in another class."""
    found = around(process, location)
    depth = indent_of(found.get(location.line, ""))
    heads = {at for at, line in found.items() if _HEAD.match(line) and indent_of(line) < depth}
    sites = [row for row in process.sites.shared_records() if row["file"] == location.file and row["line"]]
    others = {int(row["line"]) for row in sites if row["function"] not in (location.function, *WITHIN)}
    begin = max((at for at in heads | others if at <= location.line), default=0)
    end = min((at for at in heads | others if at > location.line), default=max(found, default=0) + 1)
    return {at: line for at, line in found.items() if begin <= at < end}


def decorators(process: Process, location: Location) -> list[str]:
    """The recorded decorators of the function of a location, each on a line of its own, the nearest first."""
    found, head = of_file(process, location.file), re.compile(rf"\s*(?:async )?def {re.escape(location.function)}\(")
    at = location.line
    while at in found and not head.match(found[at]):
        at -= 1
    above: list[str] = []
    while at in found and (line := found.get(at - 1, "").strip()).startswith("@"):
        above.append(line)
        at -= 1
    return above


def excerpt_of(process: Process, location: Location) -> Excerpt | None:
    """The recorded lines around a location, or else those around other places that it is among; None without any."""
    for row, excerpt in _excerpts(process):
        if (row["file"], row["line"]) == location.file_line:
            return excerpt
    lines = of_file(process, location.file)
    if location.line not in lines:
        return None
    first = last = location.line
    while first - 1 in lines and location.line - first < _AROUND:
        first -= 1
    while last + 1 in lines and last - location.line < _AROUND:
        last += 1
    return Excerpt(first, [lines[at] for at in range(first, last + 1)])


def line_at(process: Process, location: Location) -> tuple[str, str] | None:
    """Indentation and text of one line as it stands in the file; None where its text is not what ran. Of a statement
    that stands on several lines, `editing/own_statement` knows the whole."""
    excerpt = excerpt_of(process, location)
    if excerpt is None or not 0 <= location.line - excerpt.first_line < len(excerpt.lines):
        return None
    line = excerpt.lines[location.line - excerpt.first_line]
    text = line.lstrip()
    return (line[: len(line) - len(text)], text) if text == location.source else None


def blocks_around(text: Mapping[int, str], number: int) -> list[str]:
    """The lines that open the blocks around a line, innermost first, as far as the text between them is known."""
    found, depth = [], indent_of(text.get(number, ""))
    while depth and (above := text.get(number := number - 1)) is not None:
        if above.strip() and not above.lstrip().startswith("#") and indent_of(above) < depth:
            depth = indent_of(above)
            found.append(above.strip())
    return found


def indent_of(line: str) -> int:
    """How far a line is indented, in characters."""
    return len(line) - len(line.lstrip())


def _excerpts(process: Process) -> Iterator[tuple[Mapping[str, Any], Excerpt]]:
    """The rows of the table sites that hold lines, each with these."""
    for row in process.sites.shared_records():
        first, text = row["excerpt_line"], row["excerpt"]
        if first and text:
            yield row, Excerpt(int(first), str(text).split("\n"))
