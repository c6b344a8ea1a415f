"""Weights that correct for another policy, where the script detaches them: variables that hold the exponential of the
log-probabilities which the loss weighs less others that the script kept, or that within limits.

They are recognised by their values, so that names mean nothing but for a reference policy's. What is read of the ratio
is made of both log-probabilities, as it was before any limit.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tracelyze.collectors.program.consumed.script_variables import MAX_VARIABLES, of_script, some_attributes
from tracelyze.collectors.program.lines.named import roles
from tracelyze.collectors.tensors import saved_values
from tracelyze.collectors.tensors.policies import ratios
from tracelyze.collectors.tensors.policies.ratios import Ratio
from tracelyze.collectors.tensors.policies.weighed import Weighed, weighed
from tracelyze.collectors.tensors.safe_computing import is_plain

MAX_KEPT, MAX_WEIGHTS = 8, 12  # log-probabilities that may have been kept, and tensors that may be weights
MAX_ELEMENTS = 2048  # of each that are compared
MAX_HELD = 32  # entries of a dictionary or of an object that are looked through
EXACT, AWAY = 1e-3, 1e-2  # of an exponential: how near a weight is, and how far from 1 that is no chance
FEW, ALL = 0.25, 0.99  # share of the elements away from 1 that no limit cut, and of all where none is away
REFERENCE = re.compile(r"(^|_)ref(erence)?(_|$)", re.IGNORECASE)


def ratio(torch: Any, root: Any, frame: FrameType | None) -> Ratio | None:
    """The ratio of the policy in training to another one, where a variable holds it, or what limits left of it, and the
    loss with this root weighs log-probabilities by constants. Its values are all NaN where a device has yet to tell
    that there is none. None without any."""
    found = weighed(torch, root)
    if found is None:
        return None
    tensors = list(_tensors(torch, frame))
    trained = next((one for _, one in tensors if one.requires_grad and one.grad_fn in found.nodes), None)
    # Where the loss computes its log-probabilities anew, what the ratio was made of has no variable; the ratio has.
    trained = _made_apart(tensors) if trained is None else trained
    constant = found.weights[-1]
    if trained is None or trained.device != constant.device or not ratios.fits(constant.shape, trained.shape):
        return None
    alike = [(name, one) for name, one in tensors if one is not trained and _as(one, trained)]
    kept = [one for name, one in alike if not one.requires_grad and not REFERENCE.search(name)][:MAX_KEPT]
    weights = [one for _, one in alike][:MAX_WEIGHTS]
    weights += _divided(found, [one for name, one in tensors if roles.ASSIGNED.get(name) == "advantage"])
    if not kept or not weights:
        return None
    with torch.no_grad():
        expected = _some(trained, trained)[None] if _is_ratio(trained) else _expected(torch, trained, kept)
        return _ratio(torch, found, trained, expected, weights)


def _made_apart(tensors: list[tuple[str, Any]]) -> Any:
    """The only variable that holds a ratio with its graph; None without any, or with several."""
    held = [one for name, one in tensors if _is_ratio(one) and not REFERENCE.search(name)]
    return held[0] if len(held) == 1 else None


def _is_ratio(one: Any) -> bool:
    """Whether a tensor is the exponential of a difference whose second term alone is a constant."""
    made = one.grad_fn
    return made is not None and saved_values.kind(made) == "Exp" and ratios.of_two_policies(made)


def _expected(torch: Any, trained: Any, kept: list[Any]) -> Any:
    """What a ratio of both log-probabilities, or of both probabilities, would be. Shape [2 x kept, elements]."""
    now = _some(trained, trained)
    others = torch.stack([_some(one, trained) for one in kept])
    expected = torch.cat([(now - others).exp(), now.exp() / others.abs().clamp(min=1e-30)])
    return expected.nan_to_num(posinf=0.0)


def _ratio(torch: Any, found: Weighed, trained: Any, expected: Any, weights: list[Any]) -> Ratio | None:
    """The first of the expected ratios that a weight is made of."""
    constants = tuple(_some(one, trained) for one in found.weights if _is_beside(one, trained))
    counts = torch.stack([one != 0 for one in constants]).all(0)
    same = torch.stack([_is_made_of(_some(one, trained), expected, counts) for one in weights]).any(0)
    first = expected.index_select(0, same.float().argmax().reshape(1))[0]  # a plain index would wait for the device
    if same.is_cpu and not bool(same.any()):
        return None
    return Ratio(torch.where(same.any(), first, torch.full_like(first, float("nan"))), constants, found.node, True)


def _is_made_of(weight: Any, expected: Any, counts: Any) -> Any:
    """For each row, whether a weight is what is expected, but for limits that cut it off, in the elements that
    count."""
    near = (weight - expected).abs() <= EXACT * expected
    away = ((expected - 1).abs() > AWAY) & counts
    uncut, several = (near & away).sum(1), away.sum(1)
    whole = (near & counts).sum(1) >= ALL * counts.sum()
    return ((several > 0) & (uncut >= FEW * several)) | ((several == 0) & whole & counts.any())


def _is_beside(weight: Any, trained: Any) -> bool:
    return bool(weight.device == trained.device) and ratios.fits(weight.shape, trained.shape)


def _divided(found: Weighed, advantages: list[Any]) -> list[Any]:
    """What is left of the loss's own weight without the advantage, where it has no variable of its own."""
    constant = found.weights[-1]
    fitting = [one for one in advantages if ratios.fits(one.shape, constant.shape) and one.device == constant.device]
    return [constant / one.detach() for one in fitting[:1]]


def _some(values: Any, like: Any) -> Any:
    """Elements spread over a tensor as it is spread over another one."""
    spread = values.detach()
    spread = spread.reshape(like.shape) if spread.numel() == like.numel() else spread.expand(like.shape)
    return spread.reshape(-1)[:: max(1, like.numel() // MAX_ELEMENTS)].float()


def _as(one: Any, trained: Any) -> bool:
    return bool(one.numel() == trained.numel() and one.device == trained.device)


def _tensors(torch: Any, frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Tensors of several numbers in variables of the script, and in dictionaries and objects that these hold."""
    known = set[int]()
    for variables, _ in of_script(frame):
        for name, value in itertools.islice(list(variables.items()), MAX_VARIABLES):
            for inner, one in ((name, value), *_held(value)):
                if id(one) not in known and is_plain(torch, one) and one.is_floating_point() and one.numel() > 1:
                    known.add(id(one))
                    yield str(inner), one


def _held(value: Any) -> list[tuple[Any, Any]]:
    """What a dictionary, or an object with attributes, holds; nothing of modules and of other large ones."""
    kind = type(value)
    if kind is dict:
        found = list(value.items()) if len(value) <= MAX_HELD else []
    elif kind.__module__ in ("builtins", "torch", "numpy"):
        found = []
    elif issubclass(kind, tuple):
        fields = kind.__dict__.get("_fields")  # of a named one
        found = list(zip(fields, value, strict=False)) if type(fields) is tuple else []
    else:
        found = some_attributes(value)
    return found if len(found) <= MAX_HELD else []
