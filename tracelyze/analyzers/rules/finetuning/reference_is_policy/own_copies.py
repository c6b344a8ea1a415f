"""A copy of the model, in the words of the script's own line that makes what should have been one."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_names, own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

_NAMES: Final = (ast.Name, ast.Attribute)
REFERENCES: Final = frozenset(  # as the collector knows them: collectors/program/lines/named/roles.py
    {"ref", "ref_model", "ref_net", "ref_policy", "reference", "reference_model", "reference_policy", "policy_ref"}
) | {"model_ref"}


_WRAPS: Final = re.compile(r"^\s*[\w.]+\s*=\s*(?:peft\.)?get_peft_model\(")


class Wrapped(NamedTuple):
    """The line that puts adapters into the model that is then called as the reference, with the words about it."""

    place: Location
    why: str
    fix: str
    code: str


def made(process: Process) -> Location | None:
    """The only line that makes a reference. What keeps the one that it was given, under the same name, makes none, nor
    does what asks a reference (`reference = score(self.reference, texts)`): they are named where no other line does."""
    lines = process.locations("reference")
    given = [one for one in lines if not _keeps(one.source)]
    return script_lines.only_of([one for one in given if not _asks(one.source)] or given or lines)


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


def _asks(source: str) -> bool:
    """Whether what a line assigns comes of a call that is given a reference, or of one that is there already."""
    line = parsed_line.parse(source)
    made = line.statement if line is not None else None
    calls = [one for one in ast.walk(made.value) if isinstance(one, ast.Call)] if isinstance(made, ast.Assign) else []
    return any(_last(part) in REFERENCES for call in calls for part in ast.walk(call) if isinstance(part, _NAMES))


def _last(node: ast.expr) -> str:
    """The last name of a variable or an attribute; empty for anything else."""
    return ast.unparse(node).rpartition(".")[2] if isinstance(node, _NAMES) else ""


def of_model(process: Process, place: Location | None, called: Location | None = None) -> str:
    """A copy of the model, by the names that the script's own line has for both. Where no line makes the reference, it
    is the model itself that is `called` as one: that line with the copy in its place."""
    line = parsed_line.of(place)
    made = line.statement if line is not None else None
    reference, model = "reference", "model"
    inside = wrapped(process, called) if place is None else None
    if inside is not None:
        return inside.code
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


def wrapped(process: Process, called: Location | None) -> Wrapped | None:
    """The only line that puts adapters into a model, where the line that calls the reference is handed that model."""
    lines = recorded_text.matching(process, _WRAPS)
    own, using = (own_statement.at(process, one) for one in (lines[0] if len(lines) == 1 else None, called))
    call = own.only_call("get_peft_model") if own is not None else None
    if own is None or using is None or called is None or call is None or not call.args:
        return None
    base, policy = (ast.unparse(one) for one in (call.args[0], *getattr(own.parsed.statement, "targets", ())[:1]))
    handed = {one: "reference" for one in _arguments(using.parsed.tree) if ast.unparse(one) == base}
    if not isinstance(call.args[0], _NAMES) or base == policy or not handed:
        return None
    return Wrapped(
        lines[0],
        f" get_peft_model in line {own.line} puts the adapters into {base} itself.",
        f"Copy {base} above line {own.line}, for a reference in eval mode and without gradients. Or compute the "
        f"reference by {policy} itself, in a block `with {policy}.disable_adapter():`.",
        f"import copy  # at the top of the file\n\nreference = copy.deepcopy({base}).eval().requires_grad_(False)"
        f"  # above line {own.line}\n\n{using.dedented(using.parsed.with_parts(handed))}  # line {called.line}, and "
        f"so wherever {base} is the reference",
    )


def _arguments(tree: ast.AST) -> list[ast.expr]:
    """What calls in a statement are given by place or name, and what they call."""
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    return [given for one in calls for given in (one.func, *one.args, *(named.value for named in one.keywords))]


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
    if called.file_line in {one.file_line for one in process.locations("training-call")}:
        return "", f"# line {called.line} calls both models: hand it {reference} where the reference is computed"
    own = own_statement.at(process, called)
    names = own_names.trained(process) | {own_names.model_at(process, called)}
    nodes = [one for one in ast.walk(own.parsed.tree) if isinstance(one, _NAMES)] if own is not None else []
    models: dict[ast.expr, str] = {one: reference for one in nodes if ast.unparse(one) in names}
    known = {ast.unparse(one) for one in models}
    if (
        own is None
        or len(known) != 1
        or _makes_the_loss(process, own, called)
        or any(f"{one}," in _head(process, called) for one in known)
    ):
        return "", f"# and in line {called.line}, which calls the model as its own reference: {reference} in its place"
    return known.pop(), f"{own.dedented(own.parsed.with_parts(models))}  # line {called.line}"


def _makes_the_loss(process: Process, own: OwnStatement, place: Location) -> bool:
    """Whether backward is called on what a statement assigns: it is handed the trained model as well."""
    targets = own.parsed.statement.targets if isinstance(own.parsed.statement, ast.Assign) else []
    names = {ast.unparse(one) for target in targets for one in ast.walk(target) if isinstance(one, _NAMES)}
    lines = "\n".join(recorded_text.of_function(process, place).values())
    return any(
        re.search(rf"(?<![\w.]){re.escape(one)}\.backward\(|\bbackward\({re.escape(one)}\b", lines) for one in names
    )


def _head(process: Process, place: Location) -> str:
    """What the function takes, with a comma behind each name; empty where its first line was not recorded."""
    lines = recorded_text.of_function(process, place).values()
    head = next((one for one in lines if one.lstrip().startswith(f"def {place.function}(")), "")
    return head.partition("(")[2].replace(")", ",")
