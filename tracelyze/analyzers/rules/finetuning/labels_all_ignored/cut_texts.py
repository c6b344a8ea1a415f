"""Texts that are cut to one length, answers and all: how long they are, the line that says so, and what to change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_FILLED: Final = 0.9
"""Share of the places that a text fills, in the mean: of texts that are only padded to one length more are free."""
_BATCHES: Final = 3  # one or two may be of one length by chance
_KEPT_WHOLE: Final = (
    "prompt = prompt[-(max_length - len(answer)):]  # cut from the left, so that the answer stays whole\n"
    "ids, labels = prompt + answer, [-100] * len(prompt) + answer"
)
DROPS: Final = "samples = [s for s in samples if any(label != -100 for label in s['labels'])]"
_IN_FRONT: Final = re.compile(
    r"\[\s*(?:-100|[\w.]*ignore_\w+)\s*\]\s*\*\s*(?P<until>[A-Za-z_][\w.]*|len\([\w.]+\))\s*\+\s*"
    r"(?:(?P<ids>[\w.]+)\[\s*(?P=until)\s*:)?"
    r"|\[(?:[^\]]*,)?\s*:[^\]:,]+\]\s*=\s*(?:-100|[\w.]*ignore_\w+)\b",
    re.IGNORECASE,
)
_JOINED: Final = (
    "A tokenizer may join the first or last sign of a marker (a newline) with what stands beside it in a text: look "
    "for ids that occur in the texts."
)
PRINTS: Final = (
    'print(batch["input_ids"][0], batch["labels"][0])  # where does the answer begin, and is it there at all?'
)


_PRINTS_SAMPLE: Final = (
    "print([field[0] for field in batch])  # a sample: is each of its labels ignored, and should it be?"
)


def remedy(process: Process, share: float, most: float) -> Remedy:
    """Why no target counts in some batches, and what to do about it.

    `share`: the share of batches without a target. `most`: if a larger share of the samples had none, too few would
    be left without them.
    """
    length = _length(process) or _length_of_tensors(process)
    if length is not None:
        return _cut(process, *length)
    if share == 1 and _are_of_other_kinds(process):
        return Remedy(
            "Print the labels of a sample where they are made, beside what they are made of: a condition that never "
            "holds may give each of them ignore_index.",
            _PRINTS_SAMPLE,
            why=" What makes the labels gives them all this value, or ignore_index is also a class.",
        )
    cut_off = "" if _is_rarely_longest(process, share) else "truncation cuts the answers off behind a masked prompt, "
    why = f" Usually {cut_off}the answer's marker is never found, or ignore_index is also a class."
    masks = _masking(process)
    if share == 1 and not cut_off and masks is not None:
        return _unfound(process, masks, why)
    raises = " Cut prompts from the left or raise the maximum length." if cut_off else ""
    fix = f"Print a batch's labels next to its input ids.{raises} Check the template that the collator looks for."
    if share ** (1 / max(1.0, _rows(process))) < most:  # a batch has no target where none of its samples has one
        return Remedy(f"{fix} Drop samples without an answer.", DROPS, masks, why=why)
    left = "No sample that was looked at has a target" if share == 1 else "Most samples have no target"
    return Remedy(f"{fix} {left}, so dropping such samples is no remedy.", PRINTS, masks, why=why)


def _are_of_other_kinds(process: Process) -> bool:
    """Whether the targets are no ids of a text that goes on: batches without names hold ids beyond the last class."""
    rows = [
        row for row in process.tables["batches"].records() if row["trained"] and str(row["dtype"]).startswith("int")
    ]
    named = any(not str(row["field"]).isdecimal() for row in rows)
    largest = max((row["max"] for row in rows if row["max"] is not None), default=0.0)
    shapes = [_sizes(row["input_shape"] or "") for row in process.tables["loss_calls"].records() if row["training"]]
    classes = max((sizes[1] for sizes in shapes if len(sizes) > 1), default=0)
    return bool(not named and 0 < classes <= largest)


def _rows(process: Process) -> float:
    sizes = process.longest.steps["batch_size"] if process.optimizations else np.zeros(0)
    return float(np.nanmedian(sizes)) if np.isfinite(sizes).any() else 1.0


def _is_rarely_longest(process: Process, share: float) -> bool:
    """Whether more batches have no target than have the greatest length: these were cut at no maximum."""
    rows = [row for row in process.tables["batches"].records() if row["trained"] and row["shape"]]
    shapes = [sizes for row in rows if row["field"] == "labels" and len(sizes := _sizes(row["shape"])) == 2]
    lengths = [sizes[1] for sizes in shapes]
    return len(lengths) >= _BATCHES and lengths.count(max(lengths)) < share * len(lengths)


def _masking(process: Process) -> Location | None:
    """The only line that masks what stands in front of an answer."""
    return script_lines.only_of(recorded_text.matching(process, _IN_FRONT))


def _unfound(process: Process, masks: Location, why: str) -> Remedy:
    """What to do where a line masks all of each text."""
    own = own_statement.at(process, masks)
    known = _IN_FRONT.search(own.text if own is not None else masks.source)
    until, ids = (known["until"], known["ids"]) if known is not None else (None, None)
    if not until or not ids:
        return Remedy(
            f"Line {masks.line} masks what stands in front of the answer: print where it takes the answer to begin. "
            f"{_JOINED}",
            PRINTS,
            masks,
            why=why,
        )
    return Remedy(
        f"Line {masks.line} masks all ids up to {until}: print it beside the number of ids. Where both are alike, what "
        f"computes it finds no answer. {_JOINED}",
        f"print({until}, len({ids}), {ids})  # above line {masks.line}: is all of a text in front of its answer?",
        masks,
        why=why,
    )


def _cut(process: Process, length: int, filled: str) -> Remedy:
    pattern = re.compile(rf"(?P<name>\bmax_(?:\w*_)?len(?:gth)?\s*=\s*){length}\b")
    rows = _giving(process, length) or {
        (row["file"], row["line"]): row for row in process.sites.records() if pattern.search(row["source"] or "")
    }
    number = next(iter(rows.values()))["site"] if len(rows) == 1 else None
    line = process.site(number) if number is not None else None
    pattern = (
        pattern
        if line is None or pattern.search(line.source)
        else re.compile(rf"(?P<name>(?<!\S)|\bdefault\s*=\s*){length}\b")
    )
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
