"""What thins out the gradients of a deep stack: activations that saturate, or a line that fills weights with numbers so
small that each layer shrinks what it is given."""

from __future__ import annotations

import ast
import re
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Location

_WHY: Final = (
    " Line {line} fills the weights with numbers of size {size}: at first, each layer hands on about {share} of the "
    "size of its input (median of the layers)."
)
_INITIALISE: Final = "In line {line}, initialise for the activation: Kaiming for ReLU and its like, Xavier for tanh."
_LET_THROUGH: Final = (
    "Let gradients through: add residual connections or normalisation between the layers, use ReLU or GELU instead of "
    "sigmoid or tanh, and match the initialisation to the activation."
)
_FILLS: Final = ("normal_", "trunc_normal_", "uniform_")
_EARLY: Final = 10  # steps, after which the weights are no longer those that training began with
_ALIKE: Final = 1.3  # times: sizes are estimated from some elements of a tensor, and a truncated normal is smaller
_RECTIFIES: Final = re.compile(r"ReLU|GELU|SiLU|ELU|Mish|Swish", re.IGNORECASE)
_SATURATES: Final = "Sigmoid"  # however it is initialised, its slope is a quarter at most


def remedy(optimization: Optimization, layer: str, small: float) -> Remedy:
    """The line to change, what it does, and what to do instead: a line that fills weights so small that a
    layer hands on no more than `small` of its input's size, else the one that makes the activations or the layer."""
    process, begin = optimization.process, _begin(optimization)
    filled = _line(process, begin[0]) if begin is not None and begin[1] <= small else None
    if begin is not None and filled is not None:
        own = own_statement.at(process, filled)
        size = (_size(own) if own is not None else None) or begin[0]
        told = {"line": filled.line, "size": number(size, 2), "share": number(begin[1], 2)}
        fix, code = _INITIALISE.format(**told), _initialised(process, filled)
        return Remedy(fix, code, filled, why=_WHY.format(**told))
    place = _made_at(process, layer)
    return Remedy(_LET_THROUGH, _passing(process, place), place)


def _made_at(process: Process, layer: str) -> Location | None:
    """The line of the first activation that saturates; where there is no such module, of the first layer."""
    rows = process.tables["activations"].records()
    saturating = next((str(row["module"]) for row in rows if row["kind"] in ("Sigmoid", "Tanh")), layer)
    return process.module_location(saturating.rpartition(" after ")[2])  # what a function follows


def _passing(process: Process, place: Location | None) -> str:
    """The line that makes such a layer with one that lets gradients through, where it says what it makes."""
    squashing = r"nn\.Linear\((?P<sizes>[\w.]+, (?P<width>[\w.]+))\), nn\.(?:Sigmoid|Tanh)\(\)"
    if place is not None and len(re.findall(squashing, place.source)) == 1:
        passing = r"nn.Linear(\g<sizes>), nn.LayerNorm(\g<width>), nn.GELU()"
        made = [row["made_at"] for row in process.tables["modules"].records() if row["kind"] in ("Sigmoid", "Tanh")]
        others = "  # and the other layers likewise" * (len(made) < 2 or len(set(made)) > 1)
        return re.sub(squashing, passing, place.source) + others
    return "x = x + block(nn.functional.layer_norm(x, x.shape[-1:]))"


def _begin(optimization: Optimization) -> tuple[float, float] | None:
    """The usual size of the weights that training began with, and what share of its input's size a layer of such
    weights hands on: the root of the summed squares that an output has. None without layers with biases."""
    table = optimization.process.tables["parameters"]
    steps, names = table["step"], table.text("parameter")
    begin = min(steps[table["optimizer"] == optimization.optimizer], default=_EARLY + 1)
    rows = np.flatnonzero((table["optimizer"] == optimization.optimizer) & (steps == begin)) if begin <= _EARLY else ()
    at = {str(names[row]): int(row) for row in rows}
    sizes, shares = list[float](), list[float]()
    for name, row in at.items():
        bias = at.get(f"{name.removesuffix('weight')}bias") if name.endswith("weight") else None
        outputs = float(table["elements"][bias]) if bias is not None else 0.0
        if 0 < outputs < table["elements"][row]:  # norms have as many biases as weights
            sizes.append(float(table["weight_norm"][row]) / sqrt(float(table["elements"][row])))
            shares.append(float(table["weight_norm"][row]) / sqrt(outputs))
    return (float(np.median(sizes)), float(np.median(shares))) if sizes else None


def _line(process: Process, size: float) -> Location | None:
    """The only line that fills weights with random numbers, those of this size where it says how large; None in a
    network of sigmoids."""
    if any(kind == _SATURATES for kind in _kinds(process)):
        return None
    places = {one.file_line: one for role in ("refill", "fill") for one in process.locations(role)}
    return script_lines.only_of([one for one in places.values() if _fills(process, one, size)])


def _initialised(process: Process, place: Location) -> str:
    """The line with an initialisation that keeps the size of what the layers hand on."""
    own = own_statement.at(process, place)
    weights = _weights(own) if own is not None else ""
    rectifies = any(_RECTIFIES.search(kind) for kind in _kinds(process))
    call = 'kaiming_normal_({}, nonlinearity="relu")' if rectifies else "xavier_normal_({})"
    several = not weights.endswith("weight")  # biases have one dimension, for which these functions are not defined
    return f"if {weights}.dim() > 1:\n    " * several + f"nn.init.{call.format(weights)}  # line {place.line}"


def _kinds(process: Process) -> set[str]:
    recorded = process.tables["activations"].records(), process.tables["modules"].records()
    return {str(row["kind"]) for rows in recorded for row in rows}


def _fills(process: Process, place: Location, size: float) -> bool:
    own = own_statement.at(process, place)
    if own is None or not _weights(own):
        return False
    stated = _size(own)
    return stated is None or size / _ALIKE <= stated <= size * _ALIKE


def _call(own: OwnStatement) -> ast.Call | None:
    return own.only_call(*_FILLS)


def _weights(own: OwnStatement) -> str:
    """What the statement fills, if that is a weight or a parameter: `nn.init.normal_(w)` or `w.data.normal_()`."""
    call = _call(own)
    if call is None or not isinstance(call.func, ast.Attribute):
        return ""
    by_function = parsed_line.name_of(call.func.value) == "init"
    filled = call.args[0] if by_function and call.args else call.func.value
    text = own.parsed.text_of(filled).removesuffix(".data")
    named = re.fullmatch(r"[\w.\[\]]*?(?:weight\w*|param\w*|p|w|kernel)", text)
    return text if named else ""


def _size(own: OwnStatement) -> float | None:
    """The size of the numbers, where the statement gives it as a number."""
    call = _call(own)
    if call is None:
        return None
    by_function = isinstance(call.func, ast.Attribute) and parsed_line.name_of(call.func.value) == "init"
    given = [_number(one) for one in (call.args[1:] if by_function else call.args)]
    named = {one.arg: _number(one.value) for one in call.keywords}
    if parsed_line.name_of(call.func) == "uniform_":
        least, most = named.get("a", named.get("from")), named.get("b", named.get("to"))
        least, most = given[0] if given else least, given[1] if len(given) > 1 else most
        return (most - least) / sqrt(12) if least is not None and most is not None else None
    return given[1] if len(given) > 1 else named.get("std")


def _number(node: ast.expr) -> float | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return float(value) if isinstance(value, int | float) else None
