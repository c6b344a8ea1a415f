"""The line that can have put NaN or Inf into the input: a division, a logarithm or a root where data are prepared; or
into what an evaluation measures: a logarithm or a root of what nothing bounds from below."""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.candidates import bounds
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.remade import finite
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Location

_DIVIDES: Final = re.compile(r"[^/]/[^/]|\bstd\s*\(")
_REPORTS: Final = re.compile(r"\s*(?:print|log\w*\.\w+|logging\.\w+|writer\.\w+|wandb\.\w+)\s*\(")
_QUIET: Final = re.compile(r"\s*with\s+(?:np|numpy)\.errstate\(.*[\"']ignore[\"']")
_DEFINES: Final = re.compile(r"\s*(?:async\s+)?def\b")
_HELD_OUT: Final = re.compile(r"(?:\b|_)(?:val|valid|validation|test|eval|dev|held_?out|holdout)(?:\b|_)")
_MAY: Final = (
    "{0.function} (line {0.line}) divides, or takes a logarithm or a root, of what nothing keeps away from 0: samples "
    "of validation may be 0, or all equal, where those of training are not."
)
_EDGES: Final = {
    "log1p": "below -1 that is NaN, and at -1 minus infinity",
    "log": "below 0 that is NaN, and at 0 minus infinity",
    "log2": "below 0 that is NaN, and at 0 minus infinity",
    "log10": "below 0 that is NaN, and at 0 minus infinity",
}
_BOUNDS: Final = re.compile(r"clamp|clip|relu|max|abs|exp|softplus|sigmoid|square|std|var|norm|sum|eps|1e-|\*\*")
_MEASURES: Final = (
    "Look at what line {0.line} takes the {1} of, first at what the model predicts: bound it from below by the least "
    "value that it can have, as 0 for a count or a price. If that is not it, check the inputs of every validation "
    "batch and the model's buffers."
)
_LOGARITHMS: Final = ("log", "log2", "log10")
_ROOTS: Final = re.compile(r"\b(?:log(?:2|10|1p)?|sqrt|rsqrt|pow|acos|arccos)\s*\(|\*\*")
_MODULE: Final = re.compile(r"class \w+\(.*Module\b")
_OF_MODEL: Final = re.compile(r"\b(?:Parameter|register_buffer)\s*\(")
_SAMPLES: Final = ("dataset", "collate", "sample", "batch-sample")  # roles of lines in what makes samples and batches
_STEPS: Final = ("backward", "training-call", "evaluation", "loss", "forward")
_OF_ZERO: Final = (
    "Line {0.line} takes the {1} of {2}, which is minus infinity where that is 0. Bound it from below by the least "
    "value above 0 that your data can have{3}."
)
_OF_EQUALS: Final = (
    "Line {0.line} divides by each sample's own {1}, which is 0 where all values that it is taken of are {2}: add an "
    "epsilon. If that is not it, values are missing before: fill them, or leave such samples out."
)
_OF_SOME_EQUALS: Final = (
    "Line {0.line} divides by each sample's own {1}, which is 0 where all values that it is taken of are {2}: the "
    "quotients are NaN or infinite then. Leave such samples out, or divide by no less than the least {1} that your "
    "data can have: an epsilon would make these values huge. If that is not it, values are missing before."
)
_LEAST: Final = "# in place of 1e-6, the least value above 0 that your data can have\n"
_SPREADS: Final = "Divide by no standard deviation that may be 0: add an epsilon, or take the statistics of all data."
_SPREADS_CODE: Final = (
    "scaled = (values - mean) / (std + 1e-6)  # finite where all values are equal, and their deviation is 0"
)


def line(process: Process) -> Location | None:
    """The first of these lines."""
    return min(lines_of(process), key=lambda one: one.line, default=None)


