"""Rows of the table reach, of a run in which a backward reaches what no optimizer holds."""

from __future__ import annotations

COUNT = 400
ALL = {
    "optimizer": 0,
    "step": COUNT,
    "steps": COUNT,
    "held": 8,
    "held_elements": 1000,
    "missed": 0,
    "missed_elements": 0,
}
CUT = ALL | {"missed": 4, "missed_elements": 400, "names": "item.first.weight, item.first.bias and 2 more"}
FREE = {
    "step": 300, "steps": 300, "held": 8, "missed": 4, "missed_elements": 400, "names": "item.first.weight",
    "shared_model": 0, "fed_by_trained": 0, "short_lived": 0,
}  # fmt: skip
RAN = [{"module": "item.first"}, {"module": ""}]
