"""The module of a watched forward that put out NaN or Inf first, and how large numbers had become before it."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
WHAT: Final = {1: "NaN", 2: "Inf"}
_MULTIPLIES: Final = re.compile(r"(?:Lazy)?(?:Linear|Bilinear|Conv(?:Transpose)?[123]d)$")
_LOOKS_UP: Final = re.compile(r"Embedding(?:Bag)?$")
_IN_HALF: Final = (
    "Compute this module in float32 or bfloat16, or scale what goes into it (normalisation, smaller initial weights)."
)
_IN_HALF_CODE: Final = "with torch.autocast(x.device.type, enabled=False):\n    y = module(x.float())"
_GIVEN_IN_HALF: Final = (
    "This module only multiplies and adds: what it was given was not finite. Compute that in float32, or scale it: "
    "products of outputs, squares, exponentials."
)
_GIVEN: Final = (
    "This module only multiplies and adds. Look at what is computed of the outputs before it, and given to it: a "
    "division, a logarithm or a root there is to be kept away from zero."
)
_GIVEN_CODE: Final = "assert torch.isfinite(x).all()  # x: what this module is given"
_LOOKED_UP: Final = (
    "This module only looks up rows of its weight, so one of them is not finite. Look at what writes into the weight: "
    "its initialisation, a row that is copied or averaged into it, a checkpoint."
)
_LOOKED_UP_CODE: Final = "assert torch.isfinite(module.weight).all()  # below each line that writes into the weight"
_COMPUTES: Final = (
    "Check what this module divides by or takes a logarithm or root of, and keep it away from zero; normalise its "
    "input."
)


def first(rows: list[Row]) -> Row | None:
    """The first module of a forward that is not finite; None if its weights are not, or the forward is fine."""
    broken = [row for row in rows if row["nonfinite"] in WHAT]
    if not broken:
        return None
    if any(row["weights_finite"] is False for row in broken):  # one look at a forward may have two rows of a module
        return None
    return min(broken, key=lambda row: (row["order"], row["weights_finite"] is None))


def first_of(process: Process) -> Row | None:
    """The same of the first watched forward that has one; None where it is the loss that a model puts out."""
    for _, found in groupby(process.tables["activations"].records(), key=lambda row: row["step"]):
        rows = list(found)
        root = first(rows)
        if root is not None:
            return None if is_loss(root, rows) else root
    return None


def named(root: Row) -> str:
    """A module with its class, at the beginning of a sentence."""
    return f"{root['module']} ({root['kind']})" if root["module"] else f"The model itself ({root['kind']})"


def was_given(root: Row) -> bool:
    """Whether it was given what is not finite: a layer that multiplies and adds makes Inf of large numbers, no NaN."""
    return bool(_MULTIPLIES.match(str(root["kind"]))) and WHAT.get(root["nonfinite"]) == "NaN"


def is_loss(row: Row, rows: list[Row]) -> bool:
    """Whether it is the one number that a model puts out, of modules that were all finite: the loss that it computes
    itself, which has a rule of its own."""
    inside = f"{row['module']}." if row["module"] else ""
    return row["elements"] == 1 and any(one is not row and str(one["module"] or "").startswith(inside) for one in rows)


def remedy(root: Row) -> tuple[str, str]:
    """What to do about the first module that is not finite, and an example."""
    if _LOOKS_UP.match(str(root["kind"])):
        return _LOOKED_UP, _LOOKED_UP_CODE
    if root["dtype"] == "float16" and was_given(root):
        return _GIVEN_IN_HALF, _GIVEN_CODE
    if root["dtype"] == "float16":
        return _IN_HALF, _IN_HALF_CODE
    if _MULTIPLIES.match(str(root["kind"])):
        return _GIVEN, _GIVEN_CODE
    return _COMPUTES, "y = x / (norm + 1e-8)"


def largest_before(root: Row, rows: list[Row]) -> float:
    """The largest number that modules put out before this one in its forward; 0 in float16, which ends at 65,504."""
    before = [row["largest"] for row in rows if row["order"] < root["order"] and row["largest"] is not None]
    known = [float(one) for one in before if np.isfinite(one)]
    return max(known, default=0.0) if root["dtype"] != "float16" else 0.0
