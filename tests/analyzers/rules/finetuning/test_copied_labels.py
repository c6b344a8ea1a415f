"""The line that copies ids into labels, and how it reads where padding is ignored."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.script.candidates import copied_labels
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


COLLATE = """\
        return {{
            "input_ids": ids,
            {mask}
            # the model shifts them itself
            "labels": {value},
        }}"""


def given(make: Any, text: str, function: str = "__call__", more: Any = ()) -> Any:
    """A script that gives labels in a dictionary of this text, which begins at line 10."""
    lines = text.split("\n")
    at = next(number for number, line in enumerate(lines) if "labels" in line)
    row = place(10 + at, lines[at].strip(), "labels-given", function) | {"excerpt": text, "excerpt_line": 10}
    return make.process(sites=[place(9, "trainer.train()", "step"), row, *more])


@pytest.mark.parametrize(
    ("mask", "value", "line", "edited"),
    [
        ('"attention_mask": real,', "ids.clone()", 14, '"labels": ids.masked_fill(real == 0, -100),'),
        ('"attention_mask": (ids != 0).long(),', "ids.clone()", 14, "ids.masked_fill((ids != 0).long() == 0, -100)"),
        ('"attention_mask": real,', "ids", 14, ""),  # a tensor, or lists
        ('"attention_mask": real,', "list(ids)", 14, ""),
        ('"attention_mask": real,', "ids[:]", 14, ""),
        ("", "ids.clone()", 14, ""),  # what padding is, is not known
        ('"attention_mask": torch.ones_like(ids),', "ids.clone()", None, ""),  # nothing is filled up yet
        ('"attention_mask": real,', "targets.clone()", None, ""),  # no copy of the ids
        ('"attention_mask": real,', "ids[1:]", None, ""),
    ],
)
def test_a_copy_that_a_dictionary_is_given(make: Any, mask: str, value: str, line: int | None, edited: str) -> None:
    process = given(make, COLLATE.format(mask=mask or "# no mask", value=value))
    made = copied_labels.line(process, Location("a.py", 9, "main", "trainer.train()"))
    assert (made and made.line) == line
    entry = copied_labels.entry(process, made)
    edit = copied_labels.edit(entry, -100) if entry is not None else None
    assert (edit is not None) == bool(edited)
    code = copied_labels.example(entry, -100) if entry is not None else ""
    assert bool(code) == (value == "list(ids)")
    assert eval(f"{{{code.partition('#')[0]}}}", {"ids": [5, 6, 0], "real": [1, 1, 0]}) in (
        {},
        {"labels": [5, 6, -100]},
    )
    if edit is not None:
        assert edited in "\n".join(edit.added)
        assert [one for one in edit.added if one not in edit.removed] == [edit.added[4]], "nothing else changes"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("targets", "targets = targets.masked_fill(targets == 0, -100)  # above line 10"),
        (
            "fill(targets, 26)",
            """\
labels = fill(targets, 26)  # above line 10
labels = labels.masked_fill(labels == 0, -100)
# and in line 14: "labels": labels""",
        ),
    ],
)
def test_labels_that_a_batch_is_given(make: Any, value: str, expected: str) -> None:
    """Those that a collator hands on, beside what a data set gives it: a source and its translation."""
    seen = Location("a.py", 9, "main", "trainer.train()")
    text = COLLATE.format(mask='"attention_mask": real,', value=value)
    inside = place(14, f'"labels": {value},', "labels-given", "<listcomp>")
    read = place(70, 'return {"input_ids": source, "labels": target}', "labels-given", "__getitem__")
    reads = place(69, "def __getitem__(self, i):", "dataset", "__getitem__")
    process = given(make, text, more=[inside, read, reads])
    found = copied_labels.handed(process, seen)
    assert (found.line, found.function) == (14, "__call__")
    assert copied_labels.masked_by_class(process, found, 0, -100) == expected
    assert copied_labels.line(process, seen) is None, "no copy of the ids"
    assert copied_labels.handed(given(make, text, "__getitem__", [reads]), seen) is None, "others may fill it up"
    other = place(90, '"labels": targets,', "labels-given", "collate_for_test")
    assert copied_labels.handed(given(make, text, more=[other]), seen) is None, "which of them is not known"


def test_where_a_copy_in_a_dictionary_is_not_named(make: Any) -> None:
    seen = Location("a.py", 9, "main", "trainer.train()")
    text = "    return dict(input_ids=ids, labels=ids.clone())"
    assert copied_labels.line(given(make, text), seen).line == 10
    listed = given(make, text.replace("ids.clone()", "list(ids)").replace("dict(", "dict(attention_mask=real, "))
    entry = copied_labels.entry(listed, copied_labels.made(listed))
    assert copied_labels.example(entry, -100).startswith("labels=[token if real else -100"), "as it stands there"
    reads = place(8, "def __getitem__(self, i):", "dataset", "__getitem__")
    assert copied_labels.line(given(make, text, "__getitem__", [reads]), seen) is None, "others fill it up later"
    assigns = [place(40, LABELS, "labels", "train"), place(60, LABELS, "labels", "test")]
    assert copied_labels.line(given(make, text, more=assigns), seen) is None, "labels are assigned elsewhere"
    second = place(70, '"labels": ids.clone(),', "labels-given", "collate_for_test")
    assert copied_labels.line(given(make, text, more=[second]), seen) is None, "which of them is not known"


@pytest.mark.parametrize(
    ("given", "others", "example"),
    [
        (
            "list(ids)",
            ["ids, mask, labels = [], [], []"],
            "labels = [-100] * prompt_length + list(ids[prompt_length:])",
        ),
        ("ids.copy()", [], "labels = [-100] * prompt_length + list(ids[prompt_length:])"),
        ("ids.clone()", ["labels = []"], "labels = ids.clone()  # above line 6\nlabels[..., :prompt_length] = -100"),
        ("ids", [], ""),  # what changed them would change the ids
        ("torch.tensor(labels)", [], None),  # no copy
        ("list(ids)", ["labels = shifted(ids)"], None),  # another line makes labels
    ],
)
def test_a_dictionary_that_holds_a_copy_without_its_prompt(
    make: Any, given: str, others: list[str], example: str | None
) -> None:
    source = f'rows.append({{"input_ids": ids, "labels": {given}}})'
    made = place(6, source, "labels-given", "__init__") | {"excerpt": source, "excerpt_line": 6}
    lines = [place(40 + at, text, "labels", "collate") for at, text in enumerate(others)]
    process = make.process(sites=[made, *lines])
    found = copied_labels.copied(process)
    assert (found is None) == (example is None)
    if found is not None and example is not None:
        entry = copied_labels.entry(process, found)
        code = copied_labels.without_prompt(entry) if entry is not None else ""
        assert found.line == 6
        assert code.startswith(example)
        assert bool(code) == bool(example)
