"""The line that gives a setting its value, where the line that uses it only names it: `lr: float = 3.0` in a dataclass,
for `Adam(model.parameters(), lr=cfg.lr)`.

That a line gives the name a constant is read off the text. It is named only where the constant is what was measured, no
other line gives that name the same constant, and the command line says nothing about it.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.recorded.run import location_of
from tracelyze.analyzers.script.editing import loader_arguments, own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Finding, Setting

Row = dict[str, Any]
_PLACES: Final = {
    "clip_grad_norm_": ("parameters", "max_norm"),
    "clip_grad_value_": ("parameters", "clip_value"),
    "set_detect_anomaly": ("mode",),
    "detect_anomaly": ("check_nan",),
    "randint": ("low", "high"),
    "DataLoader": loader_arguments.POSITIONS,
    "CosineAnnealingLR": ("optimizer", "T_max"),
    "OneCycleLR": ("optimizer", "max_lr"),
    "LinearLR": ("optimizer", "start_factor", "end_factor", "total_iters"),
    "get_linear_schedule_with_warmup": ("optimizer", "num_warmup_steps"),
    "get_cosine_schedule_with_warmup": ("optimizer", "num_warmup_steps"),
    "get_constant_schedule_with_warmup": ("optimizer", "num_warmup_steps"),
}
"""Arguments that calls are given by their places."""
_OPTIMIZER: Final = ("params", "lr")  # of all of torch's
_CASTS: Final = ("float", "int", "bool")
_LONGEST: Final = 159  # characters: of a longer line not all was recorded
_OPERATIONS: Final[dict[type[ast.operator], Callable[[float, float], Any]]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Pow: operator.pow,
}
_LARGEST_POWER: Final = 64  # of one that a script writes in place of a number
_ON_UNLESS_GIVEN: Final = re.compile(  # a flag that turns on by its name what it turns off
    r"(?!.*\bdefault\b)(?!.*\bdest\b).*[\"']--(?!(?:no|not|disable|without|skip|off)\b).*[\"']store_false[\"'].*"
)
_BOOLEANS: Final = {"True": True, "False": False}


def at_its_constant(finding: Finding, process: Process, arguments: Sequence[str] = ()) -> Finding:
    """The finding at the line that gives its setting the value, with the edit there; as it is where that line is not
    known. `arguments`: what frameworks call the setting."""
    setting, used = finding.setting, finding.location
    if setting is None or used is None:
        return finding
    names = _names_at(process, used, {*setting.names, *arguments} if setting.names else None)
    row = _definition(process, names, setting) or _definition(process, _called(process, setting), setting)
    if row is None or (row["file"], row["line"]) == used.file_line:
        return finding
    place = location_of(row)
    edit = edit_of(row, setting.instead)
    moved = replace(finding, location=place, seen_at=used, excerpt=None)
    if edit is None:
        return moved
    return replace(moved, diff=edit, fix_code=_as_example(edit.added[0]) or finding.fix_code)


def _called(process: Process, setting: Setting) -> set[str]:
    """Names of lines with constants that the setting may go by, where the line that uses it names none of them."""
    rows = [row for row in process.sites.records() if row["role"] == "constant" and setting.called]
    return {str(row["name"]) for row in rows if re.search(setting.called, f"{row['name']} {row['own_name']}")}


def _names_at(process: Process, place: Location, arguments: set[str] | None) -> set[str]:
    """The name by which the statement at a place gives one of these arguments, `lr` of `lr=args.lr`; all names that it
    uses where no argument is asked for."""
    own = own_statement.at(process, place)
    alone = parsed_line.parse(f"given({place.source.strip().rstrip(',)')})")  # one of the lines of a long call
    for line in (own.parsed if own is not None else None, alone):
        if arguments is None and line is not None:
            nodes = [node for node in ast.walk(line.tree) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript)]
            return {name for node in nodes if (name := _last_name(node))}
        calls = [node for node in ast.walk(line.tree) if isinstance(node, ast.Call)] if line is not None else []
        given = [value for call in calls for name, value in _given(call) if name in (arguments or ())]
        if given:
            return {name for one in given[:1] if len(given) == 1 and (name := _last_name(one))}
    return set()


def _given(call: ast.Call) -> Iterable[tuple[str, ast.expr]]:
    """The arguments of a call that are known by name."""
    called = name_of(call.func)
    holds = call.args and "param" in ast.unparse(call.args[0]) and called[:1].isupper()
    names = _PLACES.get(called, _OPTIMIZER if holds else ())
    starred = any(isinstance(one, ast.Starred) for one in call.args)
    yield from () if starred else zip(names, call.args, strict=False)
    yield from ((one.arg, one.value) for one in call.keywords if one.arg is not None)


def _last_name(node: ast.expr) -> str | None:
    """`lr` of `lr`, `args.lr`, `config["lr"]` and `float(args.lr)`."""
    if isinstance(node, ast.Call) and name_of(node.func) in _CASTS and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value if isinstance(node.slice.value, str) else None
    return name_of(node) or None


def _definition(process: Process, names: set[str], setting: Setting) -> Row | None:
    """The only line that gives one of these names the constant that was measured."""
    rows = [row for row in process.sites.records() if row["role"] == "constant" and row["name"] in names]
    fitting = {(row["file"], row["line"]): row for row in rows if fits(str(row["value"]), setting)}
    names = {*(str(row[name]) for row in fitting.values() for name in ("name", "own_name"))}
    if len(fitting) != 1 or any(is_on_the_command_line(process, one) for one in names):
        return None
    (row,) = fitting.values()
    flags = re.findall(r"[\"'](-\w)[\"']", str(row["source"]))
    return None if any(str(word).startswith(tuple(flags)) for word in _words(process) if flags) else row


def fits(text: str, setting: Setting) -> bool:
    """Whether a constant, as it is written, is what was measured."""
    if any(_is_written(text, value) for value in setting.values):
        return True
    number = _number(text)
    if number is None:
        return False
    anything = not (setting.values or setting.ranges)
    return anything or ("." in text and any(low <= number <= high for low, high in setting.ranges))


def is_number(text: str, value: int) -> bool:
    """Whether a constant, as it is written, is this number."""
    return _is_written(text, value)


def _is_written(text: str, value: float | bool) -> bool:
    """Whether a constant, as it is written, is this value."""
    if isinstance(value, bool):
        return _BOOLEANS.get(text) is value
    number = _number(text.strip("\"'"))
    return number is not None and math.isclose(number, value, rel_tol=1e-6)


def _number(text: str) -> float | None:
    """What a constant is, or a product, quotient, sum or power of some: `4 * 256`."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return _computed(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, KeyError):
        return None


