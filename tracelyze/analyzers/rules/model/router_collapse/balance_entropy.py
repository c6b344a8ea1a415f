"""An entropy of the experts' shares that is added to the loss: training lowers it, until one expert gets all tokens."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.model.router_collapse import balance_term
from tracelyze.analyzers.rules.model.router_collapse.balance_term import Mistake
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_LOGARITHMS: Final = ("log", "log2")


def added(process: Process) -> Mistake | None:
    """The only recorded line that makes such an entropy, where one line of the loss adds a term for the balance, and no
    line takes one off or turns its sign."""
    found: dict[Location, str] = {}
    signs: set[bool] = set()
    sums: dict[int, Location] = {}
    for recorded in recorded_text.lines(process):
        line = code_of(recorded.source).strip()
        place = replace(recorded, source=line)
        if balance_term.is_of_a_loss(line) and (sign := balance_term.sign(line)):
            signs.add(sign == "+")
            sums[place.line] = place
        if mended := _without_minus(process, place):
            found[place] = mended
        elif balance_term.is_turned(line):
            signs.add(False)
    made = script_lines.only_of(list(found))
    if made is None or signs != {True} or len(sums) != 1:
        return None
    (total,) = sums.values()
    fix = (
        f"Subtract that entropy: line {made.line} computes one of the experts' shares, which is highest where they are "
        f"even, and line {total.line} adds the balance to the loss, so that training lowers it. Leave out the minus in "
        f"line {made.line}, or subtract the term in line {total.line}, and not both."
    )
    return Mistake(made, fix, found[made])


def _without_minus(process: Process, place: Location) -> str:
    """`x = -(p * p.log()).sum()` without its minus, where p is a mean; empty for anything else."""
    if "log" not in place.source or "sum" not in place.source:
        return ""
    parsed = parsed_line.parse(place.source)
    said = parsed.statement if parsed is not None else None
    if parsed is None or not isinstance(said, ast.Assign) or not isinstance(said.value, ast.UnaryOp):
        return ""
    total = said.value.operand
    if not isinstance(said.value.op, ast.USub) or not _sums_all(total) or not isinstance(total, ast.Call):
        return ""
    terms = total.func.value if isinstance(total.func, ast.Attribute) and not total.args else total.args[0]
    if not isinstance(terms, ast.BinOp) or not isinstance(terms.op, ast.Mult):
        return ""
    sides = (terms.left, terms.right)
    logs = [one for one in sides if isinstance(one, ast.Call) and name_of(one.func) in _LOGARITHMS]
    shares = [one for one in sides if isinstance(one, ast.Name)]
    if len(logs) != 1 or len(shares) != 1 or shares[0].id not in {ast.unparse(one) for one in ast.walk(logs[0])}:
        return ""
    return parsed.with_parts({said.value: parsed.text_of(total)}) if _is_mean(process, place, shares[0].id) else ""


def _sums_all(node: ast.expr) -> bool:
    """Whether it is `terms.sum()` or `torch.sum(terms)`: over everything, and so one entropy, not one of each token."""
    if not isinstance(node, ast.Call) or node.keywords or name_of(node.func) != "sum":
        return False
    return len(node.args) == (1 if parsed_line.is_function_of_torch(node.func) else 0)


def _is_mean(process: Process, place: Location, name: str) -> bool:
    """Whether the function makes `name` by a mean, over tokens."""
    lines = recorded_text.around(process, place).values()
    return any(code_of(line).strip().startswith(f"{name} = ") and ".mean(" in line for line in lines)
