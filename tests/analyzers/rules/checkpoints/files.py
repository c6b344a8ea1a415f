"""Rows of the table checkpoints, of a file that is written and read back, and optimizers whose state it may hold."""

from __future__ import annotations

from typing import Any

SAVE = {
    "action": "save",
    "file": "last.pt",
    "keys": "epoch model optimizer",
    "step": 100,
    "tensors": 8,
    "optimizer": True,
    "scheduler": False,
    "scaler": False,
    "progress": True,
    "held": 8,
    "missing": 0,
    "compared": 8,
    "untouched": 0,
}
LOAD = SAVE | {
    "action": "load", "step": 200, "model_restored": True, "optimizer_restored": True, "scheduler_restored": False,
    "scaler_restored": False, "held": None, "missing": None, "compared": None, "untouched": None,
}  # fmt: skip
ADAM = [{"optimizer": 0, "name": "AdamW", "device": "cpu", "dtype": "float32", "options": '{"lr": 0.01}'}]
SGD = [ADAM[0] | {"name": "SGD", "options": '{"lr": 0.01, "momentum": 0}'}]


def judge(make: Any, rule: str, rows: list[dict[str, Any]], **more: Any) -> Any:
    return make.check(rule, make.process(more={"checkpoints": rows}, **({"optimizers": ADAM} | more)))
