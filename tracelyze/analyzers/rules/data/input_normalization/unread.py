"""Values that a line scales into a name which no line computes with, or drops: the model is given what they were
before."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.data.input_normalization.fitted import OF_TARGETS
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_SCALES: Final = ("transform", "fit_transform", "normalize", "standardize")
_RETURNS: Final = ("transform", "fit_transform")
_CALLED: Final = re.compile(r"([\w.\[\]]*)\.(?:fit_)?transform\s*\(")
_GIVEN: Final = re.compile(_CALLED.pattern + r"\s*([\w.\[\]]*)")
_LOOP: Final = re.compile(
    r"\s*for (?P<key>\w+), (?P<value>\w+) in (?:(?P<items>[\w.]+)\.items\(\)|enumerate\((?P<listed>[\w.]+)\)):"
    r"\s*(?:#.*)?$"
)
_IN_PLACE: Final = re.compile(r"\bcopy\s*=\s*False\b")  # such a scaler may write into what it is given


def remedy(process: Process) -> Remedy | None:
    """The first line that takes what was scaled as it was before, with the scaled values in it; else the first one that
    scales values and drops them, or keeps them in the variable of a loop alone. None where several functions hold such
    lines."""
    return _of_names(process) or _of_dropped(process) or _of_a_loop(process)


def _of_names(process: Process) -> Remedy | None:
    scaled = {one.line: one for one in process.locations("unread")}
    taken = [one for _, one in sorted({one.line: one for one in process.locations("raw")}.items())]
    place = script_lines.only_of(taken)
    if place is None or len({one.file_function for one in (place, *scaled.values())}) > 1:
        return None
    named = {one.line: found for one in scaled.values() if (found := _named(own_statement.at(process, one)))}
    lines = [_with_scaled(own_statement.at(process, one), list(named.values())) for one in taken]
    first = next(((number, one) for number, one in sorted(named.items()) if _is_read(one[1], place.source)), None)
    if first is None:
        return None
    number, (name, before) = first
    others = [str(one.line) for one in taken[1:]]
    fix = (
        f"Take {name} in line {place.line}: line {number} scales {before} into it, and no line computes with the "
        f"result. Line {place.line} takes {before} as it was."
        + (f" The same goes for line{'s' * (len(others) > 1)} {listed(others, most=4)}." if others else "")
    )
    return Remedy(fix, "\n".join(text for text in lines if text), place)


def _of_dropped(process: Process) -> Remedy | None:
    """The first statement that is a call of transform() alone: a scaler returns the scaled values and leaves what it is
    given as it is."""
    texts = [one for one in recorded_text.matching(process, _CALLED) if not one.source.startswith("#")]
    calls = {one.line: (one, found) for one in texts if (found := _bare(own_statement.at(process, one)))}
    calls = {at: (one, of) for at, (one, of) in calls.items() if not _of_targets(one.source)}
    places = [one for _, (one, _) in sorted(calls.items())]
    scalers = {name for one in places for name in _CALLED.findall(one.source)}
    others = [one for one in texts if one not in places]
    kept = [one for one in others if not (_of_targets(one.source) and scalers.isdisjoint(_CALLED.findall(one.source)))]
    stands = {one.file_line: one.file_function for one in process.locations("transforms")}
    if not places or kept or len({stands.get(one.file_line, one.file_function) for one in places}) > 1:
        return None  # another line may keep what the scaler returns
    if any(_IN_PLACE.search(one) for one in recorded_text.everything(process)):
        return None
    given = list(dict.fromkeys(of for _, (_, of) in sorted(calls.items())))
    more = [str(one.line) for one in places[1:]]
    fix = (
        f"Assign the result in line {places[0].line}: a scaler returns the scaled values, and {given[0]} stays as it "
        f"was." + (f" The same goes for line{'s' * (len(more) > 1)} {listed(more, most=4)}." if more else "")
    )
    return Remedy(fix, "\n".join(f"{of} = {one.source}" for _, (one, of) in sorted(calls.items())), places[0])


def _of_targets(source: str) -> bool:
    """Whether all that a line has transformed is of targets, by the names of its scalers or of what they are given."""
    found = _GIVEN.findall(source)
    return len(found) > 0 and all(OF_TARGETS.search(scaler) or OF_TARGETS.search(given) for scaler, given in found)


def _of_a_loop(process: Process) -> Remedy | None:
    """The only line that scales the variable of a loop into itself, which nothing reads: what the loop goes over holds
    the values as they were."""
    lines = {one.file_line: one for one in process.locations("left-alone")}
    statements = [(place, own_statement.at(process, place)) for place in lines.values()]
    found = [(place, own, target) for place, own in statements if own and (target := _scaled_into(own)) is not None]
    if len(found) != 1:
        return None
    place, own, target = found[0]
    kept = _kept_in(recorded_text.of_function(process, place), place.line, target.id)
    fix = (
        f"Keep what line {place.line} makes: it gives the scaled values to {target.id}, the variable of its loop, and "
        f"nothing reads that. {kept[0] if kept else 'What the loop goes over'} still holds the values as they were."
    )
    return Remedy(fix, own.dedented(own.parsed.with_parts({target: kept[1]})) if kept else "", place)


def _scaled_into(own: OwnStatement) -> ast.Name | None:
    """The name that a statement gives the difference of what went by it to something, over something."""
    made = own.parsed.statement
    target = made.targets[0] if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    if not isinstance(made, ast.Assign) or not isinstance(target, ast.Name):
        return None
    quotients = [one for one in ast.walk(made.value) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)]
    shifted = [one.left for one in quotients if isinstance(one.left, ast.BinOp) and isinstance(one.left.op, ast.Sub)]
    of = {node.id for one in shifted for node in ast.walk(one.left) if isinstance(node, ast.Name)}
    return target if target.id in of else None


def _kept_in(lines: dict[int, str], number: int, name: str) -> tuple[str, str] | None:
    """What the loop around a line goes over, and where in it the variable of this name stands: `frames` and
    `frames[key]`; None where that is another loop than over items() or enumerate()."""
    depth = recorded_text.indent_of(lines.get(number, ""))
    while number - 1 in lines and (recorded_text.indent_of(lines[number]) >= depth or not lines[number].strip()):
        number -= 1
    head = _LOOP.match(lines[number])
    if head is None or head["value"] != name:
        return None
    over = head["items"] or head["listed"]
    return over, f"{over}[{head['key']}]"


def _bare(own: OwnStatement | None) -> str:
    """What such a call is given, where the statement is no more than that call on one line, and it can be assigned."""
    made = own.parsed.statement if own is not None else None
    call = made.value if isinstance(made, ast.Expr) else None
    if own is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or "\n" in own.text:
        return ""
    first = call.args[0] if call.args and call.func.attr in _RETURNS else None
    return own.parsed.text_of(first) if isinstance(first, ast.Name | ast.Attribute | ast.Subscript) else ""


def _is_read(name: str, source: str) -> bool:
    """Whether a line reads what goes by this name, and not by a longer one."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", source) is not None


def _named(own: OwnStatement | None) -> tuple[str, str] | None:
    """The name that such a line gives, and what it scales."""
    made = own.parsed.statement if own is not None else None
    if own is None or not isinstance(made, ast.Assign) or not isinstance(made.targets[0], ast.Name):
        return None
    call = own.only_call(*_SCALES)
    value = made.value
    if call is not None and call.args:
        return made.targets[0].id, own.parsed.text_of(call.args[0])
    if isinstance(value, ast.BinOp) and isinstance(value.left, ast.BinOp) and isinstance(value.left.left, ast.Name):
        return made.targets[0].id, value.left.left.id
    return None


def _with_scaled(own: OwnStatement | None, named: list[tuple[str, str]]) -> str:
    """The statement with scaled values in place of those before; empty where it takes none of them, or one twice."""
    if own is None or not own.is_whole:
        return ""
    nodes = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.expr)]
    parts: dict[ast.expr, str] = {}
    for name, before in named:
        same = [one for one in nodes if own.parsed.text_of(one) == before]
        parts |= {same[0]: name} if len(same) == 1 else {}
    return own.dedented(own.parsed.with_parts(parts)) if parts else ""
