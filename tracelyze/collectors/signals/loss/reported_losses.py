"""What the program hands to a logger: the training loss, to be held against the losses that went backward, and what
reinforcement learning is watched by: rewards, entropy, divergence, completions that were cut off."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.schema import logged_metrics

MAX_ROWS = 20_000
MAX_NAMES = 8
MAX_METRICS = 400  # names of any kind that are told apart once
LOSS = re.compile(
    r"^(train(ing)?[/_.: -])?((train(ing)?|running|epoch|batch|step|total|avg|average|mean)[_ -]?)?loss"
    r"([/_.: -](train(ing)?|step|epoch|batch|iter(ation)?))?$",
    re.IGNORECASE,
)
OWN_MEANS: Final = "Trainer.log"  # its loss is the framework's rounded mean over its logging interval, no sum of ours
METRICS: Final = frozenset(
    {
        "reward",
        "reward_std",
        "frac_reward_zero_std",
        "kl",
        "entropy",
        "completions/clipped_ratio",
        "rewards/margins",
        "sampling/sampling_logp_difference/mean",
        "sampling/importance_sampling_ratio/mean",
        "objective/kl",
        "objective/entropy",
        "objective/scores",
        "policy/entropy_avg",
        "val/ratio",
        "rollout/ep_rew_mean",
        "actor/entropy",
        "actor/kl_loss",
        "actor/ppo_kl",
        "critic/rewards/mean",
        "response_length/clip_ratio",
        "rollout_probs_diff_mean",
        "rollout_corr/rollout_is_mean",
    }
)
"""Under the names of TRL, verl, OpenRLHF and SB3; names of scripts are recognised by their last words."""


class ReportedLosses(Signal):
    name = "reported_losses"
    columns = columns_of("scalars", "time step phase name value logger")
    about = "Training losses as the program hands them to a logger (TensorBoard, W&B, MLflow), metrics of RL trainers."
    cost = "3 us a value that is logged"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._names: set[str] = set()
        self._metrics: dict[str, bool] = {}  # names seen: whether they are metrics
        self._rows = 0

    def reported(self, logger: str, values: Mapping[str, Any]) -> None:
        for name, given in values.items():
            if type(name) is not str or self._rows >= MAX_ROWS:
                continue
            metric = name.removeprefix("train/")
            if self._is_metric(metric):
                self._emit("train", metric, given, logger)
            elif LOSS.match(name) and logger != OWN_MEANS and (name in self._names or len(self._names) < MAX_NAMES):
                self._names.add(name)
                self._emit("reported", name, given, logger)

    def _is_metric(self, name: str) -> bool:
        """Whether it is one, without reading a name twice; of a program that makes up names, the first few count."""
        known = self._metrics.get(name)
        if known is None:
            known = name in METRICS or (len(self._metrics) < MAX_METRICS and bool(logged_metrics.recognised(name)))
            if len(self._metrics) < MAX_METRICS:
                self._metrics[name] = known
        return known

    def _emit(self, phase: str, name: str, given: Any, logger: str) -> None:
        value = self._number(given)
        if value is not None:
            self._rows += 1
            if phase == "reported":
                self.program.sites.here("report")
            row = {"time": self.context.now(), "step": self.progress.steps, "phase": phase, "name": name}
            self.context.emit("scalars", row | {"value": value, "logger": logger})

    def _number(self, given: Any) -> float | None:
        """The value where reading it waits for nothing."""
        if type(given) in (float, int):
            return float(given)
        if type(given) is self.torch.Tensor and given.device.type == "cpu" and given.numel() == 1:
            return float(given.detach().item())
        return None
