"""A loss of two classes whose weights make the rare one count for less still: their ratio is the wrong way round."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import number

if TYPE_CHECKING:
    from collections import Counter

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

MADE: Final = re.compile(r"\bpos_weight=(?!=)|(?:[Ll]oss|entropy)\w*\([^#]*\bweight=(?!=)")
"""A loss that is called, or made, with weights of classes."""
ARGUMENTS: Final = ("pos_weight", "weight")
BINARY: Final = "binary_cross_entropy_with_logits"
OF_CLASSES: Final = (BINARY, "binary_cross_entropy", "cross_entropy", "nll_loss")
CLASSES: Final = ("0", "1")
ALIKE: Final = 2.0  # derived: times; the classes are counted in a part of the targets that the script counts
FIX: Final = "Turn the ratio over: the weight of a rare class is the samples of the other one over its own."


@dataclass(frozen=True)
class WeighedDown:
    """What is said of the weights, the only line that gives them, its edit or else an example."""

    said: str
    place: Location | None
    diff: Diff | None
    code: str


def find(process: Process, most: str, counts: Counter[str]) -> WeighedDown | None:
    """Weights under which the rare one of two classes counts for less than the frequent one, in each training call of a
    loss over classes."""
    names = {name.removesuffix(".0") for name in counts}
    table = process.tables["loss_calls"]
    if names != set(CLASSES) or not table.has("weight_of_one"):
        return None
    of_classes = np.isin([str(name) for name in table.text("function")], OF_CLASSES)
    weights = table["weight_of_one"][of_classes & (table["training"] == 1)]  # one without: that of another task, maybe
    lowers = weights < 1 if most.removesuffix(".0") == "0" else weights > 1
    if not len(weights) or not lowers.all() or (weights <= 0).any():
        return None
    rare, often = ("1", "0") if most.removesuffix(".0") == "0" else ("0", "1")
    weight = float(np.median(weights)) if rare == "1" else 1 / float(np.median(weights))
    least, number_of_most = min(counts.values()), max(counts.values())
    said = (
        f" The weights of the loss let a sample of class {rare} count {number(weight)} times as much as one of class "
        f"{often}: they make the rare class rarer still."
    )
    lines = recorded_text.matching(process, MADE)
    own = own_statement.at(process, lines[0]) if len(lines) == 1 else None
    ratio = number_of_most / least if rare == "1" else least / number_of_most  # class 0 over class 1
    is_inverse = 1 / ALIKE < float(np.median(weights)) * ratio < ALIKE
    diff = own.changed(_turned(own)) if own is not None and is_inverse else None
    binary = BINARY in table.where(table.known("weight_of_one")).text("function")
    code = "pos_weight = torch.tensor({})" if binary else "weight = torch.tensor([1.0, {}])"
    code = f"{code.format(f'{ratio:.3g}')}  # samples of class 0 over those of class 1"
    return WeighedDown(said, lines[0] if len(lines) == 1 else None, diff, code)


def _turned(own: OwnStatement) -> str | None:
    """The statement with the ratio that it gives turned over; None where it gives none, or several."""
    given = [
        one.value
        for node in ast.walk(own.parsed.tree)
        if isinstance(node, ast.Call)
        for one in node.keywords
        if one.arg in ARGUMENTS
    ]
    ratio = given[0] if len(given) == 1 else None
    if not isinstance(ratio, ast.BinOp) or not isinstance(ratio.op, ast.Div):
        return None
    over, under = own.parsed.operand(ratio.left), own.parsed.operand(ratio.right)
    return own.parsed.with_parts({ratio: f"{under} / {over}"})
