"""Which line of the script is meant where a process trains several times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest


def process(make: Any, *lines: tuple[str, int], **more: Any) -> Any:
    """Its first lines are the backward and the step of optimizer 0, and the step of optimizer 1."""
    sites = [
        {"site": at, "role": role, "file": "train.py", "function": "<module>", "line": line, "source": "..."}
        for at, (role, line) in enumerate(lines)
    ]
    optimizers = [{"optimizer": n, "name": "Adam", "site": 1 + n, "backward_site": 0, **more} for n in range(2)]
    return make.process(make.steps(), sites=sites, optimizers=optimizers)


@pytest.mark.parametrize(
    ("step", "backwards", "line"),
    [
        (36, [35], 35),  # lines are looked up now and then: what is known is the line of the first training
        (36, [35, 40], 35),
        (18, [], 16),  # two optimizers that step on one backward
        (36, [40], 16),
    ],
)
def test_the_backward_of_a_second_optimizer_stands_above_its_step(
    make: Any, step: int, backwards: list[int], line: int
) -> None:
    one = process(make, ("backward", 16), ("step", 17), ("step", step), *(("backward", at) for at in backwards))
    assert replace(one.longest, optimizer=1).backward_location.line == line
    assert replace(one.longest, optimizer=0).backward_location.line == 16


def test_the_loss_of_a_training_by_a_framework_is_no_line_of_another_one(make: Any) -> None:
    lines = [("backward", 23), ("step", 23), ("step", 23), ("loss", 15), ("loss", 20)]
    whole = process(make, *lines)
    assert whole.longest.loss_location.line == 15
    second = replace(whole, training="training 2 of 2")
    assert replace(whole.longest, process=second).loss_location.line == 23
