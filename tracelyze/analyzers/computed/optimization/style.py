"""What kind of training this is, as far as it decides whether a curve can be judged at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process, Training

ROLLOUT_PASSES_PER_STEP = 0.2
REWARDS = ("reward", "rollout/ep_rew_mean", "env/reward/total", "critic/rewards/mean", "objective/scores")


def unjudgeable(training: Training) -> str | None:
    """Why loss and gradient norm of this training have no level to return to, or None if they can be judged."""
    if len(training.process.trainings) > 1:
        return "several optimizers work against or beside each other: their losses have no minimum of their own"
    if acts(training.process):
        return "the model acts between its steps (reinforcement learning): its loss has no minimum to keep to"
    return None


def acts(process: Process) -> bool:
    """Whether the trained model is called again and again without a loss and without a loader: it plays or samples.

    In a log made elsewhere: whether a reward was logged beside the loss (`reward`, `rewards/<function>/mean`).
    """
    evals = process.evals
    if rewarded(process):
        return True
    if len(evals) == 0 or not evals.has("trained"):
        return False
    acting = (evals["trained"] == 1) & (evals["losses"] == 0) & ~np.isfinite(evals["loader"])
    return int(acting.sum()) >= max(10.0, ROLLOUT_PASSES_PER_STEP * len(process.steps))


def rewarded(process: Process) -> bool:
    """Whether the run's log has a mean reward, as trainers of reinforcement learning write it."""
    scalars = process.tables.get("scalars")
    return scalars is not None and any(scalars.matches("name", name).any() for name in REWARDS)
