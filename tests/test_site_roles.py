"""Every role of a line that is recorded or asked for is declared in the schema."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tracelyze
from tracelyze.collectors.program.lines.named import roles
from tracelyze.schema import SITES

PACKAGE = Path(tracelyze.__file__).parent
ROLES = SITES.column("role").codes.keys()
NOTING = {"at": 0, "add": 0, "here": 0, "of": 1, "called_by": 1, "around": 0, "site_of": 1, "method": 2}
"""Methods of Sites, and functions that hand a role on to one, with its place among the arguments."""
GROWING = {"GrowingLists": 1, "GrowingValues": 2, "GrowingCaches": 1}
ASKING = {"location", "locations", "functions"}
HANDED_ON = {"load", "save", "load_state_dict", "from_pretrained", "keeps-parts", "keeps-inside", "fills"}
"""Roles that a function of the collector gets from another one."""


def calls(part: str) -> Iterator[tuple[str, str, ast.Call]]:
    """What is called, of what, and the call."""
    for path in sorted((PACKAGE / part).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                named = isinstance(node.func, ast.Attribute)
                yield (
                    node.func.attr if named else getattr(node.func, "id", ""),
                    ast.unparse(node.func.value) if named else "",
                    node,
                )


def texts(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def recorded() -> set[str]:
    found = HANDED_ON | roles.CALLED.keys() | {*roles.ASSIGNED.values(), *roles.KEYED.values()}
    for name, owner, call in calls("collectors"):
        places = GROWING if name in GROWING else NOTING if name in NOTING else {}
        of_sites = name in ("site_of", *GROWING) or owner == "definitions" or owner.endswith("sites")
        if places and of_sites and len(call.args) > places[name]:
            found |= {text for text in texts(call.args[places[name]]) if not text.startswith("-")}  # f"{role}-parts"
            found |= texts(call.args[1]) if name == "around" else set()
    return found


def of_text() -> set[str]:
    """Roles that the readers of a function's text answer with, or are named beside in a table."""
    found: set[str] = set()
    for path in sorted((PACKAGE / "collectors/program/lines").rglob("*.py")):
        found |= texts(ast.parse(path.read_text(encoding="utf-8")))
    lines = ast.parse((PACKAGE / "collectors/signals/machine/script_lines.py").read_text(encoding="utf-8"))
    return found | texts(lines)


def test_the_roles_that_are_recorded_are_declared() -> None:
    roles = recorded()
    assert len(roles) > 90
    assert sorted(roles - ROLES) == [], "declare in tracelyze/schema/sites.py what is recorded"
    assert sorted(ROLES - roles - of_text()) == [], "nothing records these"


def test_rules_ask_for_declared_roles() -> None:
    asked: set[str] = set()
    for name, _, call in calls("analyzers"):
        if name in ASKING:
            asked |= {one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        elif name == "only" and len(call.args) > 1:
            asked |= texts(call.args[1]) if isinstance(call.args[1], ast.Constant) else set()
    assert len(asked) > 60
    assert sorted(asked - ROLES) == []
