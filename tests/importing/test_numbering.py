"""Steps that count on over epochs are new rows: those of the log stay as they were read."""

from __future__ import annotations

import copy

import pytest

from tracelyze.importing.numbering import IN_EPOCH, Rows, numbered

WITHIN: Rows = [{"epoch": e, "step": s, IN_EPOCH: 10.0, "loss": 2.0} for e in (0.0, 1.0) for s in (1.0, 9.0)]
EPOCHS: Rows = [{"epoch": 1.0, "loss": 2.0}, {"epoch": None, "loss": 1.5}, {"epoch": 2.0, "loss": 1.0}]
LINES: Rows = [{"epoch": 0.0, "loss": 2.0} for _ in range(3)]


@pytest.mark.parametrize(
    ("rows", "steps"),
    [(WITHIN, [1.0, 9.0, 11.0, 19.0]), (EPOCHS, [1.0, None, 2.0]), (LINES, [1.0, 2.0, 3.0])],
    ids=["within epochs", "by epochs", "by lines"],
)
def test_a_log_keeps_its_rows(rows: Rows, steps: list[float | None]) -> None:
    before = copy.deepcopy(rows)
    counted, said = numbered(rows)
    assert [row.get("step") for row in counted] == steps
    assert said
    assert all(IN_EPOCH not in row for row in counted)
    assert rows == before
