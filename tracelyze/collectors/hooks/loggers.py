"""Numbers that a program hands to a logger: SummaryWriter.add_scalar of TensorBoard (PyTorch's and tensorboardX's),
Run.log of Weights & Biases and of Trackio, MLflow's client, through which mlflow.log_metric goes, the CSVLogger of
Lightning, and Trainer.log of transformers, through which TRL's trainers pass their metrics whatever they report to.

These libraries are imported late or never, so they are looked for whenever an optimizer is made.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings

LOGGERS: Final = (
    ("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalar"),
    ("tensorboardX.writer", "SummaryWriter", "add_scalar"),
    ("wandb.sdk.wandb_run", "Run", "log"),
    ("trackio.run", "Run", "log"),
    ("mlflow.tracking.client", "MlflowClient", "log_metric"),
    ("mlflow.tracking.client", "MlflowClient", "log_batch"),
    ("lightning.fabric.loggers.csv_logs", "CSVLogger", "log_metrics"),
    ("lightning_fabric.loggers.csv_logs", "CSVLogger", "log_metrics"),
    ("transformers.trainer", "Trainer", "log"),
)
_done: set[tuple[str, str]] = set()


def wrap_when_imported(reported: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Wrap what has been imported since. `reported(logger, values)` is called after each call that returned."""
    for module, kind, method in LOGGERS:
        home = sys.modules.get(module) if (module, method) not in _done else None
        owner = getattr(home, kind, None)
        original = getattr(owner, method, None)
        if callable(original):
            _done.add((module, method))
            setattr(owner, method, _report(original, _READ.get(method, _mapping), f"{kind}.{method}", reported))


def _report(
    original: Callable[..., Any],
    read: Callable[[tuple[Any, ...], Mapping[str, Any]], Mapping[str, Any]],
    name: str,
    reported: Callable[[str, Mapping[str, Any]], None],
) -> Callable[..., Any]:
    @unseen_by_warnings
    @functools.wraps(original)
    def report(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        values = read(args, kwargs)
        if values:
            reported(name, values)
        return result

    return report


def _scalar(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    tag = args[0] if args else kwargs.get("tag")
    return {tag: args[1] if len(args) > 1 else kwargs.get("scalar_value")} if type(tag) is str else {}


def _mapping(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    data = args[0] if args else kwargs.get("data", kwargs.get("logs", kwargs.get("metrics")))
    return data if type(data) is dict else {}


def _of_a_run(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """`log_metric(run_id, key, value)`."""
    key = args[1] if len(args) > 1 else kwargs.get("key")
    return {key: args[2] if len(args) > 2 else kwargs.get("value")} if type(key) is str else {}


def _batch(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """`log_batch(run_id, metrics)`, a list of objects that have a key and a value."""
    given = args[1] if len(args) > 1 else kwargs.get("metrics")
    metrics: Any = given if type(given) in (list, tuple) else ()
    return {str(getattr(metric, "key", "")): getattr(metric, "value", None) for metric in metrics}


_READ: Final = {"add_scalar": _scalar, "log_metric": _of_a_run, "log_batch": _batch}