def lines_of(process: Process) -> list[Location]:
    """The only line that divides between the loop's `for` and its backward; else the only function's that divides, or
    takes a logarithm or a root, of what nothing keeps away from 0, and which is neither a module's forward, the loop's
    nor that of an evaluation. Of several the only one under which NumPy's warnings are off: others would have warned.
    """
    lines = [one for one in process.locations("singular") if _DIVIDES.search(one.source)]
    loop, end = process.location("loop"), process.location("backward")
    home = process.functions("backward", "evaluation")
    if loop is not None and end is not None:
        there = [one for one in lines if one.file_function == loop.file_function]
        inside = [one for one in there if loop.line < one.line < end.line]
        if inside:
            return _together(inside)
        home.add(loop.file_function)
    lines = [*lines, *process.locations("singular-array")]
    lines = [one for one in lines if one.function not in (script_lines.MODULE, "forward")]
    lines = [one for one in lines if one.file_function not in home and not _REPORTS.match(one.source)]
    opened = [one for one in lines if not bounds.is_bounded(process, one)]
    return _together(opened) or _together([one for one in opened if _is_quiet(process, one)])


class Prepared(NamedTuple):
    """What is behind a validation that is no number: sentences, what to change, an example, and the line."""

    told: str
    fix: str
    code: str
    line: Location


def behind_validation(process: Process, told: str) -> Prepared | None:
    """The line that :func:`for_validation` finds, with what it may do; `told`: what is known besides."""
    found = for_validation(process)
    return Prepared(f"{told} {_MAY.format(found)}", *remedy(process, found), found) if found is not None else None


def measured(process: Process, evaluation: Location | None, told: str) -> Prepared | None:
    """The only line of the function that evaluates which takes the logarithm of tensors, as an error of logarithms
    does; `evaluation`: where it calls the model, and `told`: what is known besides."""
    if evaluation is None or evaluation.file_function in process.functions("backward", "training-call"):
        return None
    places = {one.line: one for one in process.locations("singular") if one.file_function == evaluation.file_function}
    found: list[tuple[Location, str, OwnStatement, list[ast.expr]]] = []
    for line in places.values():
        own = own_statement.at(process, line)
        if own is None or _REPORTS.match(line.source) or bounds.is_bounded(process, line):
            continue
        for name in _EDGES:
            taken = [one for call in own.parsed.calls(name) if (one := _taken(call)) is not None]
            taken = [one for one in taken if not _BOUNDS.search(own.parsed.text_of(one))]
            found += [(line, name, own, taken)] if taken else []
    if len(found) != 1:
        return None
    line, name, own, taken = found[0]
    said = f"Line {line.line} takes the {name} of what it does not bound itself: {_EDGES[name]}."
    code = _predictions_bounded(evaluation, own, taken) if name == "log1p" else ""
    least = ", ".join(f"{one}.min()" for one in dict.fromkeys(map(own.parsed.operand, taken)))
    code = code or f"# right before line {line.line}\nprint({least})"
    return Prepared(f"{told} {said}", _MEASURES.format(line, name), code, line)


def _predictions_bounded(evaluation: Location, own: OwnStatement, taken: list[ast.expr]) -> str:
    """The statement with the variable bounded that holds what the model predicts; empty where it takes none such."""
    called = parsed_line.of(evaluation)
    assigned = called.statement.targets if called is not None and isinstance(called.statement, ast.Assign) else []
    names = [one.id for one in assigned if isinstance(one, ast.Name)]
    predicted = [one for one in taken if own.parsed.text_of(one) in names]
    if not predicted or not own.is_whole:
        return ""
    text = own.parsed.with_parts({one: f"{own.parsed.text_of(one)}.clamp_min(0)" for one in predicted})
    return f"# 0, if that is the least value that can be predicted, as of a count or a price\n{own.dedented(text)}"


def _taken(call: ast.Call) -> ast.expr | None:
    """The tensor that a logarithm is taken of: a number's, of the module math, raises an error instead of NaN."""
    if parsed_line.is_function_of_torch(call.func):
        return call.args[0] if len(call.args) == 1 and not call.keywords else None
    return call.func.value if isinstance(call.func, ast.Attribute) and not call.args else None


