"""Where a module hands out its weights by name, and where it takes some in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.recording.recorder import Recorder

wrappers: list[Any] = []  # functions of ours in the place of torch's


def install(torch: Any, recorder: Callable[[], Recorder]) -> None:
    """Wrap `state_dict` and `load_state_dict` of modules; not those of optimizers, which have their own."""
    owner = torch.nn.Module
    take, load = owner.state_dict, owner.load_state_dict

    @unseen_by_warnings
    @functools.wraps(take)
    def state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            state = take(self, *args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if not args and kwargs.get("destination") is None and not kwargs.get("prefix"):  # else a module within one
            recorder().fire("state_taken", self, state)
        return state

    @unseen_by_warnings
    @functools.wraps(load)
    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else kwargs.get("state_dict")
        recorder().fire("state_loading", self, given)
        try:
            result = load(self, *args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        recorder().fire("state_loaded", self, given, result)
        return result

    owner.state_dict, owner.load_state_dict = state_dict, load_state_dict
    wrappers.extend((state_dict, load_state_dict))
