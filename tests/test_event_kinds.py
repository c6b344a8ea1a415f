"""Every kind of event that is written or asked for is declared in the schema."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tracelyze
from tracelyze.schema import EVENT_KINDS

PACKAGE = Path(tracelyze.__file__).parent
WRITE = {"record_event": 0, "_record_event": 0, "_event": 0, "_report": 0, "note_exception": 2}
"""Functions that write events, with the place of the kind among their arguments."""
Constants = dict[str, str]


def text_of(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def texts(node: ast.AST, constants: Constants) -> set[str]:
    """What an expression may be: a literal, one of several, or a constant of its module."""
    if isinstance(node, ast.Name):
        return {constants[node.id]} if node.id in constants else set()
    return {text for one in ast.walk(node) if (text := text_of(one)) is not None}


def constants_of(tree: ast.Module) -> Constants:
    found: Constants = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        names, values = (side.elts if isinstance(side, ast.Tuple) else [side] for side in (node.targets[0], node.value))
        for name, value in zip(names, values, strict=False):
            if isinstance(name, ast.Name) and (text := text_of(value)) is not None:
                found[name.id] = text
    return found


def modules(part: str) -> Iterator[tuple[ast.Module, Constants]]:
    for path in sorted((PACKAGE / part).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield tree, constants_of(tree)


def written() -> set[str]:
    """Kinds that functions of the collector are given, and those of rows that are made in place."""
    found: set[str] = set()
    for tree, constants in modules("collectors"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in WRITE and len(node.args) > WRITE[name]:
                    found |= texts(node.args[WRITE[name]], constants)
            elif isinstance(node, ast.Dict):
                row = {text_of(key): value for key, value in zip(node.keys, node.values, strict=True) if key}
                if "kind" in row and "name" in row and (text := text_of(row["kind"])) is not None:
                    found.add(text)
    return found


def asked_for() -> set[str]:
    """Kinds that `Process.events_of` is given."""
    return {
        text
        for tree, constants in modules("analyzers")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "events_of"
        for one in node.args
        for text in texts(one, constants)
    }


def test_the_kinds_that_are_written_are_those_that_are_declared() -> None:
    kinds = written()
    assert len(kinds) > 15
    assert sorted(kinds ^ EVENT_KINDS.keys()) == [], "declare in tracelyze/schema/events.py what is written"


def test_rules_ask_for_declared_kinds_of_events() -> None:
    kinds = asked_for()
    assert len(kinds) > 12
    assert sorted(kinds - EVENT_KINDS.keys()) == []
