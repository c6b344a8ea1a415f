"""A VAE whose reconstruction is a mean over the elements of a sample while its KL divergence is a sum over the code."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.analyzers.script.settings import made_losses
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_DIVERGENCE: Final = re.compile(r"(?=.*\b1(?:\.0?)? ?\+)(?=.*log_?(?:var|sigma)|.*\blv\b)(?=.*\bexp\()(?=.*\bsum\()")
_DIVIDES: Final = re.compile(r"(?<!/)/(?!/)")
_BY_BATCH: Final = re.compile(r"(?<!/)/=? *(?:\w+\.(?:size\(0\)|shape\[0\])|len\(\w+\)|(?:self\.)?batch_size)\)* *$")
_FEW: Final = 16  # elements of a sample: with fewer, mean and sum are not far apart
_OF_EACH: Final = re.compile(r"\bmean\(|\b(?:dim|axis)=|\bsum\(-?\d[,)]|, -?\d\)")  # over each sample's code
_NAMED: Final = re.compile(r"\s*(\w+)\s*=[^=]")
_REPORTS: Final = ("print", "log", "log_dict", "info", "debug", "add_scalar", "set_postfix")
_CLASS: Final = re.compile(r"\s*class (?P<name>\w+)\b")
_CLASSES: Final = ("BCELoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCEWithLogitsLoss")
_FIX: Final = (
    "Take the reconstruction as a sum over the elements of each sample, and the mean of that over the batch, as the KL."
)
_WHOLE_FIX: Final = "Take the reconstruction as a sum over all elements of the batch, as the KL."


def of(process: Process, loss: Location, rows: Sequence[Mapping[str, Any]]) -> Remedy | None:
    """What to do about the call of a loss function with these rows, and why; None where its function of the script,
    with one that it calls, computes no such divergence, or divides something, which may balance the two. To divide the
    divergence by the number of samples does not."""
    sizes = [str(row["input_shape"] or "").split("x") for row in rows]
    elements = {math.prod(map(int, one[1:])) for one in sizes if all(map(str.isdecimal, one))}
    if len(elements) != 1 or any(row["reduction"] != "mean" for row in rows) or min(elements) < _FEW:
        return None
    code = {at: code_of(text) for at, text in recorded_text.of_function(process, loss).items()}
    backwards = [one.line for one in process.locations("backward") if one.file_function == loss.file_function]
    code = {at: text for at, text in code.items() if not backwards or at <= max(backwards)}  # and no report below it
    code |= _of_callee(process, loss, code)
    found = [at for at, text in code.items() if _DIVERGENCE.search(text)]
    own = own_statement.at(process, loss)
    divided = [at for at, text in code.items() if _DIVIDES.search(text)]
    name = _NAMED.match(code[found[0]]) if len(found) == 1 else None
    divided = [at for at in divided if name is None or not _only_reports(process, loss, at, code[at], name[1])]
    if len(found) != 1 or own is None or (divided and not _by_samples(code, found[0], divided)):
        return None
    count, each = elements.pop(), bool(divided) or bool(_OF_EACH.search(code[found[0]]))
    why = (
        f" The reconstruction is a mean over the {count:,} elements of each sample, the KL in line {found[0]} is a "
        f"sum{'' if each else ' over the batch'}. In the bound of a VAE both are sums: here the reconstruction counts "
        f"{'' if each else 'at least '}{count:,} times too little beside the KL."
    )
    edited = _summed(own, each)
    made = None if edited or each else made_losses.made(process, loss, _CLASSES)
    place, own = made or (loss, own)
    edited = own.with_argument(_CLASSES, "reduction", '"sum"') if made else edited
    return Remedy(_FIX if each else _WHOLE_FIX, own.dedented(edited), place, own.changed(edited), why)


def _by_samples(code: Mapping[int, str], found: int, divided: Sequence[int]) -> bool:
    """Whether all that is divided is this divergence, by the number of samples: it is a sum over each code then."""
    name = _NAMED.match(code[found])
    text = code[divided[0]]
    its_own = divided[0] == found or (name is not None and re.match(rf"\s*{name[1]}\s*(?:/=|= *{name[1]} */)", text))
    return len(divided) == 1 and bool(its_own) and len(_DIVIDES.findall(text)) == 1 and bool(_BY_BATCH.search(text))


def _only_reports(process: Process, loss: Location, at: int, text: str, divergence: str) -> bool:
    """Whether what a line divides is no part of the loss: it is logged or printed, or handed back beside a sum that
    this divergence is in as it is."""
    own = own_statement.at(process, loss.at(at, text))
    statement = own.parsed.statement if own is not None else None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return parsed_line.name_of(statement.value.func) in _REPORTS
    value = statement.value if isinstance(statement, ast.Return) else None
    parts = value.elts if isinstance(value, ast.Tuple) else value.values if isinstance(value, ast.Dict) else []
    return any(_adds(one, divergence) for one in parts)


def _adds(value: ast.expr, name: str) -> bool:
    """Whether this is a sum with that name in it, of which nothing is divided."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return False
    within = list(ast.walk(value))
    named = any(isinstance(one, ast.Name) and one.id == name for one in within)
    return named and not any(isinstance(one, ast.Div) for one in within)


def _of_callee(process: Process, loss: Location, code: Mapping[int, str]) -> dict[int, str]:
    """The lines of the only other function of the file that sums such a divergence, where this code calls it."""
    apart = [one for one in process.locations("divergence") if one.file == loss.file]
    apart = [one for one in apart if one.function != loss.function]
    if len(apart) != 1 or not apart[0].function.isidentifier():
        return {}
    called = _module(process, apart[0]) if apart[0].function == "forward" else apart[0].function
    calls = re.compile(rf"(?<!def )\b{called}\(")
    if not called or not any(calls.search(text) for text in code.values()):
        return {}
    return {at: code_of(text) for at, text in recorded_text.of_function(process, apart[0]).items()}


def _module(process: Process, forward: Location) -> str:
    """The name of the only module that is made of the class of a forward; empty where it is not known."""
    text = recorded_text.of_file(process, forward.file)
    heads = [found["name"] for at, line in sorted(text.items()) if at < forward.line and (found := _CLASS.match(line))]
    makes = re.compile(rf"\b(?P<name>\w+)\s*=\s*{heads[-1]}\(\)") if heads else None
    made = {found["name"] for line in text.values() if makes is not None and (found := makes.search(line))}
    return made.pop() if len(made) == 1 else ""


def _summed(own: own_statement.OwnStatement, each: bool) -> str:
    """The statement with a sum in place of a mean, over each sample or over the batch; empty where it is no plain
    call of a function."""
    statement = own.parsed.statement
    value = statement.value if isinstance(statement, ast.Assign | ast.Return) else None
    called = value.func if isinstance(value, ast.Call) else None
    if not isinstance(called, ast.Attribute) or not called.attr.islower() or not isinstance(value, ast.Call):
        return ""
    first = value.args[0] if value.args else None
    if not isinstance(first, ast.Name):
        return ""
    summed = own.with_argument((called.attr,), "reduction", '"sum"')
    return f"{summed} / {first.id}.size(0)" if summed and each else summed
