"""Where a program writes and reads files of weights, and where optimizers, schedulers and scalers take in a state.

Files of safetensors are written through two functions of its module for torch, by all that use it, under whatever name
they have imported `save_file`. It is imported late or never, so it is looked for whenever an optimizer is made.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final

from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.recording.recorder import Recorder

SAFETENSORS: Final = "safetensors.torch"
FLATTENS: Final = ("_flatten_as_ptr", "_flatten")  # what is given the tensors by name, in one version or another
_wrapped: set[str] = set()


class _Given(threading.local):
    tensors: Any = None  # that are about to be written on this thread


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


def wrap_when_imported(recorder: Callable[[], Recorder]) -> None:
    """Wrap what writes a file of safetensors, once that is imported."""
    home = sys.modules.get(SAFETENSORS) if SAFETENSORS not in _wrapped else None
    name = next((one for one in FLATTENS if callable(getattr(home, one, None))), None)
    if name is None or not callable(getattr(home, "serialize_file", None)):
        return
    _wrapped.add(SAFETENSORS)
    given, flatten, write = _Given(), getattr(home, name), home.serialize_file  # type: ignore[union-attr]

    @unseen_by_warnings
    @functools.wraps(flatten)
    def flattening(*args: Any, **kwargs: Any) -> Any:
        given.tensors = args[0] if args else kwargs.get("tensors")
        try:
            return flatten(*args, **kwargs)
        except BaseException as error:
            given.tensors = None
            leave_no_frame(error)
            raise

    @unseen_by_warnings
    @functools.wraps(write)
    def writing(*args: Any, **kwargs: Any) -> Any:
        tensors, given.tensors = given.tensors, None
        try:
            result = write(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if tensors is not None:
            recorder().fire("file_saved", tensors, _name(args[1] if len(args) > 1 else kwargs.get("filename")))
        return result

    setattr(home, name, flattening)
    home.serialize_file = writing  # type: ignore[union-attr]
