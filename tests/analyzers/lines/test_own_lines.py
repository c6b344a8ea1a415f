"""Of several lines of a role, a training of several is told its own."""

from __future__ import annotations

from typing import Any

import pytest


def line(number: int, role: str, at: int, function: str, file: str = "train.py") -> dict[str, Any]:
    return {"site": number, "role": role, "file": file, "line": at, "function": function, "source": f"{role}()"}


@pytest.mark.parametrize(
    ("clips", "lines"),
    [
        ([(21, "teach", "train.py"), (41, "distil", "train.py")], (21, 41)),
        ([(41, "distil", "train.py"), (21, "teach", "train.py")], (21, 41)),
        ([(9, "clip", "other.py"), (41, "helper", "train.py")], (41, 41)),  # in the file that trains
        ([(9, "clip", "other.py"), (10, "clip", "other.py")], (9, 9)),  # nothing tells which
        ([(41, "distil", "train.py")], (None, 41)),  # the only one that was seen is not that of the first
    ],
)
def test_the_line_that_clips_for_one_training_of_two(make: Any, clips: Any, lines: tuple[int | None, int]) -> None:
    steps = make.steps() | {"optimizer": [0] * 200 + [1] * 200}
    optimizers = [
        {"optimizer": 0, "name": "SGD", "site": 1, "backward_site": 2},
        {"optimizer": 1, "name": "AdamW", "site": 3, "backward_site": 4},
    ]
    sites = [
        line(1, "step", 22, "teach"),
        line(2, "backward", 20, "teach"),
        line(3, "step", 42, "distil"),
        line(4, "backward", 40, "distil"),
        *(line(10 + at, "clip", *one) for at, one in enumerate(clips)),
    ]
    links = [{"step": 1, "optimizer": 0, "model": 0}, {"step": 201, "optimizer": 1, "model": 1}]
    process = make.process(steps, optimizers=optimizers, sites=sites, more={"links": links})
    found = [one.location("clip") for one in process.trainings]
    assert tuple(one and one.line for one in found) == lines
    whole = process.location("clip")
    assert whole is not None
    assert whole.line == clips[0][0], "of a whole process, the first"
