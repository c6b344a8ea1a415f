"""What kind of training this is, as far as it decides whether a curve can be judged at all."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.once import measured_once
from tracelyze.analyzers.computed.schedules import range_tests

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

ROLLOUT_PASSES_PER_STEP = 0.2  # a validation every fifth step would be rare; acting programs collect that often
REWARDS = ("reward", "rollout/ep_rew_mean", "env/reward/total", "critic/rewards/mean", "objective/scores")
SMALL = 0.5  # of a training batch: what environments, or prompts, give at a time
FEWEST = 10  # passes
POLICY = re.compile(
    r"\b(?:policy|actor|pg)(?:[_ ]gradient)?[_ /]loss\b|\bloss[_ /](?:policy|actor|pg)\b", re.IGNORECASE
)
TURNS = 0.5  # of the steps of each, within the time of the other
MORE = 2.0  # times the classes: a guess among twice as many loses 0.7 more
REGRESSIONS = ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss")


def unjudgeable(optimization: Optimization) -> str | None:
    """Why loss and gradient norm of this training have no level to return to, or None if they can be judged."""
    if len(optimization.process.optimizations) > 1:
        beside = "several optimizers work against or beside each other: their losses have no minimum of their own"
        return several(optimization.process, beside)
    if acts(optimization.process):
        return "the model acts between its steps (reinforcement learning): its loss has no minimum to keep to"
    if values_a_policy(optimization.process):
        return "a policy trains beside it (reinforcement learning): what its loss compares with changes as that learns"
    if range_tests.begins_with_one(optimization):
        return "the training begins with a search for a learning rate, which ends where the loss blows up"
    return _chooses_among_more(optimization.process)


def several(process: Process, beside: str) -> str:
    """Why a process with several optimizers is not judged: `beside`, unless they are of trainings of their own."""
    if len(process.trainings) < 2:
        return beside
    return f"{len(process.trainings)} trainings share this process, and what is looked at is not recorded for each"


@measured_once
def acts(process: Process) -> bool:
    """Whether the model is trained by what it did. Seen in its loss: what was chosen is weighed by advantages, above
    zero and below. Or the model is called again and again between its steps, without a loss and by fewer samples than
    it is trained on, and its loss weighs choices, is about the value of one choice (Q-learning), or was not looked at.
    Beside a loss that says otherwise, calls are no evidence: a program that measures its accuracy makes them, too.

    In a log made elsewhere: whether a reward was logged beside the loss (`reward`, `rewards/<function>/mean`), or the
    loss of a policy.
    """
    if weighs_choices(process):
        return True
    weighed = process.tables["loss_graphs"]["weights"] > 0
    return (bool(weighed.any()) or _values_choices(process) or not _shows_its_loss(process)) and _plays(process)


def weighs_choices(process: Process) -> bool:
    """Whether the loss, or the run's log, is that of a policy: the part of `acts` that does not go by calls."""
    if rewarded(process) or _logs_a_policy(process):
        return True
    graphs = process.tables["loss_graphs"]
    negative = graphs["weights_negative"][graphs["weights"] > 0]
    return bool(len(negative)) and 0 < float(np.median(negative)) < 1


def _logs_a_policy(process: Process) -> bool:
    scalars = process.tables.get("scalars")
    return scalars is not None and any(POLICY.search(name) for name in set(scalars.text("name")) if name)


@measured_once
def values_a_policy(process: Process) -> bool:
    """Whether this is one of several trainings of a program, and takes turns with another one while a policy trains:
    what a critic learns is the value of what the policy does, which changes with it."""
    whole = process.whole
    if whole is None or not any(json.loads(row["text"]).get("both_signs") for row in whole.events_of("policy-loss")):
        return False
    own = process.steps["time"]
    others = [one.steps["time"] for one in whole.trainings if one.training != process.training]
    return any(_within(own, other) >= TURNS and _within(other, own) >= TURNS for other in others)


def _within(times: np.ndarray, others: np.ndarray) -> float:
    """The share of these times that lie between the first and the last of the others."""
    first, last = np.nanmin(others, initial=np.inf), np.nanmax(others, initial=-np.inf)
    return float(np.mean((times >= first) & (times <= last))) if len(times) else 0.0


@measured_once
def _chooses_among_more(process: Process) -> str | None:
    """A sentence if the classes of the training's only line of loss become more and more: a guess then loses more, too.

    So does the cross-entropy of a contrastive loss whose negatives are collected as it goes on.
    """
    training = [line for line in loss_calls.lines(process, loss_calls.SCORED) if line.training]
    shapes = [loss_calls.sizes(row["input_shape"]) for row in training[0].rows] if len(training) == 1 else []
    classes = [shape[1] for shape in shapes if len(shape) == len(("samples", "classes"))]
    quarter = len(classes) // 4
    if not quarter or np.median(classes[-quarter:]) < MORE * np.median(classes[:quarter]):
        return None
    return (
        f"the loss chooses among ever more classes, {classes[0]:,} at first and {classes[-1]:,} at the end: its level "
        "rises by itself"
    )


def _shows_its_loss(process: Process) -> bool:
    """Whether a loss function in training, or the graph of a loss written by hand, was looked at."""
    called = any(row["training"] for row in process.tables["loss_calls"].records())
    return called or len(process.tables["loss_graphs"]) > 0


def _values_choices(process: Process) -> bool:
    """Whether a regression in training is about values that were picked out of what the model put out."""
    calls = process.tables["loss_calls"].records()
    picked = [row for row in calls if row["training"] and row["function"] in REGRESSIONS and row["made_by"]]
    return any(row["made_by"] == "Gather" or not row["made_whole"] for row in picked)


def _plays(process: Process) -> bool:
    """Whether the trained model is called so often, and by so few samples, without a loss and without a loader."""
    evals, steps = process.evals, process.steps
    if len(evals) == 0 or not evals.has("trained"):
        return False
    acting = (evals["trained"] == 1) & (evals["losses"] == 0) & ~np.isfinite(evals["loader"])
    batch = steps["batch_size"] / np.fmax(steps["backwards"], 1)
    usual = float(np.nanmedian(batch)) if np.isfinite(batch).any() else np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        acting &= ~(evals["samples"] / evals["forwards"] > SMALL * usual)
    often = int(acting.sum()) >= ROLLOUT_PASSES_PER_STEP * len(steps)
    long = float(np.nansum(evals["forwards"][acting])) >= len(steps)
    return int(acting.sum()) >= FEWEST and (often or long)


def rewarded(process: Process) -> bool:
    """Whether the run's log has a mean reward, as trainers of reinforcement learning write it."""
    scalars = process.tables.get("scalars")
    return scalars is not None and any(scalars.matches("name", name).any() for name in REWARDS)
