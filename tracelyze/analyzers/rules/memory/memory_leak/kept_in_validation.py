"""Autograd graphs that pile up in validation passes alone, and the line there that keeps what a pass computed.

The training loop is not to blame then, whatever its lines store. The line is told by the text of the function that
validates: it stores, in what outlives the function, something computed from what the model gave, or hands it back.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.optimization import leaks
from tracelyze.analyzers.script import kept_tensors, line_edits, recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.names import names_in
from tracelyze.analyzers.script.remedy import example_of
from tracelyze.diagnosis import Diff, Finding, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

_NEARLY_ALL: Final = 0.9  # share of the growth: a step that calls the model more often than others adds a graph or two
_APART: Final = 2  # steps to a pass: where each step has one, the growth may be either's
_STATED: Final = (ast.Assign, ast.AugAssign, ast.AnnAssign)
_WITHOUT: Final = (
    "len",
    "size",
    "numel",
    "dim",
    "shape",
    "ndim",
    "argmax",
    "argmin",
    "argsort",
    "round",
    "sign",
    "data",
)
"""Functions and attributes whose results have no graph, whatever they are given."""
_KEEPS: Final = "Line {line} keeps what the pass computed, with its graph."
_HANDS_BACK: Final = "Line {line} hands back what the pass computed, with its graph."
_UNKNOWN: Final = "Something that the validation gives is kept with its graph."
_FIX: Final = (
    "Store it without its graph. Or validate under torch.no_grad(): then there is none, and less memory is used."
)
_FIX_ALONE: Final = "Validate under torch.no_grad(): then there is no graph to keep."
_CODE: Final = "with torch.no_grad():\n    ...  # all that validates"


@dataclass(frozen=True)
class KeptInValidation:
    """`place`: the line to change; `seen_at`: the one that calls the model; `each`: graphs that a pass leaves."""

    each: int
    cause: str
    fix: str
    code: str
    diff: Diff | None
    place: Location | None
    seen_at: Location | None

    @property
    def said(self) -> str:
        """When they pile up, and which line keeps them."""
        return (
            f"They pile up in validation alone, which runs with autograd on: {self.each:,} in each pass. {self.cause}"
        )

    def mended(self, finding: Finding) -> Finding:
        """The finding with what is to be done in the validation."""
        return replace(
            finding,
            fix=self.fix,
            fix_code=self.code,
            diff=self.diff,
            location=self.place or finding.location,
            seen_at=self.seen_at,
        )


def of(optimization: Optimization) -> KeptInValidation | None:
    """Where nearly all of the growth comes with passes that validate with autograd on."""
    process, evals = optimization.process, optimization.process.evals
    rows = leaks.rows_with_graphs(optimization)
    judged = validation.passes(process) & (evals["grad_mode"] == validation.GRAD) if len(evals) else np.zeros(0, bool)
    if not judged.any() or len(rows) < _APART:
        return None
    steps = optimization.steps
    rising = np.diff(steps["live_graphs"][rows])
    behind = np.isin(steps["step"][rows][1:], evals["after_step"][judged] + 1)
    growth = rising[rising > 0]
    if not len(growth) or behind.sum() * _APART > len(behind):
        return None
    if float(rising[behind & (rising > 0)].sum()) < _NEARLY_ALL * float(growth.sum()):
        return None
    each = round(float(np.median(rising[behind & (rising > 0)])))
    if each <= np.nanmedian(steps["model_calls"][rows]):
        return None  # as few as a loop that keeps the last loss of each epoch
    called = validation.place(process, int(np.argmax(judged)))
    return _told(process, each, called)


def _told(process: Process, each: int, called: Location | None) -> KeptInValidation:
    """By the line that keeps it; else by the one that calls the model, which is put under no_grad."""
    found = _line(process, called) if called is not None else None
    if found is not None:
        place, diff, cause = found
        added = example_of(diff) if diff is not None else _CODE
        return KeptInValidation(each, cause.format(line=place.line), _FIX, added, diff, place, called)
    shared = called is None or called.file_line in {one.file_line for one in process.locations("training-call")}
    diff = None if shared else line_edits.under(process, called, "with torch.no_grad():")
    code = "\n".join(diff.added) if diff is not None else _CODE
    return KeptInValidation(each, _UNKNOWN, _FIX_ALONE, code, diff, called, called)


def _line(process: Process, called: Location) -> tuple[Location, Diff | None, str] | None:
    """The only line of a function that validates which keeps a graph beyond it, the edit that keeps none, and words."""
    text = recorded_text.of_function(process, called)
    heads = [at for at, line in text.items() if re.match(r"\s*(?:async )?def ", line) and at <= called.line]
    if not heads or process.functions("backward") & {called.file_function}:
        return None  # where its own lists are made is not known
    first = max(heads)
    if any(at not in text for at in range(first, max(text) + 1)):
        return None
    statements = _statements(process, called, [at for at in sorted(text) if at > first])
    holding, own = _holding(statements, called), _assigned(statements)
    kept = [one for one in statements if _stores(one, holding, own)]
    given = [one for one in statements if isinstance(one.parsed.statement, ast.Return) and _is_held(one, holding)]
    if not kept and any(_hands_on(one, holding) for one in statements):
        return None
    for lines, words in ((kept, _KEEPS), (given, _HANDS_BACK)):
        if len(lines) == 1:
            (one,) = lines
            place = called.at(one.line, one.text)
            return place, one.changed(_detached(one, holding)), words
        if lines:
            return None
    return None


def _statements(process: Process, called: Location, lines: list[int]) -> list[own_statement.OwnStatement]:
    """What stands on these lines of the function, each statement once."""
    text, found = recorded_text.around(process, called), {}
    for at in lines:
        source = text.get(at, "").strip()
        one = own_statement.at(process, called.at(at, source)) if source else None
        if one is not None and one.is_whole:
            found[one.line] = one
    return list(found.values())


def _targets(one: own_statement.OwnStatement) -> set[str]:
    statement = one.parsed.statement
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", ast.Tuple([]))]
    return {
        name for target in targets if isinstance(target, ast.Name | ast.Tuple | ast.List) for name in names_in(target)
    }


def _holding(statements: list[own_statement.OwnStatement], called: Location) -> set[str]:
    """Names that hold a graph: what the model gave, and what is computed from it."""
    holding: set[str] = set()
    for _ in range(2):  # a loop hands on to lines above
        for one in statements:
            if not isinstance(one.parsed.statement, _STATED) or any(word in one.text for word in kept_tensors.FREED):
                continue
            value = one.parsed.statement.value
            given = one.line <= called.line <= one.line + one.text.count("\n")
            if given or (value is not None and _graph_of(value, holding)):
                holding |= _targets(one)
    return holding


def _graph_of(value: ast.expr, holding: set[str]) -> bool:
    """Whether a value is computed from a name that holds a graph: not from its size, a comparison or an index."""
    if isinstance(value, ast.Compare) or (isinstance(value, ast.Call) and name_of(value.func) in _WITHOUT):
        return False
    if isinstance(value, ast.Attribute):
        return value.attr not in _WITHOUT and _graph_of(value.value, holding)
    if isinstance(value, ast.Name):
        return value.id in holding
    return any(_graph_of(part, holding) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr))


def _assigned(statements: list[own_statement.OwnStatement]) -> set[str]:
    """Names that the function gives a value itself: they end with it."""
    return set().union(*(_targets(one) for one in statements if isinstance(one.parsed.statement, _STATED)), set())


def _stored(one: own_statement.OwnStatement) -> tuple[ast.expr, ast.expr] | None:
    """Into what a statement puts a value, and the value."""
    statement = one.parsed.statement
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        return statement.targets[0], statement.value
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Attribute | ast.Subscript):
        return statement.target, statement.value
    call = one.only_call("append")
    if call is None or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
        return None
    return (call.func.value, call.args[0]) if isinstance(statement, ast.Expr) and statement.value is call else None


def _stores(one: own_statement.OwnStatement, holding: set[str], own: set[str]) -> bool:
    """Whether it puts something with a graph into what outlives the function."""
    stored = _stored(one)
    if stored is None or any(word in one.text for word in kept_tensors.FREED):
        return False
    return _graph_of(stored[1], holding) and not names_in(stored[0]) & own


def _hands_on(one: own_statement.OwnStatement, holding: set[str]) -> bool:
    """Whether it calls something for what it does with a value that holds a graph, as a meter's update or a print."""
    call = getattr(one.parsed.statement, "value", None)
    if (
        not isinstance(one.parsed.statement, ast.Expr)
        or not isinstance(call, ast.Call)
        or name_of(call.func) == "print"
    ):
        return False
    given = [*call.args, *(each.value for each in call.keywords)]
    held = any(_graph_of(each, holding) for each in given)
    return held and name_of(call.func) != "append" and not any(word in one.text for word in kept_tensors.FREED)


def _is_held(one: own_statement.OwnStatement, holding: set[str]) -> bool:
    value = getattr(one.parsed.statement, "value", None)
    return value is not None and _graph_of(value, holding) and not any(word in one.text for word in kept_tensors.FREED)


def _detached(one: own_statement.OwnStatement, holding: set[str]) -> str:
    """The statement with what it keeps detached; of several values those that hold a graph."""
    stored = _stored(one)
    value = stored[1] if stored is not None else getattr(one.parsed.statement, "value", None)
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    held = [part for part in parts if part is not None and _graph_of(part, holding)]
    if not all(isinstance(part, ast.Name | ast.BinOp | ast.Subscript | ast.Attribute) for part in held):
        return ""
    return one.parsed.with_parts({part: f"{one.parsed.operand(part)}.detach()" for part in held})
