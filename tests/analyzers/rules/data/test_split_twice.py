"""Two lines that draw one split each, of which each takes another part."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers.rules.data.train_validation_overlap import split_twice

KEYS = """\
def main():
    table = load()
    train = table.train_test_split(test_size=0.2)["train"]
    val = table.train_test_split(test_size=0.2)["test"]
    print(len(train))"""
TUPLES = """\
def main():
    _, val = random_split(data, [800, 200])
    train, _ = random_split(data, [800, 200])"""


def found(make: Any, text: str, split: str = "split(", **roles: str) -> split_twice.SplitTwice | None:
    process = make.process(make.steps(), sites=sites_of(text, split=split, **roles))
    return split_twice.at(process, process.location("split"))


def test_one_split_gives_both_parts(make: Any) -> None:
    keys = found(make, KEYS)
    assert keys is not None
    assert keys.fix == "Lines 3 and 4 each draw a split of their own: draw it once, and take both parts of that."
    assert keys.edit is not None
    assert (keys.edit.line, len(keys.edit.removed)) == (3, 2)
    assert keys.edit.added == [
        "    parts = table.train_test_split(test_size=0.2)",
        '    train, val = parts["train"], parts["test"]',
    ]
    tuples = found(make, TUPLES)
    assert tuples is not None
    assert tuples.edit is not None
    assert tuples.edit.added == ["    train, val = random_split(data, [800, 200])"]


def test_lines_that_stand_apart_have_an_example_alone(make: Any) -> None:
    apart = found(make, KEYS.replace("    val =", "    train = train.map(tokens)\n    val ="))
    assert apart is not None
    assert apart.edit is None
    assert apart.code.startswith("parts = table.")
    assert apart.fix.startswith("Lines 3 and 5 ")
    taken = found(make, KEYS.replace("len(train)", "parts"))
    assert taken is not None
    assert taken.edit is None, "the script has something of that name"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("test_size=0.2", "test_size=0.2, seed=1"),
        ("test_size=0.2", "**options"),
        ('["test"]', '["train"]'),
        ("val = table.", "val = others."),
        ('["test"]', "[part]"),
        ("    val =", "    if late:\n        val ="),
    ],
)
def test_other_splits_are_none_of_two_parts(make: Any, old: str, new: str) -> None:
    assert found(make, KEYS.replace(old, new)) is None


def test_a_seed_between_both_lines_may_draw_the_same(make: Any) -> None:
    assert found(make, KEYS.replace("    val =", "    set_seed(1)\n    val ="), seed="set_seed") is None
