"""What became of a loss: from the first call that was looked at to the last step, as far as it was measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import timing
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def said(process: Process, rows: list[dict[str, Any]]) -> str:
    """A sentence, behind a blank; empty where too little is known. Calls are looked at early for the most part: the
    last of them stands for the end only where no loss of a later step is known to be the same one."""
    known = [row | {"value": value} for row in rows if (value := _value(row)) is not None]
    if len(known) < 2:
        return ""
    first, last, step = known[0]["value"], known[-1]["value"], int(known[-1]["step"] or 0)
    later = process.steps["loss"][step + 1 :]
    later = later[np.isfinite(later)]
    if len(later) and len({*process.steps["optimizer"].tolist()}) == 1 and _of_the_steps(process, known):
        return f" The loss went from {number(first)} to {number(float(later[-1]))}."
    own = timing.placed(process, [step]).step
    which = "mean of the loss" if any(row.get("reduction") == "sum" for row in known) else "loss"
    return f" The {which} went from {number(first)} to {number(last)} at step {own:,}, where it was last looked at."


def _value(row: dict[str, Any]) -> float | None:
    """What a call gave; of a sum over targets their mean, as which scripts show it. None where it is not known."""
    if row["value"] is None:
        return None
    if row.get("reduction") != "sum":
        return float(row["value"])
    targets = math.prod(map(int, (row["target_shape"] or "1").split("x"))) * (1 - (row["ignored"] or 0))
    return float(row["value"]) / targets if targets > 0 else None


def _of_the_steps(process: Process, known: list[dict[str, Any]]) -> bool:
    """Whether what these calls gave is what backward was called on at the step that followed each."""
    losses = process.steps["loss"]
    pairs = [(row["value"], losses[int(row["step"])]) for row in known if row["step"] and row["step"] < len(losses)]
    return bool(pairs) and all(math.isclose(value, loss, rel_tol=1e-3) for value, loss in pairs)
