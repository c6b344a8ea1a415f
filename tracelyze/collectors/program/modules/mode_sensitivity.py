"""Which modules behave differently in train and eval mode, so that the wrong mode changes results."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tracelyze.collectors.internals.private_names import BATCH_NORM, find

_RATES = (
    "p",
    "drop_prob",
    "drop_rate",
    "dropout",
    "dropout_p",
    "dropout_prob",
    "dropout_rate",
    "attention_dropout",
    "attn_dropout",
    "attn_pdrop",
    "resid_pdrop",
)
_NAMED_IN_SENSITIVE_CODE = ("drop", "noise", "running", "moment")


def sensitive_modules(torch: Any, root: Any) -> list[weakref.ref[Any]]:
    """The mode-sensitive modules at and below `root`, held weakly."""
    return [weakref.ref(module) for module in root.modules() if is_sensitive(torch, module)]


def is_sensitive(torch: Any, module: Any) -> bool:
    """Whether the mode changes what this module, apart from its children, computes or stores.

    Torch's own modules are known. For others: their forward reads `self.training` and names something that drops, adds
    noise or keeps running statistics, with a rate that is not zero.
    """
    nn = torch.nn
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return bool(module.p > 0)
    normalises = find(torch, BATCH_NORM)
    if normalises is not None and isinstance(module, normalises):
        return bool(module.track_running_stats)
    if isinstance(module, nn.RNNBase):
        return bool(module.dropout > 0 and module.num_layers > 1)
    if isinstance(module, nn.MultiheadAttention):
        return bool(module.dropout > 0)
    if isinstance(module, nn.RReLU):
        return True
    kind = type(module)
    code = getattr(getattr(kind, "forward", None), "__code__", None)
    if kind.__module__.startswith("torch.") or code is None or "training" not in code.co_names:
        return False
    if any(_is_zero(getattr(module, rate, None)) for rate in _RATES):
        return False
    return any(word in name.lower() for name in code.co_names for word in _NAMED_IN_SENSITIVE_CODE)


def momentum(modules: Iterable[Any]) -> float | None:
    """The largest weight that a normalisation among them gives the last batch in its running statistics."""
    known = [getattr(module, "momentum", None) for module in modules if getattr(module, "track_running_stats", False)]
    return max((float(one) for one in known if isinstance(one, (int, float))), default=None)


def in_train(modules: list[weakref.ref[Any]]) -> list[Any]:
    """The modules among these that are in train mode now."""
    return [module for ref in modules if (module := ref()) is not None and module.training]


def kinds(modules: list[Any]) -> str:
    """ "BatchNorm2d x4, Dropout x2" for a list of modules."""
    counts = Counter(type(module).__name__ for module in modules)
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in sorted(counts.items()))


def _is_zero(rate: Any) -> bool:
    return isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate == 0
