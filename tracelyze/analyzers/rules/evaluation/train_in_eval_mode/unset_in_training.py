"""What eval mode makes of normalisations in a training step, and whether anything had set their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization


def all_unset(optimization: Optimization) -> bool:
    """Whether no batch and no checkpoint had set any of the batch normalisations of a trained model when it was first
    called in eval mode: nothing of it is pretrained."""
    process, held = optimization.process, _held_by(optimization)
    rows = [row for row in process.tables["unset"].records() if row["model"] in held and row["modules"]]
    return any(row["modules"] == row["of"] for row in rows) and not any(process.tables["loads"].records())


def _held_by(optimization: Optimization) -> set[Any]:
    """The models whose parameters an optimizer holds; of an old recording, none."""
    links = optimization.process.tables.get("links")
    rows = links.records() if links is not None else ()
    return {row["model"] for row in rows if row["optimizer"] == optimization.optimizer} - {None}


def without_training_mode(optimization: Optimization, unset: bool = False) -> str:
    """A sentence on what eval mode changes in a training step, by the kinds of modules that the trained models have.
    `unset`: their batch normalisations have seen no batch yet."""
    process, held = optimization.process, _held_by(optimization)
    models = [row for row in process.models.records() if not held or row["model"] in held]
    kinds = " ".join(str(row["sensitive"] or "") for row in models).strip()
    if not kinds:
        return "Dropout, BatchNorm and the like act in it as in an evaluation."
    parts = ["Dropout is off"] if "ropout" in kinds else []
    if "BatchNorm" in kinds:
        parts.append(
            "BatchNorm keeps the mean 0 and variance 1 that it began with, instead of the batch's"
            if unset
            else "BatchNorm uses old statistics instead of the batch's and does not update them"
        )
    return f"{', and '.join(parts)}." if parts else f"What depends on the mode here: {kinds}."
