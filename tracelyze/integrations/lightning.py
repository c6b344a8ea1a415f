"""A callback for Lightning: `Trainer(callbacks=[TracelyzeCallback()])`.

It adds what the hooks cannot know: the trainer's settings, its epochs and global steps, what is logged with
`self.log`, and which forwards belong to one validation, test or sanity check.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tracelyze
from tracelyze.integrations import passing_on
from tracelyze.integrations.passing_on import harmless

# Two packages offer the same Lightning; the callback has to come from the one that the script uses.
_USED = next((name for name in ("lightning.pytorch", "pytorch_lightning") if name in sys.modules), "lightning.pytorch")
if TYPE_CHECKING:
    Callback = object
else:
    try:
        Callback = importlib.import_module(_USED).Callback
    except ImportError:
        Callback = importlib.import_module("pytorch_lightning").Callback

SETTINGS = (
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "max_epochs",
    "max_steps",
    "precision",
    "check_val_every_n_epoch",
    "val_check_interval",
    "limit_train_batches",
    "limit_val_batches",
    "log_every_n_steps",
    "num_sanity_val_steps",
    "world_size",
    "num_nodes",
    "detect_anomaly",
)


class TracelyzeCallback(Callback):
    """Passes on to tracelyze's recorder what the Trainer knows. Changes nothing, has no state to save."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_step = 0

    @harmless
    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        given = {name: getattr(trainer, name, None) for name in SETTINGS}
        given["strategy"] = type(trainer.strategy).__name__
        given["accelerator"] = type(trainer.accelerator).__name__
        given["automatic_optimization"] = pl_module.automatic_optimization
        given["hparams"] = dict(getattr(pl_module, "hparams", None) or {})
        version = str(getattr(sys.modules[_USED.partition(".")[0]], "__version__", ""))
        passing_on.settings("lightning", version, trainer.accumulate_grad_batches, given)

    @harmless
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        tracelyze.log(step=trainer.global_step, epoch=trainer.current_epoch)

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step, every = trainer.global_step, trainer.log_every_n_steps or 1
        if step - self._logged_step < every:
            return
        self._logged_step = step
        _log("train", step, trainer.callback_metrics, batch_idx)

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        passing_on.evaluation_begins("sanity check" if trainer.sanity_checking else "validation")

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        passing_on.evaluation_ends()
        if not trainer.sanity_checking:
            _log("eval", trainer.global_step, trainer.callback_metrics)

    @harmless
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        passing_on.evaluation_begins("test")

    @harmless
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        passing_on.evaluation_ends()
        _log("test", trainer.global_step, trainer.callback_metrics)

    @harmless
    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        passing_on.evaluation_begins("predict")

    @harmless
    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        passing_on.evaluation_ends()


_PREFIXES = {"train": ("train_", "train/"), "eval": ("val_", "val/", "valid_", "valid/"), "test": ("test_", "test/")}


def _log(phase: str, step: int, metrics: Mapping[str, Any], batch: int | None = None) -> None:
    """The metrics of this phase. Lightning keeps those of all phases in one dictionary, by name."""
    others = tuple(prefix for name, prefixes in _PREFIXES.items() if name != phase for prefix in prefixes)
    own = {name: value for name, value in metrics.items() if not name.startswith(others)}
    named = {_bare(name, _PREFIXES[phase]): value for name, value in own.items()}
    tracelyze.log(phase=phase, step=step, batch=batch, **_safe(named))


def _bare(name: str, prefixes: tuple[str, ...]) -> str:
    for prefix in prefixes:
        name = name.removeprefix(prefix)
    return name


def _safe(named: Mapping[str, Any]) -> dict[str, Any]:
    """Without names that `tracelyze.log` has another meaning for."""
    return {name: value for name, value in named.items() if name not in ("batch", "phase", "step")}
