"""The line of a collate_fn that a finding about its batches names."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tracelyze.collectors.program.lines import definitions

SITES: Any = SimpleNamespace(at=lambda role, code, line: line - code.co_firstlineno)


def first_alone(samples: list[Any]) -> Any:
    rows = torch.stack([one["x"] for one in samples])
    return {"x": rows, "mask": samples[0]["mask"][None]}


def all_of_them(samples: list[Any], key: str = "x") -> Any:
    parts = [sample[0] for sample in samples]
    return torch.stack(parts)


class Collator:
    def __call__(self, samples: list[Any]) -> Any:
        return samples[0]


@pytest.mark.parametrize(
    ("collate", "line"),
    [
        (first_alone, 2),
        (all_of_them, 0),
        (functools.partial(all_of_them, key="y"), 0),
        (Collator(), 1),
        (torch.utils.data.default_collate, None),
        (len, None),
        (None, None),
    ],
)
def test_the_line_of_a_collate_fn(collate: Any, line: int | None) -> None:
    assert definitions.collator(collate, SITES) == line
