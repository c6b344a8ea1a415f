"""Two optimizers over the same tensors: the line that makes the later one, without those that the earlier one holds."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import called, recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization


_TIES: Final = re.compile(r"\s*\w+\.(?P<one>[\w.]+\.weight)\s*=\s*\w+\.(?P<other>[\w.]+\.weight)\s*(?:#.*)?")
_TO_ONE: Final = "Give each tensor to one optimizer: the shared part to the first, or all to one, in several groups."
_NOT_FOR_MUON: Final = (
    "Leave the shared tensors out of what Muon is given: it is meant for the matrices of hidden layers. Embeddings, "
    "and heads that are tied to them, are for the other optimizer, which holds them already."
)


def left_out(later: Optimization, earlier: Optimization, shares: int) -> tuple[str, Diff | None]:
    """An example, and the edit where both are made in one function and the later one holds more than what is shared."""
    first = own_statement.at(earlier.process, earlier.made_at)
    second = own_statement.at(later.process, later.made_at)
    kind = str(later.facts.get("name") or "Adam")
    call = second.only_call(kind) if second is not None else None
    given = call.args[0] if call is not None and call.args else None
    plain = isinstance(given, ast.Call) and name_of(given.func) == "parameters"
    if second is None or given is None or isinstance(given, ast.Starred):
        return _example("first", f"second = torch.optim.{kind}({_others('model.parameters()')}, lr=1e-3)"), None
    tensors = plain or _joins(given) or _names_tensors(later, given)
    held = second.parsed.text_of(given) if tensors else "model.parameters()"
    changed = second.parsed.with_parts({given: _others(held)})
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


def effect(later: Optimization, earlier: Optimization) -> str:
    """What becomes of tensors that both step."""
    if later.facts.get("name") == earlier.facts.get("name"):
        return "Each gradient is applied twice: the learning rates of both add up."
    return "Two rules apply each gradient, each with its own learning rate."


def tied(optimization: Optimization, names: str) -> str:
    """A sentence about a shared tensor that has a second name, by the line of the script that gives it one: a filter by
    names meets but one of both. Empty where no such line is known to have run."""
    process = optimization.process
    parameters = {row["parameter"] for row in process.tables["parameters"].records()}
    for place in recorded_text.matching(process, _TIES):
        found = _TIES.fullmatch(code_of(place.source).strip())
        both = (found["one"], found["other"]) if found else ("", "")
        for name, second in (both, both[::-1]):
            if name in names.split(", ") and name in parameters and second not in parameters | {name}:
                if _is_conditional(recorded_text.of_file(process, place.file), place.line):
                    return ""
                return f" {name} is also {second}: line {place.line} ties them."
    return ""


def _is_conditional(text: dict[int, str], line: int) -> bool:
    """Whether the line stands under a condition, or what it stands under was not recorded."""
    depth, at = recorded_text.indent_of(text[line]), line
    while (above := text.get(at - 1)) is not None:
        at -= 1
        if above.strip() and recorded_text.indent_of(above) < depth:
            return not above.lstrip().startswith(("def ", "class "))
    return True


def remedy(later: Optimization, earlier: Optimization, shares: int, names: str) -> Remedy:
    """The later one without what both hold; Muon without it, where that is embeddings, or weights tied to them."""
    found = _without_muon(later, earlier, names)
    code, diff = left_out(later, earlier, shares)
    return found or Remedy(_TO_ONE, code, later.made_at, diff)


def _without_muon(later: Optimization, earlier: Optimization, names: str) -> Remedy | None:
    muon = [one for one in (later, earlier) if one.facts.get("name") == "Muon"]
    shared = [name for name in names.split(", ") if name]
    tables = {row["module"] for row in later.process.tables["modules"].records() if row["kind"] == "Embedding"}
    if len(muon) != 1 or not shared or any(name.removesuffix(".weight") not in tables for name in shared):
        return None
    own = own_statement.at(muon[0].process, muon[0].made_at)
    call = own.only_call("Muon") if own is not None else None
    given = call.args[0] if call is not None and call.args else None
    if own is None or given is None:
        return None
    text, models = own.parsed.text_of(given), list(later.process.models.records())
    holder = called.name_in(later.process, models[0]["model"], None) if len(models) == 1 else None
    tensors = [f"{holder or 'model'}.{name}" for name in shared]
    kept = f"p is not {tensors[0]}" if len(tensors) == 1 else f"all(p is not one for one in ({', '.join(tensors)}))"
    others = f"[p for p in {text} if {kept}]"
    if isinstance(given, ast.Name):
        return Remedy(_NOT_FOR_MUON, f"{text} = {others}  # above the line that makes Muon", muon[0].made_at)
    return Remedy(_NOT_FOR_MUON, own.dedented(own.parsed.with_parts({given: others})), muon[0].made_at)


def _joins(given: ast.expr) -> bool:
    """Whether it puts parameters together, and not groups of them: `[*a, *b]`, `list(a) + list(b)`, `chain(a, b)`."""
    if isinstance(given, ast.BinOp):
        return _joins(given.left) and _joins(given.right)
    if isinstance(given, ast.Call):
        return name_of(given.func) in ("list", "chain", "parameters")
    return isinstance(given, ast.List) and bool(given.elts) and all(isinstance(one, ast.Starred) for one in given.elts)


def _names_tensors(optimization: Optimization, given: ast.expr) -> bool:
    """Whether it is a name for tensors, and not for groups of them, by each line of the function that assigns it."""
    if not isinstance(given, ast.Name) or optimization.made_at is None:
        return False
    assigns = re.compile(rf"\s*{re.escape(given.id)}\s*\+?=(?!=)")
    text = recorded_text.of_function(optimization.process, optimization.made_at)
    lines = [parsed_line.parse(line.strip()) for line in text.values() if assigns.match(line)]
    made = [line.statement.value for line in lines if line is not None and isinstance(line.statement, ast.Assign)]
    return bool(made) and len(made) == len(lines) and all(_joins(one) or _picks(one) for one in made)


def _picks(given: ast.expr) -> bool:
    """Whether it lists some of a model's parameters: `[p for n, p in model.named_parameters() if "head" in n]`."""
    if not isinstance(given, ast.ListComp) or len(given.generators) != 1 or not isinstance(given.elt, ast.Name):
        return False
    source, target = given.generators[0].iter, given.generators[0].target
    of = name_of(source.func) if isinstance(source, ast.Call) else ""
    if of == "named_parameters":
        target = target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else target
    named = isinstance(target, ast.Name) and target.id == given.elt.id
    return named and of in ("parameters", "named_parameters")


def _example(name: str, line: str) -> str:
    return f"{_held(name)}\n{line}"


def _held(name: str) -> str:
    return f'held = {{id(p) for group in {name}.param_groups for p in group["params"]}}'


def _others(parameters: str) -> str:
    return f"[p for p in {parameters} if id(p) not in held]"
