"""Two optimizers over the same tensors: the line that makes the later one, without those that the earlier one holds."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.analyzers.evidence.editing.parsed_line import name_of
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization


def left_out(later: Optimization, earlier: Optimization, shares: int) -> tuple[str, Diff | None]:
    """An example, and the edit where both are made in one function and the later one holds more than what is shared."""
    first = own_statement.at(earlier.process, earlier.made_at)
    second = own_statement.at(later.process, later.made_at)
    kind = str(later.facts.get("name") or "Adam")
    call = second.only_call(kind) if second is not None else None
    given = call.args[0] if call is not None and call.args else None
    plain = isinstance(given, ast.Call) and name_of(given.func) == "parameters"
    if second is None or given is None or not (plain or _joins(given)):
        return _example("first", f"second = torch.optim.{kind}({_others('model.parameters()')}, lr=1e-3)"), None
    changed = second.parsed.with_parts({given: _others(second.parsed.text_of(given))})
    made = first.parsed.statement if first is not None else None
    target = made.targets[0] if isinstance(made, ast.Assign) else None
    if first is None or not isinstance(target, ast.Name | ast.Attribute):
        return _example("first", second.dedented(changed)), None
    name = first.parsed.text_of(target)
    ends = first.line + first.text.count("\n")
    here, there = later.made_at, earlier.made_at
    together = here is not None and there is not None and here.file == there.file and here.function == there.function
    more = shares < int(later.facts.get("parameters") or 0)
    beside = together and more and ends < second.line and first.indent == second.indent
    edit = second.changed(changed) if beside and plain else None
    if edit is not None:
        edit = Diff(edit.file, edit.line, edit.removed, [second.indent + _held(name), *edit.added])
    return _example(name, second.dedented(changed)), edit


def _joins(given: ast.expr) -> bool:
    """Whether it puts parameters together, and not groups of them: `[*a, *b]`, `list(a) + list(b)`, `chain(a, b)`."""
    if isinstance(given, ast.BinOp):
        return _joins(given.left) and _joins(given.right)
    if isinstance(given, ast.Call):
        return name_of(given.func) in ("list", "chain", "parameters")
    return isinstance(given, ast.List) and bool(given.elts) and all(isinstance(one, ast.Starred) for one in given.elts)


def _example(name: str, line: str) -> str:
    return f"{_held(name)}\n{line}"


def _held(name: str) -> str:
    return f'held = {{id(p) for group in {name}.param_groups for p in group["params"]}}'


def _others(parameters: str) -> str:
    return f"[p for p in {parameters} if id(p) not in held]"
