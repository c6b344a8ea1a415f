"""Metrics that a trainer logged beside the loss (table scalars), under the names of TRL, verl, OpenRLHF and SB3."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.evidence.charts import chart
from tracelyze.analyzers.script import recorded_text
from tracelyze.schema import logged_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats, Table
    from tracelyze.diagnosis import Chart, Mark

_FEWEST: Final = 10  # values: their blocks have to show noise as well as a change
_TRL: Final = re.compile(r"\b(?:GRPO|RLOO)(?:Config|Trainer)\b|\btrl\b")
_PUNISHES: Final = re.compile(r"penal|punish|cost|length|overlong|repet|toxic|safety", re.IGNORECASE)
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "reward": ("reward", "rollout/ep_rew_mean", "critic/rewards/mean", "env/reward/total", "objective/scores"),
    "reward_std": ("reward_std",),
    "groups_alike": ("frac_reward_zero_std",),
    "kl": ("kl", "actor/kl_loss", "objective/kl", "actor/ppo_kl"),
    "entropy": ("entropy", "actor/entropy", "policy/entropy_avg", "objective/entropy"),
    "cut_off": ("completions/clipped_ratio", "clip_ratio", "response_length/clip_ratio"),
    "logp_gap": ("sampling/sampling_logp_difference/mean", "rollout_probs_diff_mean"),
    "importance": ("sampling/importance_sampling_ratio/mean", "val/ratio", "rollout_corr/rollout_is_mean"),
    "margin": ("rewards/margins",),
    "word_error": ("wer", "cer", "word_error_rate"),
    "accuracy": ("accuracy", "acc", "top1", "acc1", "mean_token_accuracy"),
}


@dataclass(frozen=True)
class Metric:
    """A metric over the steps: its name in the log, steps and finite values, each of shape [values], in order."""

    name: str
    steps: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    @property
    def at_start(self) -> int:
        """How many values count as the first ones."""
        return max(3, len(self) // 50)

    @property
    def start(self) -> float:
        """The median of the first values."""
        return float(np.median(self.values[: self.at_start]))

    def ends(self, share: float = 0.2) -> tuple[float, float]:
        """Medians of the first and the last `share` of the values."""
        count = max(1, int(share * len(self.values)))
        return float(np.median(self.values[:count])), float(np.median(self.values[-count:]))

    def at(self, steps: Floats) -> Floats:
        """The last value at or before each of `steps`, NaN before the first."""
        place = np.searchsorted(self.steps, steps, side="right") - 1
        return np.where(place >= 0, self.values[np.maximum(place, 0)], np.nan)

    def blocks(self, count: int = 20) -> Floats:
        """Medians of `count` consecutive blocks, of as many as there are values where those are fewer."""
        return statistics.block_medians(self.values, count)


def metric(process: Process, key: str, phase: str = "train", own_steps: bool = True) -> Metric | None:
    """The metric that a run logged under one of the names for `key`, the first that it has; else under a name whose
    last words say so, the one with most values. None without any. `own_steps`: over those that the script counts."""
    scalars = process.tables["scalars"]
    if len(scalars) == 0:
        return None
    inside = scalars.matches("phase", phase) & np.isfinite(scalars["value"])
    for name in (*NAMES[key], _own_name(scalars, inside, key)):
        rows = inside & scalars.matches("name", name)
        if rows.any():
            own = np.isfinite(scalars["own_step"]) & own_steps
            number = np.where(own, scalars["own_step"], scalars["step"])
            order = np.argsort(number[rows], kind="stable")
            return Metric(name, number[rows][order], scalars["value"][rows][order])
    return None


def steps_logged_about(process: Process, seen: Metric) -> int:
    """How many steps were logged about: a trainer logs the mean of several, and none before its first log."""
    if len(seen) < 2:
        return len(seen)
    apart = float(np.median(np.diff(seen.steps)))
    longest = len(process.longest.steps) if process.optimizations else int(seen.steps[-1])
    return int(min(len(seen) * max(apart, 1.0), longest))


def is_of_trl(process: Process, seen: Metric) -> bool:
    """Whether TRL logs a metric under this name, or lines of the script speak of it: its settings are no others'."""
    own = any(_TRL.search(text) for text in recorded_text.everything(process))
    return seen.name.startswith(("completions/", "sampling/")) or own


def _own_name(scalars: Table, inside: npt.NDArray[np.bool_], key: str) -> str:
    """The name of the program's own under which most values of this kind were logged; empty without one."""
    counts = Counter(name for name, kept in zip(scalars.text("name"), inside, strict=True) if kept and name)
    alike = [name for name in sorted(counts) if logged_metrics.recognised(name) == key]
    return max(alike, key=lambda name: counts[name], default="")


def rises(seen: Metric | None, sigmas: float = 3.0) -> bool:
    """Whether a metric ended above its start by more than its own noise between blocks; false without a metric."""
    if seen is None or len(seen) < _FEWEST:
        return False
    first, last = seen.ends()
    noise = statistics.spread(np.diff(seen.blocks())) / np.sqrt(2)
    return last - first > sigmas * noise and last > first


def growth(seen: Metric | None, step: float) -> float | None:
    """The last fifth of a metric over the fifth before a step; None where either is missing or not above zero."""
    if seen is None:
        return None
    before = seen.values[seen.steps <= step]
    then = float(np.median(before[-max(1, len(before) // 5) :])) if len(before) else 0.0
    last = seen.ends()[1]
    return last / then if then > 0 and last > 0 else None


def never_earned(process: Process, fewest: float) -> list[str]:
    """The names of those of several reward functions whose mean was exactly 0 in most logs of the later half, of
    `fewest` in all, beside others that gave something. Punishments are not among them: theirs is to be 0."""
    scalars = process.tables["scalars"]
    given: dict[str, list[float]] = {}
    for row in scalars.records():
        part = logged_metrics.PART_OF_REWARD.fullmatch(row["name"] or "") if row["phase"] == "train" else None
        if part is not None and not _PUNISHES.search(part["of"]):
            given.setdefault(part["of"], []).append(row["value"])
    nothing = [
        name for name, values in given.items() if len(values) >= fewest and not np.median(values[len(values) // 2 :])
    ]
    return sorted(nothing) if len(nothing) < len(given) else []


def picture(title: str, seen: Sequence[Metric], marks: Sequence[Mark] = ()) -> list[Chart]:
    """The metrics over the steps of the first one."""
    steps = seen[0].steps
    return [chart(title, "step", "value", steps, {one.name: one.at(steps) for one in seen}, marks=marks)]
