"""Modules whose class has a `train` of its own that freezes parts of them, and whether anybody has called it."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.by_identity import SetByIdentity

_FREEZING = ("eval", "requires_grad", "requires_grad_")

called: SetByIdentity = SetByIdentity()  # modules with such a method, after its first call


def freezes(kind: type, base: type) -> bool:
    """Whether a class of modules overrides `train` with something that calls the original, and freezes or sets parts
    to evaluate. One that only delegates, logs, or merges weights changes nothing while it is not called."""
    override = getattr(kind, "train", None)
    code = getattr(override, "__code__", None)
    if code is None or override is getattr(base, "train", None) or kind.__module__.startswith("torch."):
        return False
    names = {*code.co_names, *(name for one in code.co_consts if hasattr(one, "co_names") for name in one.co_names)}
    calls_original = "super" in names or "__class__" in code.co_freevars
    return calls_original and any(name in _FREEZING or "freeze" in name.lower() for name in names)


def untouched(module: Any) -> bool:
    """Whether a module is as made: all parts in train mode, all parameters trainable, so nothing was frozen yet."""
    return all(part.training for part in module.modules()) and all(p.requires_grad for p in module.parameters())
