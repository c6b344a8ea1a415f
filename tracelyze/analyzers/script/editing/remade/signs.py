"""The statement of a policy's loss with its sign turned: a minus in front of what cross_entropy gave, which is one
already, or none in front of the clipped objective of PPO, which is to grow; and an entropy that is added."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.loss import assignment
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff

_GIVES_MINUS: Final = ("cross_entropy", "nll_loss")
_LEAST: Final = ("min", "minimum")
_BOUNDS: Final = re.compile(r"\bcla(?:mp|ip)\s*\(|\bclip\w*\s*\(")
_ENTROPY: Final = re.compile(r"^entrop|(?:^|_)entrop(?:y|ies)(?:_|$)|^ents?$|^ent_(?:loss|term|bonus)$")
_TURNED: Final = re.compile(r"-\s*(?:\w+\.)*(?:cross_entropy|nll_loss|\w*criterion\w*|\w*loss\w*)\s*\(")


def without_minus(process: Process, line: Location | None) -> str:
    """The statement without the minus in front of all that it assigns; empty where it has none, or where the training
    called no cross_entropy that keeps the samples apart, or one with a minus in front of it."""
    calls = process.tables["loss_calls"].records()
    apart = [row for row in calls if row["training"] and row["reduction"] == "none"]
    own = own_statement.at(process, line) if apart and line is not None else None
    value = getattr(own.parsed.statement, "value", None) if own is not None and own.is_whole else None
    if own is None or not isinstance(value, ast.UnaryOp) or not isinstance(value.op, ast.USub):
        return ""
    called = [process.site(row["site"]) for row in apart]
    if any(row["function"] not in _GIVES_MINUS for row in apart) or any(
        at and _TURNED.search(at.source) for at in called
    ):
        return ""
    return own.dedented(own.parsed.with_parts({value: own.parsed.text_of(value.operand)}))


def with_minus(process: Process, line: Location | None) -> str:
    """`loss = torch.min(ratio * advantage, clipped * advantage).mean()` with the minus that it lacks, also where the
    smaller one has a name; empty for anything else."""
    own = own_statement.at(process, line)
    made = own.parsed.statement if own is not None and own.is_whole else None
    if own is None or line is None or not isinstance(made, ast.Assign) or not isinstance(made.value, ast.Call):
        return ""
    mean = made.value
    if name_of(mean.func) != "mean" or not isinstance(mean.func, ast.Attribute):
        return ""
    averaged: ast.expr | None = mean.args[0] if mean.args else mean.func.value
    if isinstance(averaged, ast.Name):
        averaged = _assigned(process, line, averaged.id)
    if not isinstance(averaged, ast.Call) or name_of(averaged.func) not in _LEAST:
        return ""
    turned = [one for one in ast.walk(averaged) if isinstance(one, ast.UnaryOp) and isinstance(one.op, ast.USub)]
    bounded = _BOUNDS.search(ast.unparse(averaged))
    return own.dedented(own.parsed.with_parts({mean: f"-{own.parsed.text_of(mean)}"})) if bounded and not turned else ""


def entropy_subtracted(process: Process, backward: Location | None) -> tuple[Location, Diff] | None:
    """The line that adds the only term named after an entropy to the loss of a backward, with a minus in front of it:
    `loss = policy_loss + 0.5 * value_loss + beta * entropy`, or `loss += beta * entropy`."""
    place = assignment.of(process, backward)
    own = own_statement.at(process, place)
    if own is None or place is None:
        return None
    made = own.parsed.statement
    if isinstance(made, ast.AugAssign) and isinstance(made.op, ast.Add) and _is_entropy(made.value):
        diff = own.changed(own.text.replace("+=", "-=", 1))
        return (place, diff) if diff is not None else None
    term = made.value if isinstance(made, ast.Assign) else None
    added = []
    while isinstance(term, ast.BinOp) and isinstance(term.op, (ast.Add, ast.Sub)):
        if isinstance(term.op, ast.Add) and _is_entropy(term.right):
            added.append(term)
        term = term.left
    if len(added) != 1:
        return None
    (whole,) = added
    text, left = own.parsed.text_of(whole), own.parsed.text_of(whole.left)
    begin = text.index(left) + len(left)
    end = text.rindex(own.parsed.text_of(whole.right))
    if text[begin:end].count("+") != 1:
        return None
    turned = text[:begin] + text[begin:end].replace("+", "-") + text[end:]
    diff = own.changed(own.parsed.with_parts({whole: turned}))
    return (Location(own.file, own.line, place.function, place.source), diff) if diff is not None else None


def _is_entropy(term: ast.expr) -> bool:
    """Whether a term holds something that is called an entropy, and no minus, of which one turns its sign already."""
    names = {name_of(one) for one in ast.walk(term) if isinstance(one, (ast.Name, ast.Attribute))}
    signs = [one for one in ast.walk(term) if isinstance(one, (ast.USub, ast.Sub))]
    return not signs and any(_ENTROPY.search(name) for name in names)


def _assigned(process: Process, line: Location, name: str) -> ast.expr | None:
    """What the function gives this name above the line, a single time."""
    lines = recorded_text.of_function(process, line)
    at = [one for one in lines if one < line.line and re.match(rf"\s*{re.escape(name)}\s*=(?!=)", lines[one])]
    place = line.at(at[0], lines[at[0]]) if len(at) == 1 else None
    own = own_statement.at(process, place)
    return own.parsed.statement.value if own is not None and isinstance(own.parsed.statement, ast.Assign) else None
