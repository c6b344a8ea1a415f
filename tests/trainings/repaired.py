"""The script of a labelled training with the edit that a finding proposes: a copy, to be run instead."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import re
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tracelyze.analyzers.script.editing import unknown_names

from .manifest import Training

# A few of each kind of edit, which take a second or two: with all trainings switched on, every edit is run.
RUN_AGAIN: Final = (
    "best_weights_alias",
    "churn_table[tight-clip]",
    "early_return_from_eval",
    "slow_trunk[one-peak]",
    "two_faults_zero_grad_and_eval",
    "validation_builds_graphs",
)


def applied(training: Training, diff: dict[str, Any], folder: Path) -> Training:
    """The training after the edit: what it removes has to stand in the script, and the script has to compile."""
    assert Path(diff["file"]).name == training.script.name, diff
    lines = training.script.read_text(encoding="utf-8").splitlines()
    at = diff["line"] - 1
    assert 0 <= at <= len(lines), diff
    assert lines[at : at + len(diff["removed"])] == diff["removed"], diff
    source = "\n".join([*lines[:at], *diff["added"], *lines[at + len(diff["removed"]) :]]) + "\n"
    compile(source, training.script.name, "exec")
    missing = new_names(training.script.read_text(encoding="utf-8"), source)
    assert not missing, f"{diff}: nothing defines {missing}"
    folder.mkdir()
    copy = folder / training.script.name
    copy.write_text(source, encoding="utf-8")
    return dataclasses.replace(training, path=str(copy), exit_code=0, roots=(), lines=())


def new_names(before: str, after: str) -> set[str]:
    """Names that an edited script asks for and has nowhere, which the script before the edit did not ask for: what a
    line no longer assigns is among them."""
    return _undefined(after) - _undefined(before)


def _undefined(source: str) -> set[str]:
    module = symtable.symtable(source, "train.py", "exec")
    defined = {one.get_name() for one in module.get_symbols() if one.is_assigned() or one.is_imported()}
    defined |= {one.get_name() for one in module.get_symbols() if one.is_namespace()} | set(dir(builtins))
    tables, asked = [module], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        asked |= {one.get_name() for one in table.get_symbols() if one.is_global() and one.is_referenced()}
    return asked - defined - {"__file__", "__name__"}


def names_at(source: str, line: int) -> set[str]:
    """What a statement of the script can name at this line: locals of the functions around it, and of the module."""
    known = set(dir(builtins))
    scopes = [ast.parse(source)]
    for node in ast.walk(scopes[0]):
        around = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= node.end_lineno
        scopes += [node] if around else []
    for scope in scopes:
        for node in _own_nodes(scope):
            known |= _binds(node)
    return known


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own_nodes(node)


def _binds(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    if isinstance(node, ast.arguments):
        return {one.arg for one in (*node.posonlyargs, *node.args, *node.kwonlyargs, node.vararg, node.kwarg) if one}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(one.asname or one.name).split(".")[0] for one in node.names}
    return set()


def passed_off(training: Training, finding: dict[str, Any]) -> list[str]:
    """What an example without an edit would break if it were put in place of the line that the finding marks, without
    saying so: names that are not the script's there, nor where the fault was seen and the example makes a call anew."""
    place, code = finding["location"], finding["fix_code"]
    if place is None or not code or Path(place["file"]).name != training.script.name:
        return []
    source = training.script.read_text(encoding="utf-8")
    first = code.split("\n")[0]
    said = first.removeprefix(unknown_names.NOTE).split(", ") if first.startswith(unknown_names.NOTE) else []
    known = names_at(source, place["line"])
    stands = re.fullmatch(r"# line (\d+)", first)  # which the example is for, if not for the one that is marked
    if stands is not None:
        known |= names_at(source, int(stands[1]))
    seen_at = finding["seen_at"]
    seen_here = seen_at is not None and Path(seen_at["file"]).name == training.script.name
    if seen_here and unknown_names.make_one_call(code, seen_at["source"]):
        known |= names_at(source, seen_at["line"])
    if unknown_names.attributes_of_self(code) <= unknown_names.attributes_of_self(source):
        known |= {"self"}  # the example is for the method that has them
    return [
        name for name in unknown_names.foreign(code) if name not in known and name not in said and "..." not in said
    ]
