"""A loss that weighs each sample with the factors of all: [B, 1] times [B] gives [B, B] products."""

from __future__ import annotations

import ast
import re
from math import prod
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rules.objective.loss_broadcast import differences
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

PRODUCT: Final = "Mul"  # the operation, as autograd calls it


_OF_THE_MODEL: Final = re.compile(r"log_?p(?:rob(?:s)?)?\b|\bratios?\b", re.IGNORECASE)


def fault(process: Process, line: Line, row: Row, product: list[int]) -> LossFault:
    """What is wrong with a product whose sides are repeated along each other."""
    given, factor = loss_calls.shown(row["input_shape"]), loss_calls.shown(row["target_shape"])
    count, all_pairs = prod(loss_calls.sizes(row["input_shape"])), prod(product)
    longer_given = len(loss_calls.sizes(row["input_shape"])) > len(loss_calls.sizes(row["target_shape"]))
    long, short = (given, factor) if longer_given else (factor, given)
    sizes = loss_calls.sizes(row["input_shape"] if longer_given else row["target_shape"])
    dimension = -1 if sizes[-1] == 1 else sizes.index(1)
    made = differences.of_product(process, loss_calls.computed_at(process, line))
    place = made.place if made is not None else None
    # what several terms are multiplied by is their factor
    shared = made.shared if made is not None and not longer_given else ""
    name = shared or ("terms" if longer_given else "factors")
    where = f"above line {place.line}" if place is not None else "before both are multiplied"
    sides = "" if shared else f", for each side of shape {long}"
    return LossFault(
        title=f"The loss multiplies {given} by {factor}: samples get the factors of all others",
        summary=(
            f"In {line.where} terms of shape {given} that come out of the model are multiplied by factors of shape "
            f"{factor}. PyTorch broadcasts both to {product}: {all_pairs:,} products instead of {count:,}, of which "
            f"{count:,} multiply a sample's term by its own factor. The others take the factor of another sample, such "
            "as its advantage or weight, so that its own hardly counts."
        ),
        remedy=Remedy(
            f"Give both the same shape before they are multiplied: remove the dimension of size 1 from the side of "
            f"shape {long}, or sum over it, as over the parts of one action.",
            f"# {where}{sides}\n{name} = {name}.squeeze({dimension})  # {long} -> {short}",
            place,
            None if longer_given else _squeezed(process, place, dimension),
        ),
        evidence=[
            Evidence("shape of the terms", given),
            Evidence("shape of their factors", factor),
            Evidence("products computed", all_pairs, "", count, "one per term"),
        ],
        false_alarm="Products of all pairs on purpose: then write [:, None] into both, which says so.",
    )


def _squeezed(process: Process, place: Location | None, dimension: int) -> Diff | None:
    """The statement with the factors squeezed, where they are a name in its only product with log-probabilities or
    ratios, which come out of the model."""
    own = own_statement.at(process, place)
    nodes = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.BinOp)] if own is not None else []
    products = [one for one in nodes if isinstance(one.op, ast.Mult)]
    if own is None or len(products) != 1:
        return None
    sides = [products[0].left, products[0].right]
    factors = [one for one in sides if not _OF_THE_MODEL.search(own.parsed.text_of(one))]
    if len(factors) != 1 or not isinstance(factors[0], ast.Name | ast.Attribute):
        return None
    return own.changed(own.parsed.with_parts({factors[0]: f"{own.parsed.text_of(factors[0])}.squeeze({dimension})"}))
