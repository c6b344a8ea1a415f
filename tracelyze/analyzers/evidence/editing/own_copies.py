"""A copy of the model, in the words of the script's own line that makes what should have been one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import recorded_text, script_lines
from tracelyze.analyzers.evidence.editing import own_names, own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_NAMES: Final = (ast.Name, ast.Attribute)
REFERENCES: Final = frozenset(  # as the collector knows them: collectors/program/lines/named/roles.py
    {"ref", "ref_model", "ref_net", "ref_policy", "reference", "reference_model", "reference_policy", "policy_ref"}
) | {"model_ref"}


def made(process: Process) -> Location | None:
    """The only line that makes a reference. What keeps the one that it was given, under the same name, makes none,
    and is named where no other line does."""
    lines = process.locations("reference")
    return script_lines.only_of([one for one in lines if not _keeps(one.source)] or lines)


def _keeps(source: str) -> bool:
    """Whether a line assigns what is named as its target: `self.policy, self.reference = policy, reference`."""
    line = parsed_line.parse(source)
    if line is None or not isinstance(line.statement, ast.Assign):
        return False
    targets, values = (
        one.elts if isinstance(one, ast.Tuple) else [one] for one in (line.statement.targets[0], line.statement.value)
    )
    pairs = list(zip(targets, values, strict=False))
    named = [(_last(a), _last(b)) for a, b in pairs if _last(a) in REFERENCES]
    return bool(named) and all(a == b for a, b in named)


def _last(node: ast.expr) -> str:
    """The last name of a variable or an attribute; empty for anything else."""
    return ast.unparse(node).rpartition(".")[2] if isinstance(node, _NAMES) else ""


def of_model(process: Process, place: Location | None, called: Location | None = None) -> str:
    """A copy of the model, by the names that the script's own line has for both. Where no line makes the reference, it
    is the model itself that is `called` as one: that line with the copy in its place."""
    line = parsed_line.of(place)
    made = line.statement if line is not None else None
    reference, model = "reference", "model"
    if isinstance(made, ast.Assign) and len(made.targets) == 1 and isinstance(made.targets[0], _NAMES):
        known = {one.removeprefix("self.") for one in own_names.trained(process)}
        asked = _asked(made.value)
        given = [made.value] if isinstance(made.value, _NAMES) else ast.walk(made.value)
        named = {ast.unparse(one) for one in given if isinstance(one, _NAMES)}
        own = named if isinstance(made.value, _NAMES) else {one for one in named if one.removeprefix("self.") in known}
        reference, model = ast.unparse(made.targets[0]), own.pop() if len(own) == 1 else asked or model
    called_as, used = _handed_over(process, called, reference) if place is None and called is not None else ("", "")
    model = called_as or model
    copied = f"{reference} = copy.deepcopy({model}).eval().requires_grad_(False)  # before training"
    return f"import copy  # at the top of the file\n\n{copied}" + (f"\n\n{used}" if used else "")


def assigned(process: Process) -> Location | None:
    """The only line that hands tensors of another module over as they are (`assign=True`)."""
    sites = {row["site"] for row in process.tables["loads"].records() if row["from_other"]}
    lines = [place for site in sorted(sites) if (place := process.site(site)) and "assign=True" in place.source]
    return lines[0] if len(lines) == 1 else None


def shallow(edit: Diff | None) -> str:
    """A sentence about a copy.copy() that this edit replaces."""
    said = " copy.copy() in line {} makes a new object around the same layers, which it does not copy."
    return said.format(edit.line) if edit is not None else ""


def deep(process: Process, place: Location | None) -> Diff | None:
    """The line that makes the reference by copy.copy(), with a copy of all its parts."""
    own = own_statement.at(process, place)
    made = own.parsed.statement if own is not None else None
    calls = [one for one in own.parsed.calls("copy") if ast.unparse(one.func) == "copy.copy"] if own is not None else []
    if own is None or len(calls) != 1 or len(calls[0].args) != 1 or not isinstance(made, ast.Assign):
        return None
    copied = f"copy.deepcopy({own.parsed.text_of(calls[0].args[0])})"
    frozen = ".eval().requires_grad_(False)" if made.value is calls[0] else ""
    return own.changed(own.parsed.with_parts({calls[0]: copied + frozen}))


def _asked(value: ast.expr) -> str:
    """What a method without arguments is called on: `policy` in `policy.get_base_model()`."""
    if not isinstance(value, ast.Call) or value.args or value.keywords or not isinstance(value.func, ast.Attribute):
        return ""
    return ast.unparse(value.func.value) if isinstance(value.func.value, _NAMES) else ""


def _handed_over(process: Process, called: Location, reference: str) -> tuple[str, str]:
    """What the line that calls the model as its own reference calls it, and that line with the copy; in words where it
    is an argument there, under a name of its own."""
    own = own_statement.at(process, called)
    names = own_names.trained(process) | {own_names.model_at(process, called)}
    nodes = [one for one in ast.walk(own.parsed.tree) if isinstance(one, _NAMES)] if own is not None else []
    models: dict[ast.expr, str] = {one: reference for one in nodes if ast.unparse(one) in names}
    known = {ast.unparse(one) for one in models}
    if own is None or len(known) != 1 or any(f"{one}," in _head(process, called) for one in known):
        return "", f"# and in line {called.line}, which calls the model as its own reference: {reference} in its place"
    return known.pop(), f"{own.dedented(own.parsed.with_parts(models))}  # line {called.line}"


def _head(process: Process, place: Location) -> str:
    """What the function takes, with a comma behind each name; empty where its first line was not recorded."""
    lines = recorded_text.of_function(process, place).values()
    head = next((one for one in lines if one.lstrip().startswith(f"def {place.function}(")), "")
    return head.partition("(")[2].replace(")", ",")
