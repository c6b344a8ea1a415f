"""Examples made of the program's own statements leave its comments out, and keep those that explain the example."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.script.editing import own_comments

WRITTEN = """\
loader = DataLoader(dataset, batch_size=32, shuffle=True)  # every rank shuffles alike
label = "# no comment"
"""


@pytest.mark.parametrize(
    ("code", "left"),
    [
        (
            "a = b\nloader = DataLoader(dataset, sampler=sampler)  # every rank shuffles alike\nuse(loader)",
            "a = b\nloader = DataLoader(dataset, sampler=sampler)\nuse(loader)",
        ),
        ("a = b\n# every rank shuffles alike\nc = d", "a = b\nc = d"),
        ("a = b  # once per epoch", "a = b  # once per epoch"),
        ('label = "# no comment"', 'label = "# no comment"'),
        ("for x in (  # every rank shuffles alike", "for x in (  # every rank shuffles alike"),
    ],
    ids=["behind a statement", "a line of its own", "of the example", "a text", "no whole statement"],
)
def test_comments_of_the_program_are_left_out(make: Any, code: str, left: str) -> None:
    site = {"site": 1, "role": "dataloader", "file": "a.py", "line": 1, "function": "main", "excerpt_line": 1}
    process = make.process(sites=[site | {"source": WRITTEN.splitlines()[0], "excerpt": WRITTEN.rstrip()}])
    assert own_comments.without(code, process) == left
