"""Modules whose class has a `train` of its own that freezes parts of them, and whether anybody has called it."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType
from typing import Any

from tracelyze.collectors.internals.by_identity import SetByIdentity

_FREEZING = ("eval", "requires_grad", "requires_grad_")
_GRADIENTS = frozenset({"requires_grad", "requires_grad_"})
_CALLING = ("PRECALL", "PUSH_NULL", "CACHE", "EXTENDED_ARG")  # instructions between a method and its arguments

called: SetByIdentity = SetByIdentity()  # modules with a `train` of their own, after its first call for training
pretrained: SetByIdentity = (
    SetByIdentity()
)  # models that from_pretrained put to evaluate, and nobody by themselves since
evaluated: SetByIdentity = SetByIdentity()  # those that were put to evaluate since they were looked at last


def freezes(kind: type, base: type) -> bool:
    """Whether a class of modules overrides `train` with something that calls the original, and freezes or sets parts
    to evaluate. One that only delegates, logs, or merges weights changes nothing while it is not called."""
    override = getattr(kind, "train", None)
    code = getattr(override, "__code__", None)
    if code is None or override is getattr(base, "train", None) or kind.__module__.startswith("torch."):
        return False
    names = _names(code)
    calls_original = "super" in names or "__class__" in code.co_freevars
    by_name = any(name in _FREEZING or "freeze" in name.lower() for name in names)
    return calls_original and (by_name or any(_evaluates(one) for one in _with_inner(code)))


def is_switched_off(module: Any) -> bool:
    """Whether the `train` of a module, or a method that it calls, reads a setting that is off: False, None, nothing or
    below zero. What it does then depends on that, and it may do nothing at all."""
    override = type(module).train
    helpers = [getattr(type(module), name, None) for name in override.__code__.co_names]
    codes = [one.__code__ for one in [override, *helpers] if isinstance(getattr(one, "__code__", None), CodeType)]
    names = {name for code in codes for name in _names(code)} - {"training"}
    keys = names | {one for code in codes for one in code.co_consts if isinstance(one, str)}
    shared = override.__globals__
    known = [*_own(module, names), *(shared[name] for name in names & shared.keys())]
    for value in list(known):  # what holds settings of its own
        inner = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        if isinstance(inner, dict) and not callable(value):
            known += [inner[key] for key in keys & inner.keys()]
    known += [*(override.__defaults__ or ())[1:], *(override.__kwdefaults__ or {}).values()]
    return any(map(_is_off, known))


def untouched(module: Any) -> bool:
    """Whether nothing in a module was frozen yet: all parameters are trainable, and all parts in train mode. Of a
    `train` that names `requires_grad_`, parameters alone tell: a part may have been evaluated before it was put in."""
    trainable = all(parameter.requires_grad for parameter in module.parameters())
    if by_parameters(module):
        return trainable
    return all(part.training for part in module.modules()) and (trainable or only_statistics(module))


def only_statistics(module: Any) -> bool:
    """Whether the constructor froze the parameters of normalisations whose running statistics follow batches in train
    mode all the same: a `train` that sets them to evaluate is what would hold these."""
    if by_parameters(module):
        return False
    parts = [part for part in module.modules() if getattr(part, "running_mean", None) is not None and part.training]
    held = [[one.requires_grad for one in part.parameters(recurse=False)] for part in parts]
    return any(flags and not any(flags) for flags in held)


def by_parameters(module: Any) -> bool:
    """Whether a module's own `train` names `requires_grad`: it freezes parameters, and not the modes of parts alone."""
    code = getattr(type(module).train, "__code__", None)
    return code is not None and not _GRADIENTS.isdisjoint(_names(code))


def _own(module: Any, names: set[str]) -> list[Any]:
    """Values of these names that a module holds, or its class."""
    values = {name: value for kind in reversed(type(module).__mro__) for name, value in vars(kind).items()}
    values |= vars(module)
    return [values[name] for name in names & values.keys()]


def _is_off(value: Any) -> bool:
    number = type(value) in (bool, int, float)
    return value is None or (number and value <= 0) or (type(value) is str and not value)


def _evaluates(code: CodeType) -> bool:
    """Whether a function calls `train(False)` of something."""
    steps = [one for one in dis.get_instructions(code) if one.opname not in _CALLING]
    return any(
        one.argval == "train" and after.opname.startswith("LOAD_CONST") and after.argval is False
        for one, after in pairwise(steps)
    )


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """A function, and those within it."""
    yield code
    yield from (one for one in code.co_consts if isinstance(one, CodeType))


def _names(code: CodeType) -> set[str]:
    """What a function reads by name, functions within it included."""
    return {name for one in _with_inner(code) for name in one.co_names}
