"""Numbers that a program hands to a logger: SummaryWriter.add_scalar of TensorBoard (PyTorch's and tensorboardX's),
Run.log of Weights & Biases, and Trainer.log of transformers, through which TRL's trainers pass their metrics
whatever they report to.

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
    ("transformers.trainer", "Trainer", "log"),
)
_done: set[str] = set()


def wrap_when_imported(reported: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Wrap what has been imported since. `reported(logger, values)` is called after each call that returned."""
    for module, kind, method in LOGGERS:
        home = sys.modules.get(module) if module not in _done else None
        owner = getattr(home, kind, None)
        original = getattr(owner, method, None)
        if callable(original):
            _done.add(module)
            setattr(owner, method, _report(original, method == "add_scalar", f"{kind}.{method}", reported))


def _report(
    original: Callable[..., Any], scalar: bool, name: str, reported: Callable[[str, Mapping[str, Any]], None]
) -> Callable[..., Any]:
    @unseen_by_warnings
    @functools.wraps(original)
    def report(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        values = _scalar(args, kwargs) if scalar else _mapping(args, kwargs)
        if values:
            reported(name, values)
        return result

    return report


def _scalar(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    tag = args[0] if args else kwargs.get("tag")
    return {tag: args[1] if len(args) > 1 else kwargs.get("scalar_value")} if type(tag) is str else {}


def _mapping(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    data = args[0] if args else kwargs.get("data", kwargs.get("logs"))
    return data if type(data) is dict else {}
