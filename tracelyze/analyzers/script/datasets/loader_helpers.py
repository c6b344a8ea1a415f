"""The call of a function of the script's own that makes loaders, where that call decides an argument of theirs:
`make_loader(train_set, 32)`, whose `shuffle` is then its default, or that gives none among its `**options`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

_LONGEST_HEAD: Final = 6  # lines of a `def`
_FIRST: Final = ("self", "cls")
_DECIDED_ELSEWHERE: Final = (None, "sampler", "batch_sampler")  # by **others, or by what takes no shuffle beside it


@dataclass(frozen=True)
class Asked:
    """The line that calls the function, that statement with another value, and the edit, where it is known."""

    place: Location
    code: str
    diff: Diff | None


def asking(
    process: Process, loader: Mapping[str, Any], argument: str, position: int, value: str, others: bool
) -> Asked | None:
    """Where a function of the script's own is asked for this loader (a row of the table loaders), if it hands one of
    its parameters on as this argument of DataLoader, which may also stand at this position. `others`: that line asks
    for loaders that are to stay as they are, too."""
    made, called = process.site(loader.get("made_at")), process.site(loader.get("called_at"))
    own, asked = own_statement.at(process, made), own_statement.at(process, called)
    call = own.only_call("DataLoader") if own is not None else None
    if made is None or called is None or call is None:
        return None
    handed = next((one.value for one in call.keywords if one.arg == argument), None)
    handed = handed or (call.args[position] if len(call.args) > position else None)
    parameters, options, body = _function(process, made)
    if handed is None and options and any(one.arg is None and _is_name(one.value, options) for one in call.keywords):
        if any(re.search(rf"\b{re.escape(options)}\b", line) for line in body):
            return None  # other options than it is given
        return _among_options(asked, called, made.function, argument, value, others)
    if not isinstance(handed, ast.Name) or handed.id not in parameters:
        return None
    if any(re.match(rf"\s*{re.escape(handed.id)}\s*=(?!=)", line) for line in body):
        return None  # another value than it is given
    asks = asked.only_call(made.function) if asked is not None else None
    if asked is None or asks is None:
        return Asked(called, "", None)
    given = _given(asks, parameters, handed.id)
    if others or not isinstance(given, ast.Constant | None):
        return Asked(called, "", None)
    at = _places(asks, parameters).index(handed.id) if handed.id in _places(asks, parameters) else None
    text = asked.parsed.with_argument(asks, handed.id, value, at)
    same = handed.id == argument
    return Asked(called, asked.dedented(text) if text else "", asked.changed(text) if same else None)


def _among_options(
    asked: OwnStatement | None, called: Location, function: str, argument: str, value: str, others: bool
) -> Asked | None:
    """Where a function hands its `**options` on to DataLoader: the call that is to give this one among them."""
    asks = asked.only_call(function) if asked is not None else None
    if asked is None or asks is None or others or any(one.arg in _DECIDED_ELSEWHERE for one in asks.keywords):
        return None
    if not isinstance(next((one.value for one in asks.keywords if one.arg == argument), None), ast.Constant | None):
        return None
    text = asked.parsed.with_argument(asks, argument, value)
    return Asked(called, asked.dedented(text), asked.changed(text)) if text else None


def _is_name(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Name) and value.id == name


def _function(process: Process, made: Location) -> tuple[dict[str, bool], str, list[str]]:
    """The parameters of the function that makes a loader, and whether each may be given by its place; the name of its
    `**options`, empty without; and what was recorded of it above that line. The parameters may stand on several lines,
    which belong to the code around it."""
    lines = recorded_text.around(process, made)
    heads = [at for at, line in lines.items() if re.match(rf"\s*def {re.escape(made.function)}\(", line)]
    head = max((at for at in heads if at <= made.line), default=0)
    for last in range(head, head + _LONGEST_HEAD) if head else ():
        parsed = parsed_line.parse("\n".join(lines.get(at, "") for at in range(head, last + 1)).strip())
        if parsed is not None and isinstance(parsed.statement, ast.FunctionDef):
            known = parsed.statement.args
            by_place = dict.fromkeys([one.arg for one in (*known.posonlyargs, *known.args)], True)
            body = [line for at, line in lines.items() if last < at < made.line]
            options = known.kwarg.arg if known.kwarg is not None else ""
            return by_place | dict.fromkeys([one.arg for one in known.kwonlyargs], False), options, body
    return {}, "", []


def _places(call: ast.Call, parameters: Mapping[str, bool]) -> list[str]:
    """The parameters that a call gives by their places, in order."""
    names = [name for name, by_place in parameters.items() if by_place]
    return names[1:] if isinstance(call.func, ast.Attribute) and names[:1] and names[0] in _FIRST else names


def _given(call: ast.Call, parameters: Mapping[str, bool], name: str) -> ast.expr | None:
    named = {one.arg: one.value for one in call.keywords}
    return named.get(name, dict(zip(_places(call, parameters), call.args, strict=False)).get(name))
