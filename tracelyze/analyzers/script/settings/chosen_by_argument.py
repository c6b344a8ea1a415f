"""A layer that a model or a function makes where an argument asks for it: whoever changes it asks for another one, and
leaves the branch to other callers."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.settings import callers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

_BRANCH: Final = re.compile(r"(?:if|elif)\b(?P<test>.+):|else\s*:")


class _Choice(NamedTuple):
    """What is compared, and what it is equal to where the layer is made; neither is known in an `else`."""

    argument: str
    value: object


class Chosen(NamedTuple):
    """The call that asks for the layer, the edit that asks for none, and a sentence for a fix."""

    place: Location | None
    diff: Diff | None
    said: str


def layer(process: Process, made_at: Location | None, *names: str) -> Chosen | None:
    """Of the line that makes a layer with one of these names; None where no branch on an argument makes it."""
    own = own_statement.at(process, made_at)
    choice = _choice(process, own, made_at, names) if own is not None and made_at is not None else None
    if choice is None or own is None or made_at is None:
        return None
    leave = f"Leave line {own.line} as it is: it makes what its callers ask for."
    asking = _calls(process, made_at, choice) if choice.argument else []
    if len(asking) != 1:
        return Chosen(None, None, f"{leave} Ask for no activation where the model is made.")
    place, call, given = asking[0]
    none = _of_identity(process, made_at, choice.argument)
    diff = call.changed(call.parsed.with_parts({given: none})) if none else None
    asks = f"Line {call.line} asks for it with {call.parsed.text_of(given)}."
    return Chosen(place, diff, f"{leave} {asks} {f'Ask for {none}' if none else 'Ask for no activation'} there.")


def _choice(process: Process, own: OwnStatement, made_at: Location, names: tuple[str, ...]) -> _Choice | None:
    """On what the layer depends: a condition or a table within the statement, else the branch that it stands in."""
    if not own.parsed.calls(*names) or made_at.function == "<module>":
        return None
    for node in ast.walk(own.parsed.tree):
        if isinstance(node, ast.IfExp) and _holds(node, names):
            found = _compared(node.test)
            return _Choice("", None) if found is not None and not _holds(node.body, names) else found
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict) and _holds(node.value, names):
            keys = [one for one, made in zip(node.value.keys, node.value.values, strict=True) if _holds(made, names)]
            known = keys[0].value if len(keys) == 1 and isinstance(keys[0], ast.Constant) else None
            return _Choice(name_of(node.slice) if known is not None else "", known)
    return _branch(recorded_text.of_function(process, made_at), own)


def _holds(node: ast.AST, names: tuple[str, ...]) -> bool:
    return any(isinstance(one, ast.Call) and name_of(one.func) in names for one in ast.walk(node))


def _branch(lines: Mapping[int, str], own: OwnStatement) -> _Choice | None:
    """The branch that the statement stands in directly, where its condition, or one beside it, compares an argument."""
    at = own.line - 1
    while at in lines and (not lines[at].strip() or recorded_text.indent_of(lines[at]) >= len(own.indent)):
        at -= 1
    head = _BRANCH.fullmatch(code_of(lines.get(at, "")).strip())
    if head is None:
        return None
    if head["test"] is not None:
        return _compared(_expression(head["test"]))
    depth = recorded_text.indent_of(lines[at])  # an else: it depends on what the condition above it compares
    beside = [text for text in _above(lines, at, depth) if recorded_text.indent_of(text) == depth]
    above = _BRANCH.fullmatch(code_of(beside[0]).strip()) if beside else None
    compared = _compared(_expression(above["test"])) if above is not None and above["test"] else None
    return _Choice("", None) if compared is not None else None


def _above(lines: Mapping[int, str], at: int, depth: int) -> Iterator[str]:
    """The lines above one, up to the first that is indented less."""
    at -= 1
    while at in lines and (not lines[at].strip() or recorded_text.indent_of(lines[at]) >= depth):
        if lines[at].strip():
            yield lines[at]
        at -= 1


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _compared(test: ast.expr | None) -> _Choice | None:
    """`name == "softmax"`, `self.name is None`, `name`: of a name alone, or of one that the object keeps."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.comparators[0], ast.Constant):
        if not isinstance(test.ops[0], ast.Eq | ast.Is):
            return _Choice("", None) if _argument(test.left) else None
        name = _argument(test.left)
        return _Choice(name, test.comparators[0].value) if name else None
    name = _argument(test)
    return _Choice(name, True) if name else None


def _argument(node: ast.expr | None) -> str:
    """The name of what is compared, where that may be an argument: a name, or one that `self` keeps."""
    kept = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    name = name_of(node) if node is not None and (kept or isinstance(node, ast.Name)) else ""
    return name if name != "training" else ""  # the mode of a module


def _of_identity(process: Process, made_at: Location, argument: str) -> str:
    """The value, as it is written, for which the same function makes an Identity in another branch; empty if none."""
    lines = recorded_text.of_function(process, made_at)
    found = set()
    for at, text in lines.items():
        head = _BRANCH.fullmatch(code_of(text).strip())
        test = _expression(head["test"]) if head is not None and head["test"] else None
        choice = _compared(test)
        below = lines.get(at + 1, "")
        if choice is not None and isinstance(test, ast.Compare) and choice.argument == argument:
            found |= {ast.unparse(test.comparators[0])} if re.search(r"\bIdentity\(\s*\)", below) else set()
    return found.pop() if len(found) == 1 else ""


def _calls(process: Process, made_at: Location, choice: _Choice) -> list[tuple[Location, OwnStatement, ast.expr]]:
    """The recorded calls, in the same file, of the class or function that the line belongs to, which pass the value."""
    rows = list(process.tables["modules"].records())
    made = [str(row["module"]) for row in rows if process.site(row["made_at"]) == made_at]
    holders = {name.rpartition(".")[0] for name in made}
    kinds = {str(row["kind"]) for row in rows if str(row["module"]) in holders}
    names = kinds if made_at.function == "__init__" else {made_at.function}
    found: list[tuple[Location, OwnStatement, ast.expr]] = []
    for place, own, call in (one for name in names for one in callers.of(process, name, made_at.file)):
        by_name = [one.value for one in call.keywords if one.arg == choice.argument]
        same = [one for one in by_name or call.args if isinstance(one, ast.Constant) and one.value == choice.value]
        same = [one for one in same if type(one.value) is type(choice.value)]
        found += [(place, own, same[0])] if len(same) == 1 else []
    return found
