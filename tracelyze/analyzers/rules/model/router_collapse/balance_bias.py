"""The line that moves a bias of the choice of experts towards those that get most tokens, instead of away from them."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.model.router_collapse.balance_term import Mistake
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Location

_LOAD: Final = re.compile(r"load|count|usage|used|freq|frac|tokens|share|hist", re.IGNORECASE)
_EVEN: Final = re.compile(r"mean|avg|average|target|ideal|expected|even|uniform|1(?:\.0*)?\s*/", re.IGNORECASE)
_TURNED: Final = {"+=": "-=", "-=": "+=", ".add_(": ".sub_(", ".sub_(": ".add_(", "+": "-", "-": "+"}


def raised(process: Process) -> Mistake | None:
    """The only such line: it adds what an expert gets above an even share, or subtracts what it lacks."""
    found = {one: line for one in process.locations("balance") if (line := _turned(process, one))}
    place = script_lines.only_of(list(found))
    if place is None:
        return None
    fix = (
        f"Turn the sign in line {place.line}: it raises the bias of experts that get more than an even share of the "
        "tokens, so that they get more still. A bias that is added to the scores for the choice has to fall for these. "
        "Keep the sign only if the choice subtracts it."
    )
    return Mistake(place, fix, found[place])


def _turned(process: Process, place: Location) -> str:
    """The line with the other sign, if it raises what is chosen most; empty if not."""
    parsed = parsed_line.parse(code_of(place.source).strip())
    moved = _moved(parsed) if parsed is not None else None
    if parsed is None or moved is None:
        return ""
    sign, _, at = moved
    surplus = _surplus(*_told(process, place, parsed, moved[1]))
    raises = surplus is not None and surplus == (sign in ("+=", "+", ".add_("))
    before, after = parsed.text[:at], parsed.text[at:]
    return before + after.replace(sign, _TURNED[sign], 1) if raises else ""


def _told(process: Process, place: Location, parsed: ParsedLine, by: ast.expr) -> tuple[ParsedLine, ast.expr]:
    """By what the line moves the bias, with the only name in it that a line above gives a difference written out."""
    written: dict[ast.expr, str] = {}
    for one in ast.walk(by):
        if not isinstance(one, ast.Name):
            continue
        difference = _difference(process, place, one.id)
        if difference:
            written[one] = f"({difference})"
    whole = parsed_line.parse(parsed.with_parts(written)) if len(written) == 1 else None
    moved = _moved(whole) if whole is not None else None
    return (whole, moved[1]) if whole is not None and moved is not None else (parsed, by)


def _difference(process: Process, place: Location, name: str) -> str:
    """What the only assignment of a name in the recorded lines of the function gives it, right above in the same block,
    if that takes a difference; else empty."""
    lines = recorded_text.of_function(process, place)
    binds = re.compile(rf"[^=(]*\b{name}\b[^=(]*=(?!=)|.*\b{name}\b\s*:=")
    bound = [at for at, line in lines.items() if binds.match(line)]
    beside = recorded_text.indent_of(lines.get(place.line, ""))
    if len(bound) != 1 or bound[0] >= place.line or recorded_text.indent_of(lines[bound[0]]) != beside:
        return ""
    own = own_statement.at(process, replace(place, line=bound[0], source=lines[bound[0]].strip()))
    said = own.parsed.statement if own is not None else None
    if own is None or not isinstance(said, ast.Assign) or not isinstance(said.targets[0], ast.Name):
        return ""
    takes = any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) for one in ast.walk(said.value))
    return own.parsed.text_of(said.value) if takes else ""


def _moved(parsed: ParsedLine) -> tuple[str, ast.expr, int] | None:
    """With which sign the line moves the bias, by what, and from where on in the line the sign stands."""
    said = parsed.statement
    if isinstance(said, ast.AugAssign) and isinstance(said.op, ast.Add | ast.Sub):
        return "+=" if isinstance(said.op, ast.Add) else "-=", said.value, len(parsed.text_of(said.target))
    if isinstance(said, ast.Assign) and len(said.targets) == 1 and isinstance(said.value, ast.BinOp):
        itself = parsed.text_of(said.targets[0])
        sums = isinstance(said.value.op, ast.Add | ast.Sub) and parsed.text_of(said.value.left) == itself
        sign = "+" if isinstance(said.value.op, ast.Add) else "-"
        return (sign, said.value.right, parsed.text.rindex(itself, 0, said.value.right.col_offset)) if sums else None
    calls = parsed.calls("add_", "sub_")
    if isinstance(said, ast.Expr) and len(calls) == 1 and len(calls[0].args) == 1 and not calls[0].keywords:
        sign = f".{parsed_line.name_of(calls[0].func)}("
        return sign, calls[0].args[0], 0
    return None


def _surplus(parsed: ParsedLine, by: ast.expr) -> bool | None:
    """Whether the only difference is what an expert gets above an even share, True, or lacks, False."""
    inside = list(ast.walk(by))
    differences = [one for one in inside if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub)]
    if len(differences) != 1 or any(isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub) for one in inside):
        return None
    first, second = (parsed.text_of(one) for one in (differences[0].left, differences[0].right))
    even = [bool(_EVEN.search(one)) for one in (first, second)]
    share = second if even[0] else first
    return even[1] if even[0] != even[1] and _LOAD.search(share) else None
