"""Where torch.compile broke a graph or gave up, and why, in words."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

Row = dict[str, Any]
# A compiled training step breaks at its backward and its optimizer in any case; the others are asked for.
ON_PURPOSE = ("backward", "Optimizer", "_dynamo.graph_break()", "compiler.disable", "dynamo.disable")
WORDS = (
    ("Tensor.item", "the value of a tensor is read"),
    ("generic_jump", "Python decides by the value of a tensor"),
    ("ata-dependent", "Python decides by the value of a tensor"),
    ("`print`", "something is printed"),
)


def is_on_purpose(row: Row) -> bool:
    """Whether the script asked for the break, or could not do without."""
    return any(word in row["reason"] for word in ON_PURPOSE)


def given_up(process: Process, rows: list[Row]) -> list[tuple[Row, Location]]:
    """Functions of which nothing was compiled, with the lines that stood in the way.

    Not those that call something that was compiled later: most of their work may lie in that.
    """
    compiled = [int(row["frame"]) for row in rows if row.get("operators") and row["frame"] is not None]
    found = []
    for row in rows:
        if row["kind"] != "given-up" or row["frame"] is None or is_on_purpose(row):
            continue
        line = process.site(row["site"])
        if line is not None and not any(frame >= row["frame"] for frame in compiled):
            found.append((row, line))
    return found


def broken(process: Process, rows: list[Row]) -> tuple[dict[int, str], int]:
    """Lines (table sites) behind whose break the same function goes on computing, and why; the graphs that do so."""
    behind = [place(process, row) for row in rows if row.get("resumed") and (row["operators"] or 0) > 0]
    at: dict[int, str] = {}
    for row in rows:
        if (
            row["kind"] == "break"
            and row["site"] is not None
            and not is_on_purpose(row)
            and place(process, row) in behind
        ):
            at.setdefault(int(row["site"]), in_words(row["reason"]))
    return at, len(behind)


def most_often(graphs: list[Row]) -> list[Row]:
    """The compilations of the function that was compiled most often."""
    by_frame: dict[int, list[Row]] = defaultdict(list)
    for row in graphs:
        if row["frame"] is not None and row["again"] is not None:
            by_frame[int(row["frame"])].append(row)
    return max(by_frame.values(), key=lambda rows: max(row["again"] for row in rows), default=[])


def place(process: Process, row: Row) -> tuple[str, str]:
    """File and function."""
    line = process.site(row["site"])
    return (line.file if line is not None else "", row["function"])


def where(line: Location) -> str:
    """A line, to begin a sentence with."""
    return f"In line {line.line} of {line.file.rpartition('/')[2]}"


def in_words(reason: str) -> str:
    """The reason of a break in plain words where it is one of the usual ones, else torch's own."""
    return next((words for mark, words in WORDS if mark in reason), reason.partition(" Explanation:")[0][:80])
