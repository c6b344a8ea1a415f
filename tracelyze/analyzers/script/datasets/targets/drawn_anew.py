"""Targets that the script draws at random for the loss alone, which no input can tell: a diffusion model whose noise is
drawn once for the input, and once more for the loss."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff

_DRAWS: Final = ("randn", "randn_like", "rand", "rand_like", "randint", "randint_like")
_REDUCE: Final = ("mean", "sum", "square", "pow", "abs", "sqrt", "norm")
_GIVEN: Final = ("input", "target", "label", "labels", "prediction", "predictions", "pred")
_NOISE: Final = re.compile(r"noise|eps", re.IGNORECASE)
_LOSSES: Final = ("loss", "crit", "mse", "bce", "nll", "l1", "huber", "entropy", "objective")
_EXAMPLE: Final = (
    "{drawn}  # one draw, for the input and for the loss\n"
    "noisy = add_noise(clean, t, {named})  # in place of what draws noise of its own"
)


@dataclass(frozen=True)
class DrawnAnew:
    """`named`: the target; `place`: the line that draws it; `dropped`: another line that drops a value, as it would be
    if it kept it under that name, and its number."""

    place: Location
    named: str
    dropped: tuple[int, str] | None
    diff: Diff | None = None

    @property
    def fix(self) -> str:
        """What to do, where the input holds noise of another draw; empty where the target is nothing of that kind."""
        if not _NOISE.search(self.named):
            return ""
        return (
            f"Compare the predictions with the noise that is in the input: draw {self.named} once, and hand it to what "
            "adds the noise, or have that return what it drew."
        )

    @property
    def example(self) -> str:
        """The line that drops a value, with it, else one draw for both; empty where no noise is drawn."""
        if not self.fix:
            return ""
        if self.dropped is None:
            return _EXAMPLE.format(drawn=self.place.source, named=self.named)
        line, text = self.dropped
        return f"# if what line {line} drops is the noise in the input; and without line {self.place.line}:\n{text}"

    def said(self) -> str:
        """What the script's text shows."""
        return (
            f" Line {self.place.line} draws {self.named} at random for the loss alone: no input says anything about it."
        )


def of(process: Process, loss: Location | None) -> DrawnAnew | None:
    """The draw of one side of the difference that a line computes, where no line in between uses it."""
    own = own_statement.at(process, loss)
    if loss is None or own is None:
        return None
    text = recorded_text.of_function(process, loss)
    for named in dict.fromkeys(_sides(own.parsed.statement)):
        if _uses(own.text, named) != 1:
            continue
        drawn, between = _drawn_above(text, own.line, named)
        if drawn is not None:
            place = loss.at(drawn, text[drawn])
            return DrawnAnew(place, named, _dropping(process, place, between, named))
    return None


def _drawn_above(text: dict[int, str], line: int, named: str) -> tuple[int | None, list[int]]:
    """The nearest line above that uses a name, if it does nothing but draw it, and the lines in between."""
    depth, between, number = recorded_text.indent_of(text.get(line, "")), list[int](), line - 1
    while (above := text.get(number)) is not None:
        if above.strip() and recorded_text.indent_of(above) < depth:
            return None, []  # the head of a block, which may draw once for many steps
        if _draws(above, named):
            default = text.get(number - 1, "").strip() == f"if {named} is None:"
            return (number, between) if default or recorded_text.indent_of(above) == depth else (None, [])
        if _uses(above, named):
            return None, []
        between.insert(0, number)
        number -= 1
    return None, []


def _draws(line: str, named: str) -> bool:
    """`noise = torch.randn_like(x)`, also as the default of a `noise` that may be given."""
    parsed = parsed_line.parse(line.strip())
    statement = parsed.statement if parsed is not None else None
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target, call = statement.targets[0], statement.value
    if isinstance(call, ast.IfExp):
        given = [one for one in (call.body, call.orelse) if not isinstance(one, ast.Name) or one.id != named]
        call = given[0] if len(given) == 1 else call
    holder = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    if not isinstance(call, ast.Call) or not isinstance(holder, ast.Name) or not isinstance(target, ast.Name):
        return False
    seeded = any(one.arg == "generator" for one in call.keywords)  # which may draw the same numbers elsewhere
    drawn = holder.id == "torch" and parsed_line.name_of(call.func) in _DRAWS
    return drawn and target.id == named and not seeded


def _uses(text: str, named: str) -> int:
    """How often a text names something; a line that is only a part of a statement counts by its words."""
    parsed = parsed_line.parse(text.strip())
    if parsed is None:
        return code_of(text).count(named)
    return sum(isinstance(node, ast.Name) and node.id == named for node in ast.walk(parsed.tree))


def _sides(statement: ast.stmt) -> Iterator[str]:
    """Names that a loss compares with something else."""
    value = getattr(statement, "value", None)
    for one, other in _compared(value) if isinstance(value, ast.expr) else ():
        for side, beside in ((one, other), (other, one)):
            if isinstance(side, ast.Name) and not isinstance(beside, ast.Constant):
                yield side.id


def _compared(value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The two sides of a difference, or what a function of two arguments is given, beneath sums, weights and means."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
        yield value.left, value.right
    elif isinstance(value, ast.BinOp):
        yield from _compared(value.left)
        yield from _compared(value.right)
    elif isinstance(value, ast.Call) and parsed_line.name_of(value.func) in _REDUCE:
        if parsed_line.is_function_of_torch(value.func) and value.args:
            yield from _compared(value.args[0])
        elif isinstance(value.func, ast.Attribute):
            yield from _compared(value.func.value)
    elif isinstance(value, ast.Call):
        given = [*value.args, *(one.value for one in value.keywords if one.arg in _GIVEN)]
        if len(given) == 2 and any(word in parsed_line.name_of(value.func).lower() for word in _LOSSES):
            yield given[0], given[1]


def _dropping(process: Process, drawn: Location, between: list[int], named: str) -> tuple[int, str] | None:
    """The only statement in between that takes several values and drops one, as it would be with that one."""
    text, found = recorded_text.of_function(process, drawn), []
    for number in between:
        parsed = parsed_line.parse(text[number].strip())
        statement = parsed.statement if parsed is not None else None
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        names = target.elts if isinstance(target, ast.Tuple) else []
        dropped = [one for one in names if isinstance(one, ast.Name) and one.id.startswith("_")]
        if parsed is not None and len(dropped) == 1:
            found.append((number, parsed.with_parts({dropped[0]: named})))
    return found[0] if len(found) == 1 else None
