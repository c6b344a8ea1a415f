"""A copy of the program's model that may be called again, and the states that must be afterwards as they were before.

What a model computes may depend on the generators of random numbers, on its parameters and buffers, on attributes of
its modules, and on what it is given. All of these are copied. Whatever else a forward changes (a global counter, a file
that it writes) is changed once more: nobody can know of it.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from tracelyze.collectors.program.models import wrapped
from tracelyze.collectors.tensors.safe_computing import is_plain

MOST_BYTES = 2 << 30  # of parameters and buffers: three copies of them have to fit beside the training
MOST_MODULES = 5000
FREE_MEMORY = 4  # times the parameters and buffers that a device has to have free
HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
)


class NotCopied(Exception):  # noqa: N818  # no error
    """Why the model cannot be called a second time without risk."""


class CopiedModel:
    """A model with what one call of it was given."""

    def __init__(self, torch: Any, module: Any, args: Any, kwargs: Any) -> None:
        core = wrapped(module)
        _check(torch, core)
        self._torch = torch
        self._template = copy.deepcopy(core)
        for part in self._template.modules():
            _without_hooks(part)
        self.args, self.kwargs = _detached(torch, tuple(args)), _detached(torch, dict(kwargs))

    def fresh(self, training: bool) -> Any:
        """A model as the program's own was when it was copied, or the same in eval mode."""
        made = copy.deepcopy(self._template)
        return made if training else made.eval()

    def given(self) -> tuple[Any, Any]:
        """What the call was given, in memory of its own."""
        return _detached(self._torch, self.args), _detached(self._torch, self.kwargs)


@contextlib.contextmanager
def preserved(torch: Any, module: Any) -> Iterator[None]:
    """Generators of random numbers, buffers, modes and gradients are afterwards what they were; nothing is printed."""
    generators = RandomStates(torch)
    modes = [(part, part.training) for part in module.modules()]
    buffers = [(one, one.detach().clone()) for one in module.buffers() if is_plain(torch, one)]
    gradients = [(one, one.grad) for one in module.parameters()]
    stdout, silent = sys.stdout, _Silent(sys.stdout)
    sys.stdout = silent
    try:
        yield
    finally:
        if sys.stdout is silent:
            sys.stdout = stdout
        generators.restore()
        for part, training in modes:
            if part.training is not training:
                part.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.data.copy_(before)  # Autograd may have saved it: its version has to stay what it is.
        for parameter, gradient in gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient


class RandomStates:
    """The states of Python's, numpy's and torch's generators."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._python = random.getstate()
        self._numpy: Any = getattr(sys.modules.get("numpy"), "random", None)
        self._of_numpy = self._numpy.get_state() if self._numpy is not None else None
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def restore(self) -> None:
        """Put all of them back."""
        random.setstate(self._python)
        if self._of_numpy is not None:
            self._numpy.set_state(self._of_numpy)
        self._torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            self._torch.cuda.set_rng_state_all(self._cuda)

    def advance(self) -> None:
        """Another state than these, in all of them."""
        self.restore()
        random.getrandbits(1)
        if self._of_numpy is not None:
            self._numpy.random_sample()
        self._torch.rand(1)
        for number in range(len(self._cuda or ())):
            self._torch.rand(1, device=f"cuda:{number}")


class _Silent:
    """sys.stdout, but what this thread prints is dropped: the model has printed it already."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self._thread:
            return len(text)
        written: int = self._stream.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _check(torch: Any, core: Any) -> None:
    """Raise NotCopied where a second call might do harm."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise NotCopied("several ranks train together: a call that only one of them makes may wait for the others")
    if isinstance(core, torch.jit.ScriptModule):
        raise NotCopied("the model is a scripted one")
    modules = list(core.modules())
    tensors = [*core.parameters(), *core.buffers()]
    if len(modules) > MOST_MODULES:
        raise NotCopied(f"the model has more than {MOST_MODULES:,} modules")
    if not all(is_plain(torch, one) for one in tensors):
        raise NotCopied("the model has parameters or buffers that are no plain tensors")
    size = sum(one.numel() * one.element_size() for one in tensors)
    if size > MOST_BYTES:
        raise NotCopied(f"parameters and buffers are larger than {MOST_BYTES >> 30} GiB")
    for device in {one.device for one in tensors if one.is_cuda}:
        if torch.cuda.mem_get_info(device)[0] < FREE_MEMORY * size:
            raise NotCopied("the device has too little memory left for copies of the model")
    for part in modules:
        own = vars(part).get("forward")
        if own is not None and not (isinstance(own, types.MethodType) and own.__self__ is part):
            raise NotCopied(
                f"forward of a {type(part).__name__} was replaced: a copy would call the program's own model"
            )


def _without_hooks(part: Any) -> None:
    """Take the program's hooks from a copied module; those of torch itself (pruning, spectral norm) belong to it."""
    for name in HOOKS:
        hooks = vars(part).get(name)
        for key, hook in list((hooks or {}).items()):
            home = str(getattr(hook, "__module__", None) or type(hook).__module__)
            if name.endswith(("_kwargs", "_called")) or home.partition(".")[0] == "torch":
                continue
            del hooks[key]


def _detached(torch: Any, value: Any) -> Any:
    """Arguments without their graphs, in memory of their own."""
    if isinstance(value, torch.Tensor):
        if not is_plain(torch, value):
            raise NotCopied(f"the model is given a {type(value).__name__} that is no plain tensor")
        return value.detach().clone()
    if type(value) is dict:
        return {key: _detached(torch, one) for key, one in value.items()}
    if type(value) in (tuple, list):
        return type(value)([_detached(torch, one) for one in value])
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
        return value
    raise NotCopied(f"the model is given a {type(value).__name__}")
