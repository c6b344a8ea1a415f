"""Where a module hands out its weights by name, where it takes some in, and where an embedding is made of vectors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.recording.recorder import Recorder


def install(torch: Any, recorder: Callable[[], Recorder]) -> None:
    """Wrap `state_dict` and `load_state_dict` of modules; not those of optimizers, which have their own."""
    owner = torch.nn.Module
    take, load = owner.state_dict, owner.load_state_dict

    @unseen_by_warnings
    @functools.wraps(take)
    def state_dict(*args: Any, **kwargs: Any) -> Any:
        try:
            state = take(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        # With others it is that of a module within one.
        if len(args) == 1 and kwargs.get("destination") is None and not kwargs.get("prefix"):
            recorder().fire("state_taken", args[0], state)
        return state

    @unseen_by_warnings
    @functools.wraps(load)
    def load_state_dict(*args: Any, **kwargs: Any) -> Any:
        given = args[1] if len(args) > 1 else kwargs.get("state_dict")
        if args:
            recorder().fire("state_loading", args[0], given)
        try:
            result = load(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        recorder().fire("state_loaded", args[0], given, result)
        return result

    owner.state_dict, owner.load_state_dict = state_dict, load_state_dict
    wrappers.extend((state_dict, load_state_dict))
    for kind in (torch.nn.Embedding, torch.nn.EmbeddingBag):
        kind.from_pretrained = classmethod(_of_vectors(vars(kind)["from_pretrained"].__func__, recorder))


def _of_vectors(original: Callable[..., Any], recorder: Callable[[], Recorder]) -> Callable[..., Any]:
    @unseen_by_warnings
    @functools.wraps(original)
    def from_pretrained(*args: Any, **kwargs: Any) -> Any:
        try:
            module = original(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        recorder().fire("vectors_taken", module)
        return module

    wrappers.append(from_pretrained)
    return from_pretrained
