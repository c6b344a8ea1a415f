"""The line that copies ids into labels, and how it reads where padding is ignored."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.evidence.candidates import copied_labels
from tracelyze.diagnosis import Location

LABELS = 'out["labels"] = [list(x) for x in out["input_ids"]]'


def place(line: int, source: str, role: str = "", function: str = "main") -> dict[str, Any]:
    return {"site": line, "role": role, "file": "a.py", "line": line, "function": function, "source": source}


@pytest.mark.parametrize(
    ("seen", "labels", "line"),
    [
        ("trainer.train()", [place(6, LABELS, "labels", "tokenize")], 6),
        ("loss = model(ids, mask, labels=batch['labels']).loss", [place(6, LABELS, "labels", "collate")], 6),
        ("loss = criterion(scores, labels)", [place(6, LABELS, "labels", "collate")], None),  # its own loss
        ("trainer.train()", [place(6, LABELS, "labels", "train"), place(60, LABELS, "labels", "test")], None),
        ("trainer.train()", [], None),
    ],
)
def test_where_labels_are_copied(make: Any, seen: str, labels: list[dict[str, Any]], line: int | None) -> None:
    loop = place(9, seen, "step" if "train()" in seen else "loss")
    process = make.process(sites=[loop, *labels])
    found = copied_labels.line(process, Location("a.py", 9, "main", seen))
    assert (found and found.line) == line


@pytest.mark.parametrize(
    ("source", "given", "expected"),
    [
        (LABELS, {"input_ids": [[5, 6, 0], [7, 0, 0]], "attention_mask": [[1, 1, 0], [1, 0, 0]]}, "lists"),
        ('out["labels"] = [x[:] for x in out["input_ids"]]', {}, "lists"),
        ("out['labels'] = [ids.copy() for ids in out['input_ids']]", {}, "lists"),
        ("labels = enc.input_ids.clone()", {}, "labels = enc.input_ids.masked_fill(enc.attention_mask == 0, -100)"),
        ("labels = ids.clone()", {}, ""),  # no mask is known beside them
        ("labels = out['input_ids'].copy()", {}, ""),  # a list of ids, or of rows
        ("out['labels'] = [x[1:] for x in out['input_ids']]", {}, ""),
        ("out['labels'] = [x for x in out['input_ids'] if x]", {}, ""),
    ],
)
def test_the_copy_with_padding_ignored(source: str, given: dict[str, Any], expected: str) -> None:
    code = copied_labels.masked(Location("a.py", 6, "tokenize", source))
    assert ("zip(out" in code) if expected == "lists" else code == expected
    if given:
        out = dict(given)
        exec(code, {"out": out})
        assert out["labels"] == [[5, 6, -100], [7, -100, -100]]
