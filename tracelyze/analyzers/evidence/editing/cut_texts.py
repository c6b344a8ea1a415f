"""Texts that are cut to one length, answers and all: how long they are, the line that says so, and what to change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.evidence import script_lines
from tracelyze.analyzers.evidence.remedy import Remedy
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process

_FILLED: Final = 0.9
"""Share of the places that a text fills, in the mean: of texts that are only padded to one length more are free."""
_BATCHES: Final = 3  # one or two may be of one length by chance
_KEPT_WHOLE: Final = (
    "prompt = prompt[-(max_length - len(answer)):]  # cut from the left, so that the answer stays whole\n"
    "ids, labels = prompt + answer, [-100] * len(prompt) + answer"
)
DROPS: Final = "samples = [s for s in samples if any(label != -100 for label in s['labels'])]"
PRINTS: Final = (
    'print(batch["input_ids"][0], batch["labels"][0])  # where does the answer begin, and is it there at all?'
)


def remedy(process: Process, share: float, most: float) -> Remedy:
    """Why no target counts in some batches, and what to do about it.

    `share`: the share of batches without a target. `most`: if a larger share of the samples had none, too few would
    be left without them.
    """
    length = _length(process) or _length_of_tensors(process)
    if length is not None:
        return _cut(process, *length)
    sizes = process.longest.steps["batch_size"] if process.optimizations else np.zeros(0)
    rows = float(np.nanmedian(sizes)) if np.isfinite(sizes).any() else 1.0
    without = share ** (1 / max(1.0, rows))  # a batch has no target where none of its samples has one
    why = (
        " Usually truncation cuts the answers off behind a masked prompt, the answer's marker is never found, or "
        "ignore_index is also a class."
    )
    fix = "Print a batch's labels next to its input ids. Cut prompts from the left or raise the maximum length"
    template = "check the template that the collator looks for."
    if without < most:
        return Remedy(f"{fix}, drop samples without an answer, and {template}", DROPS, why=why)
    return Remedy(f"{fix}, and {template} Most samples have no target: to drop them is no way.", PRINTS, why=why)


def _cut(process: Process, length: int, filled: str) -> Remedy:
    pattern = re.compile(rf"(?P<name>\bmax_(?:\w*_)?len(?:gth)?\s*=\s*){length}\b")
    rows = _giving(process, length) or {
        (row["file"], row["line"]): row for row in process.sites.records() if pattern.search(row["source"] or "")
    }
    number = next(iter(rows.values()))["site"] if len(rows) == 1 else None
    line = process.site(number) if number is not None else None
    pattern = pattern if line is None or pattern.search(line.source) else re.compile(rf"(?P<name>(?<!\S)){length}\b")
    twice = pattern.sub(lambda found: f"{found['name']}{2 * length}", line.source) if line else ""
    return Remedy(
        "Raise the length at which texts are cut until the answers fit, or cut the prompts from the left. To drop the "
        "samples without an answer would leave those with the shortest prompts.",
        f"{twice}  # or more: until the longest prompt and its answer fit" if twice else _KEPT_WHOLE,
        line or script_lines.only(process, "length"),
        why=f" Every batch looked at is {length} long, {filled}: texts are cut there, and the answers "
        "behind the prompts with them.",
    )


def _giving(process: Process, length: int) -> dict[tuple[str, int], dict[str, Any]]:
    """The lines that give this length to a name by which another line cuts."""
    cuts = " ".join(one.source for one in process.locations("length"))
    return {
        (row["file"], row["line"]): row
        for row in process.sites.records()
        if row["role"] == "constant" and row["value"] == str(length) and re.search(rf":\s*{row['name']}\b", cuts)
    }


def _length(process: Process) -> tuple[int, str] | None:
    """The length of all batches of texts, and how much of it texts fill, where that is most of it: texts that are not
    cut differ from batch to batch."""
    rows = [row for row in process.tables["batches"].records() if row["trained"] and row["shape"]]
    shapes = {tuple(_sizes(row["shape"])[1:]) for row in rows if row["field"] == "labels"}
    filled = [row["mean"] for row in rows if row["field"] == "attention_mask" and row["mean"] is not None]
    if len(filled) < _BATCHES or len(shapes) != 1 or (share := float(np.mean(filled))) < _FILLED:
        return None
    (shape,) = shapes
    return (shape[0], f"{percent(share)} of it text") if len(shape) == 1 else None


def _length_of_tensors(process: Process) -> tuple[int, str] | None:
    """The same of batches without names: of what holds integers, where hardly a row ends in padding."""
    rows = [row for row in process.tables["batches"].records() if row["trained"] and row["shape"]]
    sizes = [_sizes(row["shape"]) for row in rows if str(row["dtype"]).startswith("int")]
    padded = [row["pad_rows"] for row in process.tables["loss_calls"].records() if row["pad_rows"] is not None]
    texts = [size[1] for size in sizes if len(size) == 2 and size[1] > 1]
    full = 1 - float(np.mean(padded)) if padded else 0.0
    if len(texts) < 2 * _BATCHES or len(set(texts)) != 1 or full < _FILLED:
        return None
    return texts[0], f"and {percent(full)} of the rows fill it"


def _sizes(shape: str) -> Sequence[int]:
    return [int(size) for size in shape.split("x") if size.isdecimal()]
