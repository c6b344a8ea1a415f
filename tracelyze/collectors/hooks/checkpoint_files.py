"""Where a program writes and reads files of weights, and where optimizers, schedulers and scalers take in a state."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.recording.recorder import Recorder


def install(torch: Any, recorder: Callable[[], Recorder]) -> None:
    """Wrap torch.save and torch.load, and `load_state_dict` of what is no module."""
    save, load = torch.save, torch.load

    @unseen_by_warnings
    @functools.wraps(save)
    def saving(*args: Any, **kwargs: Any) -> Any:
        try:
            result = save(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        content = args[0] if args else kwargs.get("obj")
        recorder().fire("file_saved", content, _name(args[1] if len(args) > 1 else kwargs.get("f")))
        return result

    @unseen_by_warnings
    @functools.wraps(load)
    def loading(*args: Any, **kwargs: Any) -> Any:
        try:
            result = load(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        recorder().fire("file_loaded", result, _name(args[0] if args else kwargs.get("f")))
        return result

    torch.save = torch.serialization.save = saving
    torch.load = torch.serialization.load = loading
    wrappers.extend((saving, loading))
    schedulers = [kind for kind in vars(torch.optim.lr_scheduler).values() if isinstance(kind, type)]
    for kind in dict.fromkeys([torch.optim.Optimizer, torch.amp.grad_scaler.GradScaler, *schedulers]):
        if "load_state_dict" in vars(kind):
            role = (
                "optimizer" if kind is torch.optim.Optimizer else "scaler" if "Scaler" in kind.__name__ else "scheduler"
            )
            kind.load_state_dict = _taking(vars(kind)["load_state_dict"], role, recorder)


def _taking(original: Any, role: str, recorder: Callable[[], Recorder]) -> Any:
    @unseen_by_warnings
    @functools.wraps(original)
    def load_state_dict(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if args:
            recorder().fire("state_restored", role, args[0])
        return result

    wrappers.append(load_state_dict)
    return load_state_dict


def _name(file: Any) -> str:
    """The name of a file without its folders; empty for what is no file."""
    kind = type(file)
    known = issubclass(kind, (str, PurePath))  # a path of the program's own kind may count how often it is asked
    return os.path.basename(str(file)) if known else ""
