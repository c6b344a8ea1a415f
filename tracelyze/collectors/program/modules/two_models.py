"""Two models behind one loss: what of the second, whose output is the target, is trained by it as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracelyze.collectors.program.manual_updates import leaves
from tracelyze.collectors.program.optimizers import Tracked

COLUMNS = ("target_trained", "input_model", "target_model", "target_part", "target_in_train")


def columns(given: Any, target: Any, optimizers: Iterable[Tracked], models: list[tuple[int, Any]]) -> dict[str, Any]:
    """Columns of a row of loss_calls, if something trainable is behind the target which is not behind the input."""
    return between(given.grad_fn, target.grad_fn, optimizers, models)


def between(given: Any, target: Any, optimizers: Iterable[Tracked], models: list[tuple[int, Any]]) -> dict[str, Any]:
    """The columns of `columns` for two nodes of a graph: the operations that made the input and the target."""
    behind = {id(leaf) for leaf in leaves(given)}
    beside = {id(leaf) for leaf in leaves(target)}
    held = {id(parameter) for tracked in optimizers for parameter in tracked.parameters()}
    alone = (beside - behind) & held
    if not alone or not (behind - beside) & held:
        return {}
    found: dict[str, Any] = {"target_trained": len(alone)}
    for number, module in models:
        own = {id(p) for p in module.parameters()}
        if alone <= own and not (behind - beside) & own:
            found |= {"target_model": number, "target_in_train": bool(module.training)}
        elif behind - beside <= own and not alone & own:
            found["input_model"] = number
    parts = [_part(module, alone, behind - beside) for _, module in models] if "target_model" not in found else []
    for name, in_train in filter(None, parts):
        found |= {"target_part": name, "target_in_train": in_train}
    return found


def _part(module: Any, alone: set[int], others: set[int]) -> tuple[str, bool] | None:
    """The outermost part of a model that holds all of the first and none of the others: a teacher that is called within
    the model that teaches. With it whether it is in train mode, or the whole model is not."""
    path, within = [], module
    while True:
        for name, child in within.named_children():
            own = {id(parameter) for parameter in child.parameters()}
            if alone <= own:
                path.append(name)
                within = child
                break
        else:
            return None
        if not others & own:
            return ".".join(path), bool(within.training or not module.training)