def logarithm(process: Process, rows: list[dict[str, Any]]) -> Prepared | None:
    """What made `rows` of batches not finite, if all that is not finite in them is minus infinity: a logarithm gives
    that of 0. The only line which takes one of what nothing bounds from below, and which neither evaluates nor is part
    of a model or of the loop."""
    if any(row["min"] != -math.inf or not math.isfinite(row["max"] or 0.0) for row in rows):
        return None
    places = [*process.locations("singular"), *process.locations("singular-array")]
    found: list[tuple[Location, ast.Call, ast.expr, OwnStatement]] = []
    for place in {one.file_line: one for one in places}.values():
        own = own_statement.at(process, place)
        # Minus infinity is hardly ever in a file: a function that nothing is seen to call may have made it.
        if own is None or _is_elsewhere(process, place, uncalled=False) or bounds.is_bounded(process, place):
            continue
        taken = [(call, _argument(call)) for call in own.parsed.calls(*_LOGARITHMS)]
        found += [(place, call, one, own) for call, one in taken if one is not None]
    if len({place.file_line for place, *_ in found}) != 1:
        return None
    line, call, given, own = found[0]
    name = parsed_line.name_of(call.func)
    fix = _OF_ZERO.format(line, name, own.parsed.text_of(given), ", or take log1p of it" if name == "log" else "")
    code = own.dedented(own.parsed.with_parts({one: _bounded(own, by, one) for _, by, one, _ in found}))
    return Prepared("All that is not finite in it is minus infinity.", fix, _LEAST + code if own.is_whole else "", line)


def spread(process: Process, rows: list[dict[str, Any]]) -> Prepared | None:
    """What can have made a few samples NaN: the only line of those that prepare data which divides each sample by a
    spread of its own, kept away from 0 by nothing. There is no logarithm or root beside it, and all others divide by
    what all samples share."""
    ends = [(row["min"], row["max"]) for row in rows]
    zeros = [lowest is not None and math.isnan(lowest) for lowest, _ in ends]  # 0 over 0
    others = [any(one is not None and math.isinf(one) for one in pair) for pair in ends]  # anything else over 0
    if not any(zeros) or not all(zero or other for zero, other in zip(zeros, others, strict=True)):
        return None
    places = {one.file_line: one for role in ("singular", "singular-array") for one in process.locations(role)}
    opened = [one for one in places.values() if not _is_elsewhere(process, one)]
    opened = [one for one in opened if not bounds.is_bounded(process, one)]
    found = [(one, name) for one in opened if (name := bounds.spread_of_each_sample(process, one))]
    if len(found) != 1 or any(_ROOTS.search(one.source) for one in opened):
        return None
    line, name = found[0]
    kind = "equal" if "std" in name or name == "ptp" else "0"
    if any(others):
        return Prepared("", _OF_SOME_EQUALS.format(line, name, kind), "", line)
    return Prepared("", _OF_EQUALS.format(line, name, kind), finite.divided(process, line), line)


def _is_elsewhere(process: Process, place: Location, uncalled: bool = True) -> bool:
    """Whether a line is not known to prepare data: it evaluates, reports, is part of a model, of the loop or of what a
    step calls, as a loss is. `uncalled`: what holds of a line in a function whose calls were not recorded."""
    text = recorded_text.of_file(process, place.file)
    heads = [at for at in sorted(text) if at < place.line and text[at][:1].strip()]
    if _REPORTS.match(place.source) or _OF_MODEL.search(place.source) or (heads and _MODULE.match(text[heads[-1]])):
        return True
    if place.function in ("__init__", script_lines.MODULE) or place.file_function in process.functions(*_SAMPLES):
        return _is_of_steps(process, place)
    called = re.compile(rf"(?<!\w){re.escape(place.function)}\s*\(")
    calls = [one for one in recorded_text.matching(process, called) if not _DEFINES.match(one.source)]
    above = _is_of_steps(process, place)
    loop = process.location("loop")
    if loop is not None and place.file_function == loop.file_function:
        return above
    return above or (uncalled and not calls) or any(_is_of_steps(process, one) for one in calls)


def _is_of_steps(process: Process, place: Location) -> bool:
    """Whether a line runs in a step or an evaluation, as far as its function tells; above its loop it does not."""
    loop = process.location("loop")
    if loop is not None and place.file_function == loop.file_function:
        return place.line >= loop.line
    return place.function == "forward" or place.file_function in process.functions(*_STEPS)


def _argument(call: ast.Call) -> ast.expr | None:
    """The tensor or array of which a call takes the logarithm; None of a number, a constant or a logger's `log`."""
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    if holder is None or call.keywords or parsed_line.name_of(holder) == "math":
        return None
    by_function = parsed_line.name_of(holder) in ("torch", "np", "numpy")
    taken = (
        call.args[0] if by_function and len(call.args) == 1 else holder if not by_function and not call.args else None
    )
    return None if taken is None or _BOUNDS.search(ast.unparse(taken)) else taken


