"""A teacher in eval mode beside a student that trains: what is off belongs to the teacher, and is off on purpose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


_NAMED: Final = re.compile(r"teacher", re.IGNORECASE)


def is_named(name: object) -> bool:
    """Whether a model, or a part of one, is a teacher by its name."""
    return name is not None and _NAMED.search(str(name)) is not None


def evaluates(process: Process) -> bool:
    """Whether losses of the training are given targets that a model, or a part of one, made in eval mode; or whether
    all modules that depend on the mode are those of models that are teachers by their names."""
    sensitive = [row["called_as"] for row in process.models.records() if row["sensitive"]]
    if sensitive and all(is_named(name) for name in sensitive):
        return True
    rows = [row for row in process.tables["loss_calls"].records() if row["training"] and row["step"]]
    targets = [row for row in rows if row.get("target_model") is not None or row.get("target_part")]
    return bool(targets) and not any(row.get("target_in_train") for row in targets)


def only_batch_norm(optimization: Optimization) -> bool:
    """Whether all mode-sensitive modules of the models are normalisations: those are often frozen on purpose."""
    rows = optimization.process.models.records()
    kinds = [kind for row in rows for kind in re.split(r"[,;]\s*", row["sensitive"] or "") if kind]
    return bool(kinds) and all("norm" in kind.lower() for kind in kinds)
