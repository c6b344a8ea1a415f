"""A callback for the Hugging Face Trainer: `Trainer(..., callbacks=[TracelyzeCallback()])`.

It adds what the hooks cannot know: the training arguments, the Trainer's epochs and global steps, what it logs, and
which forwards belong to an evaluation.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tracelyze
from tracelyze.integrations import passing_on
from tracelyze.integrations.passing_on import harmless

_transformers = importlib.import_module("transformers")
if TYPE_CHECKING:
    TrainerCallback = object
else:
    TrainerCallback = _transformers.TrainerCallback

# Averages over the whole training, and how long an evaluation took: no values of a step.
_SUMMARY = ("_runtime", "_per_second", "total_flos", "train_loss")


class TracelyzeCallback(TrainerCallback):
    """Passes on to tracelyze's recorder what the Trainer knows. Changes nothing, has no state to save."""

    def __init__(self) -> None:
        self._evaluating = False

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        given = args.to_dict()
        passing_on.settings("transformers", _transformers.__version__, args.gradient_accumulation_steps, given)

    @harmless
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        tracelyze.log(step=state.global_step, epoch=state.epoch)

    @harmless
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **more: Any) -> None:
        values = {name: value for name, value in (logs or {}).items() if not name.endswith(_SUMMARY)}
        evaluated = {name.removeprefix("eval_"): v for name, v in values.items() if name.startswith("eval_")}
        trained = {name: v for name, v in values.items() if not name.startswith(("eval_", "test_"))}
        if evaluated:
            tracelyze.log(phase="eval", step=state.global_step, **evaluated)
        elif trained.keys() - {"epoch"}:
            tracelyze.log(step=state.global_step, **trained)

    @harmless
    def on_prediction_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if not self._evaluating:  # the Trainer says that an evaluation goes on when its first batch is done
            self._evaluating = True
            passing_on.evaluation_begins("validation", with_latest=True)

    @harmless
    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._evaluating = False
        passing_on.evaluation_ends()

    @harmless
    def on_predict(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._evaluating = False
        passing_on.evaluation_ends()