def _bounded(own: OwnStatement, call: ast.Call, given: ast.expr) -> str:
    holder = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    if parsed_line.name_of(holder) in ("np", "numpy"):
        return f"{parsed_line.name_of(holder)}.maximum({own.parsed.text_of(given)}, 1e-6)"
    return f"{own.parsed.operand(given)}.clamp_min(1e-6)"


def for_validation(process: Process) -> Location | None:
    """The first of them that divides, if its function prepares what is evaluated: it reads samples, or a line calls it
    in an evaluation, or about data of a validation."""
    lines = sorted(lines_of(process), key=lambda one: one.line)
    found = next((one for one in lines if "/" in one.source), lines[0] if lines else None)
    if found is None or found.file_function in process.functions("dataset", "sample", "collate", "batch-sample"):
        return found
    called = re.compile(rf"\b{re.escape(found.function)}\s*\(")
    evaluating = process.functions("evaluation", "forward") - process.functions("backward", "training-call")
    calls = [one for one in recorded_text.matching(process, called) if not _DEFINES.match(one.source)]
    return found if any(one.file_function in evaluating or _HELD_OUT.search(one.source) for one in calls) else None


def _together(lines: list[Location]) -> list[Location]:
    """One for each number, in order; none where they do not stand together."""
    return list({one.line: one for one in lines}.values()) if script_lines.only_of(lines) is not None else []


def remedy(process: Process, place: Location | None) -> tuple[str, str]:
    """What to do about such a line, and the line with it."""
    several = sorted(lines_of(process), key=lambda one: one.line)
    if place is not None and len(several) > 1 and place in several:
        return _any_of(process, several)
    own = own_statement.at(process, place)
    divisor = _only_divisor(own) if own is not None else None
    if place is None or own is None or divisor is None or "std" in own.text:
        return _SPREADS, finite.divided(process, place) or _SPREADS_CODE
    held = own.parsed.text_of(divisor)
    sides = " or ".join(dict.fromkeys([*(own.parsed.text_of(one.left) for one in finite.log_quotients(own)), held]))
    does = f"divides by {held}" if sides == held else "takes the logarithm of a ratio"
    fix = f"Line {place.line} {does}: say what it is to be where {sides if sides != held else 'that'} is 0, or take a "
    fix += "measure without a ratio."
    return fix, _chosen(process, place, own, divisor) or finite.divided(process, place) or _SPREADS_CODE


def _any_of(process: Process, lines: list[Location]) -> tuple[str, str]:
    """What to do, and an example, for several lines of which each can have made the first NaN or Inf."""
    numbers = listed([one.line for one in lines], len(lines))
    fix = f"Lines {numbers} divide, or take a logarithm or a root. Print which of them makes the first NaN or Inf, and "
    fix += "say what it is to be there: an epsilon keeps both sides of a ratio away from 0."
    return fix, "\n".join(filter(None, (finite.divided(process, one) for one in lines))) or _SPREADS_CODE


def _chosen(process: Process, place: Location, own: OwnStatement, divisor: ast.expr) -> str:
    """An assigned quotient with 0 where the divisor is; of an array of NumPy's, or of a tensor."""
    made = own.parsed.statement
    if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.BinOp) or made.value.right is not divisor:
        return ""
    texts = recorded_text.around(process, place).values()
    held, whole = own.parsed.text_of(divisor), own.parsed.text_of(made.value)
    arrays = any(re.search(r"\b(?:np|numpy)\.", text) for text in texts)
    chosen = f"np.where({held} != 0, {whole}, 0.0)" if arrays else f"torch.where({held} != 0, {whole}, 0.0)"
    return own.dedented(own.parsed.with_parts({made.value: chosen}))


def _only_divisor(own: OwnStatement) -> ast.expr | None:
    found = [
        one.right for one in ast.walk(own.parsed.tree) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div)
    ]
    return found[0] if len(found) == 1 and _is_name(found[0]) else None


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)


def _is_quiet(process: Process, place: Location) -> bool:
    """Whether the block that the line stands in switches NumPy's warnings off."""
    lines = recorded_text.around(process, place)
    depth = recorded_text.indent_of(lines.get(place.line, ""))
    for at in range(place.line - 1, 0, -1):
        text = lines.get(at, "")
        if at not in lines or (text.strip() and recorded_text.indent_of(text) < depth):
            return _QUIET.match(text) is not None
    return False