def _computed(node: ast.expr) -> float:
    if isinstance(node, ast.BinOp):
        left, right = _computed(node.left), _computed(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) > _LARGEST_POWER:
            raise ValueError
        return float(_OPERATIONS[type(node.op)](left, right))
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return float(node.value)
    raise ValueError


def _words(process: Process) -> list[str]:
    words = process.facts.get("argv")
    return [str(word) for word in words[1:]] if isinstance(words, list) else []


def is_on_the_command_line(process: Process, name: str) -> bool:
    """Whether a word of it names the setting: `--lr`, `--lr=3`, `optimizer.lr=3`, `--learning` for `learning_rate`."""
    for word in _words(process):
        option = re.fullmatch(r"(?P<dashes>-{0,2})(?P<name>[A-Za-z][\w.\-/]*)(?P<given>=.*)?", word, re.DOTALL)
        if option is None or not (option["dashes"] or option["given"]):
            continue
        said = re.split(r"[./]", option["name"].replace("-", "_"))[-1].lower().removeprefix("no_")
        if said == name.lower() or (option["dashes"] == "--" and said and name.lower().startswith(said)):
            return True
    return False


def edit_of(row: Row, instead: str) -> Diff | None:
    """The line with another value, where the old one stands on it once, or once behind the name."""
    lines = str(row["excerpt"] or "").split("\n")
    at = int(row["line"]) - int(row["excerpt_line"] or 0)
    text = lines[at] if row["excerpt"] and 0 <= at < len(lines) else ""
    if not instead or not text or len(text) > _LONGEST:
        return None
    if instead == "False" and _ON_UNLESS_GIVEN.fullmatch(text):
        return Diff(row["file"], row["line"], [text], [text.replace("store_false", "store_true")])
    value = rf"(?<![\w.])(?P<value>{re.escape(row['value'])})(?![\w.])"
    behind = rf"\b{re.escape(row['own_name'] or '')}\b[\"'\]]{{0,2}}(?:\s*:[^=,\"']*=|\s*[=:])\s*{value}"
    for pattern in (behind, rf"\bdefault\s*=\s*{value}", value):
        found = list(re.finditer(pattern, text))
        if len(found) == 1:
            begin, end = found[0].span("value")
            return Diff(row["file"], row["line"], [text], [text[:begin] + instead + text[end:]])
    return None


def _as_example(line: str) -> str:
    """The line as an example, where it is a whole statement."""
    text = line.strip()
    try:
        ast.parse(text)
    except SyntaxError:
        return ""
    return "" if text.endswith(",") else text
