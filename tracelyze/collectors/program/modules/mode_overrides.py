"""Modules whose class has a `train` of its own that freezes parts of them, and whether anybody has called it."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.by_identity import SetByIdentity

_FREEZING = ("eval", "requires_grad", "requires_grad_")
_GRADIENTS = frozenset({"requires_grad", "requires_grad_"})

called: SetByIdentity = SetByIdentity()  # modules with such a method, after its first call for training


def freezes(kind: type, base: type) -> bool:
    """Whether a class of modules overrides `train` with something that calls the original, and freezes or sets parts
    to evaluate. One that only delegates, logs, or merges weights changes nothing while it is not called."""
    override = getattr(kind, "train", None)
    code = getattr(override, "__code__", None)
    if code is None or override is getattr(base, "train", None) or kind.__module__.startswith("torch."):
        return False
    names = _names(code)
    calls_original = "super" in names or "__class__" in code.co_freevars
    return calls_original and any(name in _FREEZING or "freeze" in name.lower() for name in names)


def untouched(module: Any) -> bool:
    """Whether nothing in a module was frozen yet: all parameters are trainable, and all parts in train mode. Of a
    `train` that names `requires_grad_`, parameters alone tell: a part may have been evaluated before it was put in."""
    code = getattr(type(module).train, "__code__", None)
    by_parameters = code is not None and not _GRADIENTS.isdisjoint(_names(code))
    modes = by_parameters or all(part.training for part in module.modules())
    return modes and all(parameter.requires_grad for parameter in module.parameters())


def _names(code: Any) -> set[str]:
    """What a function reads by name, functions within it included."""
    return {*code.co_names, *(name for one in code.co_consts if hasattr(one, "co_names") for name in one.co_names)}
