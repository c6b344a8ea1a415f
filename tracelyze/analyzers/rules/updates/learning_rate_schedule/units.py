"""Where a scheduler is to be stepped: with every batch, with every epoch, or as its length counts."""

from __future__ import annotations

from typing import Final

PER_EPOCH: Final = "scheduler.step()  # behind the loop over batches, at its depth: once per epoch, and nowhere else"
PER_BATCH: Final = "scheduler.step()  # right behind optimizer.step(): once per batch, and nowhere else"
EITHER: Final = (
    "scheduler.step()  # behind the loop over batches, once per epoch, if its length counts epochs\n\n"
    "# scheduler.step()  # right behind optimizer.step(), once per batch, if its length counts batches"
)
_RETURNED: Final = 'return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "%s"}}'
_IN_LIGHTNING: Final = {
    PER_EPOCH: _RETURNED % "epoch",
    PER_BATCH: _RETURNED % "step",
    EITHER: f"{_RETURNED % 'step'}\n"
    '# "interval": "epoch", which Lightning takes without it, if the length of the schedule counts epochs',
}
"""The end of configure_optimizers, from which Lightning steps the scheduler itself."""
BY_LIGHTNING: Final = "Lightning steps it once per epoch unless what is returned says otherwise."


def in_lightning(code: str) -> str:
    """The example for a scheduler that Lightning steps; as it is where it is about something else."""
    return _IN_LIGHTNING.get(code, code)


def interval(code: str) -> str:
    """How often an example says that the scheduler is to be stepped, in Lightning's words; empty where it leaves that
    open, or is about something else."""
    return {PER_EPOCH: "epoch", PER_BATCH: "step"}.get(code, "")


def of_length(horizon: int | None, batches: int, epochs: int | None, about: float) -> str:
    """What the length of a schedule counts, beside the steps and epochs of the training, where it is near one of them
    and far from the other."""
    if not horizon:
        return EITHER
    of_batches = batches / about <= horizon <= batches * about
    of_epochs = epochs is not None and abs(horizon - epochs) <= 1
    if of_batches == of_epochs:
        return EITHER
    return PER_BATCH if of_batches else PER_EPOCH
