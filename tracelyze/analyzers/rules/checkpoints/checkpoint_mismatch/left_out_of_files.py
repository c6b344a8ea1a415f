"""Files of weights that leave out what normalisations keep, and models that loaded them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def unset_by_a_load(process: Process, save: dict[str, Any]) -> int | None:
    """The step after which a model evaluates with statistics that nothing set, once it has loaded what was saved: all
    that was trained, and not what its normalisations keep."""
    loads = [row for row in process.tables["loads"].records() if row["step"] >= save["step"] and not row["unexpected"]]
    lacking = [row for row in loads if row["given"] >= save["held"] and row["missing"]]
    for row in process.tables["unset"].records():
        missed = (one["step"] <= row["step"] and one["missing"] >= row["modules"] for one in lacking)
        if row["modules"] and not row["training"] and any(missed):
            return int(row["step"])
    return None


def without(evaluated: int | None) -> str:
    """What comes of a file that lacks them. `evaluated`: the step after which a model that loaded it was, if any."""
    if evaluated is None:
        return "A model that loads it evaluates with mean 0 and variance 1, or with statistics from another training."
    return f"A model that loaded it evaluates with mean 0 and variance 1 after step {evaluated:,}."
