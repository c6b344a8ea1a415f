"""Edits of one line that a rule knows to be wrong in itself: an argument, a function's name, a call too many.

As in :mod:`edits`, every function answers None where it is not sure: where the line is not the one that ran, or holds
what is to be changed never or more than once.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_expressions, own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import ParsedLine, is_function_of_torch, is_operand, name_of
from tracelyze.analyzers.script.settings import chosen_by_argument
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_SOFTMAXES: Final = ("softmax", "log_softmax", "Softmax", "LogSoftmax")
DROPOUTS: Final = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_OF_LOSSES: Final = re.compile(r"\b(?:cross_entropy|nll_loss|\w*loss\w*|criterion)\(")
_OF_CLASSES: Final = re.compile(r"loss|crit|bce|entropy", re.IGNORECASE)
_MEASURES: Final = re.compile(r"loss|crit|mse|mae|l1|huber|error", re.IGNORECASE)
_SHIFTED: Final = (
    "inputs, targets = tokens[:, :-1], tokens[:, 1:]\n"
    "loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())"
)
_ARITHMETIC: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.MatMult)


def log_softmax(process: Process, place: Location | None) -> Diff | None:
    """The softmax of the line as log_softmax."""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls(*_SOFTMAXES))
        logarithm = {"softmax": "log_softmax", "Softmax": "LogSoftmax"}.get(name_of(call.func)) if call else None
        if not call or not logarithm or (place and _has_a_name(process, place, line, call)):
            return None
        return _renamed(line, call.func, logarithm)

    return _edit(process, place, changed)


def logarithm_of_input(process: Process, place: Location | None, function: str) -> Diff | None:
    """The call of this loss function with the logarithm, kept from zero, of what it is given."""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls(function))
        given = call and _argument(call, 0, "input")
        return line.with_parts({given: f"{line.operand(given)}.clamp_min(1e-12).log()"}) if given else None

    return _edit(process, place, changed)


def softmax_dimension(process: Process, place: Location | None, dimension: int) -> Diff | None:
    """The softmax of the line over this dimension, whether the line says over which one it runs or leaves it out."""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls(*_SOFTMAXES))
        if call is None:
            return None
        first = 1 if is_function_of_torch(call.func) and name_of(call.func).endswith("softmax") else 0
        given = _argument(call, first, "dim")
        left_out = given is None and len(call.args) == first and not call.keywords
        if left_out and (first or name_of(call.func).endswith("Softmax")):
            return line.with_argument(call, "dim", str(dimension))
        return line.with_parts({given: str(dimension)}) if given and _is_integer(given) else None

    return _edit(process, place, changed)


def without_activation(process: Process, place: Location | None, name: str) -> Diff | None:
    """The line of the model without its last activation, `Softmax` or `Sigmoid`: an identity in place of the module,
    what the function was given in place of its call. Not where an argument asks for it (`chosen_by_argument`)."""

    def changed(line: ParsedLine) -> str | None:
        if chosen_by_argument.layer(process, place, name, name.lower()):
            return None
        module = _only(line.calls(name))
        if module and isinstance(module.func, ast.Attribute) and name_of(module.func.value) == "nn":
            return line.with_parts({module: f"{line.text_of(module.func.value)}.Identity()"})
        call = _only(line.calls(name.lower()))
        given = own_expressions.squashed(call) if call else None
        if not call or given is None:
            return None
        whole = is_operand(given) or not _is_computed_with(line, call)
        named = place is not None and _has_a_name(process, place, line, call)
        return line.with_parts({call: line.text_of(given)}) if whole and not named else None

    return _edit(process, place, changed)


def without_retained_graph(process: Process, place: Location | None) -> Diff | None:
    """The backward without retain_graph=True; not where a graph of the backward itself needs what is retained, nor
    where a condition says which backwards retain theirs."""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls("backward", "manual_backward"))
        named = {one.arg: line.text_of(one.value) for one in call.keywords} if call else {}
        keeps, again = named.pop("retain_graph", ""), named.get("create_graph", "False")
        if not call or keeps != "True" or again != "False" or None in named:
            return None
        kept = ", ".join([*map(line.text_of, call.args), *(f"{name}={value}" for name, value in named.items())])
        return line.with_parts({call: f"{line.text_of(call.func)}({kept})"})

    return _edit(process, place, changed)


def clipped_at(process: Process, place: Location | None, limit: str) -> Diff | None:
    """The clip of the line with another max_norm."""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls("clip_grad_norm_"))
        given = call and _argument(call, 1, "max_norm")
        return line.with_parts({given: limit}) if given else None

    return _edit(process, place, changed)


def given_copies(process: Process, place: Location | None) -> Diff | None:
    """A load with assign=True that is given copies of the other model's tensors."""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls("load_state_dict"))
        states = call and _argument(call, 0, "state_dict")
        if not isinstance(states, ast.Call) or name_of(states.func) != "state_dict":
            return None
        copies = f"{{name: tensor.clone() for name, tensor in {line.text_of(states)}.items()}}"
        return line.with_parts({states: copies})

    return _edit(process, place, changed)


def kept_from_zero(process: Process, place: Location | None) -> Diff | None:
    """The only square root of the line, of something that is never exactly zero."""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls("sqrt"))
        if call is None or not isinstance(call.func, ast.Attribute) or name_of(call.func.value) in ("math", "np"):
            return None
        if not is_function_of_torch(call.func):
            return line.with_parts({call: f"{line.operand(call.func.value)}.add(1e-8).sqrt()"})
        given = call.args[0] if len(call.args) == 1 else None
        sums = isinstance(given, ast.BinOp) and isinstance(given.op, _ARITHMETIC)
        if given is None or not (sums or is_operand(given)):
            return None
        return line.with_parts({given: f"{line.text_of(given)} + 1e-8"})

    return _edit(process, place, changed)


def logarithm_above_zero(process: Process, place: Location | None) -> Diff | None:
    """The only logarithm of the line, of something that is never zero."""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls("log", "log2", "log10"))
        if call is None or not isinstance(call.func, ast.Attribute) or name_of(call.func.value) in ("math", "np"):
            return None
        if not is_function_of_torch(call.func):
            given = call.func.value
            return line.with_parts({given: f"{line.operand(given)}.clamp(min=1e-6)"}) if not call.args else None
        only = call.args[0] if len(call.args) == 1 else None
        return line.with_parts({only: f"{line.operand(only)}.clamp(min=1e-6)"}) if only is not None else None

    return _edit(process, place, changed)


def power_above_zero(process: Process, place: Location | None) -> Diff | None:
    """The only power of the line, of something that is never zero."""
    return _edit(process, place, own_expressions.power_above_zero)


def called_whole(process: Process, place: Location | None) -> Diff | None:
    """`model(x)` in place of `model.forward(x)`."""
    return _edit(process, place, own_expressions.called_whole)


def anomalies_unseen(process: Process, place: Location | None) -> Diff | None:
    """Anomaly detection switched off."""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls("set_detect_anomaly"))
        given = call and _argument(call, 0, "mode")
        return line.with_parts({given: "False"}) if isinstance(given, ast.Constant) and given.value is True else None

    return _edit(process, place, changed)


def drawn_below(process: Process, place: Location | None, end: str) -> Diff | None:
    """The line that draws from less, with randint up to `end`."""
    own = own_statement.at(process, place)
    return own.changed(_drawn_to(own, end)) if own is not None else None


def example_drawn_below(process: Process, place: Location | None, name: str, end: str) -> str:
    """The script's own line that draws, up to `end`; in words of its own where it is not known."""
    own = own_statement.at(process, place)
    line = own.dedented(_drawn_to(own, end) or "") if own is not None else ""
    return line or f"{name} = torch.randint(0, {end}, (inputs.size(0),), device=inputs.device)"


def _drawn_to(own: OwnStatement, end: str) -> str | None:
    call = own.only_call("randint", "randint_like")
    if call is None or not is_function_of_torch(call.func) or not _is_what_is_assigned(own, call):
        return None
    named = {one.arg: one.value for one in call.keywords}
    among = [] if name_of(call.func) == "randint" else call.args[:1]  # what randint_like is shaped as
    bounds = call.args[len(among) : len(call.args) - (0 if "size" in named or among else 1)]
    low = bounds[0] if len(bounds) == len(("low", "high")) else named.get("low")
    high = named.get("high") or (bounds[-1] if bounds else None)
    from_zero = low is None or (isinstance(low, ast.Constant) and low.value == 0)
    return own.parsed.with_parts({high: end}) if high is not None and from_zero else None


def _is_what_is_assigned(own: OwnStatement, call: ast.Call) -> bool:
    """Whether the statement keeps or returns what the call does, as it is, moved or cast: it is no index of others."""
    value = own.parsed.statement.value if isinstance(own.parsed.statement, ast.Assign | ast.Return) else None
    while isinstance(value, ast.Call) and value is not call:
        value = value.func.value if isinstance(value.func, ast.Attribute) else None
    return value is call


def dropping_by_mode(process: Process, place: Location | None) -> Diff | None:
    """Functional dropout, or that of attention, in train mode only; of a line in a method of the model."""
    own = f"{_receiver(process, place)}.training" if place else ""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls(*DROPOUTS))
        if call is not None and _argument(call, 2, "training") is None and all(one.arg for one in call.keywords):
            return line.with_parts({call: f"{line.text_of(call)[:-1].rstrip(', ')}, training={own})"})
        call = _only(line.calls("scaled_dot_product_attention"))
        rate = _argument(call, 4, "dropout_p") if call else None
        return line.with_parts({rate: f"{line.operand(rate)} if {own} else 0.0"}) if rate else None

    return _edit(process, place, changed)


def normalising_by_mode(process: Process, place: Location | None) -> Diff | None:
    """Functional batch_norm that is always in training, by the mode of the module whose forward calls it."""
    own = f"{_receiver(process, place)}.training" if place else ""

    def changed(line: ParsedLine) -> str | None:
        call = _only(line.calls("batch_norm"))
        given = call and _argument(call, 5, "training")
        always = isinstance(given, ast.Constant) and given.value is True
        return line.with_parts({given: own}) if given is not None and always else None

    return _edit(process, place, changed) if place is not None and place.function == "forward" else None


def _receiver(process: Process, place: Location) -> str:
    """What the method calls its object, if the line that says so was recorded; nearly all say `self`."""
    above = [text for number, text in sorted(recorded_text.around(process, place).items()) if number <= place.line]
    named = re.findall(r"\bdef forward\(\s*(\w+)", "\n".join(above))
    return str(named[-1]) if named else "self"


def squeezed(process: Process, place: Location | None, argument: int, dimension: int) -> Diff | None:
    """The only call of the line that is given two things, a loss, with a dimension of size 1 taken off one of them."""

    def changed(line: ParsedLine) -> str | None:
        calls = [node for node in ast.walk(line.tree) if isinstance(node, ast.Call) and len(node.args) > 1]
        measures = len(calls) == 1 and _MEASURES.search(name_of(calls[0].func)) is not None
        given = calls[0].args[argument] if measures else None
        if given is None or isinstance(given, ast.Starred) or isinstance(line.statement, ast.For):
            return None
        return line.with_parts({given: f"{line.operand(given)}.squeeze({dimension})"})

    return _edit(process, place, changed)


def under(process: Process, place: Location | None, head: str) -> Diff | None:
    """A whole statement inside of a block that begins with this line."""
    own = own_statement.at(process, place)
    if own is not None and isinstance(own.parsed.statement, ast.Return):
        return own.under(head)
    inserted = line_before(process, place, head)
    there = recorded_text.line_at(process, place) if place else None
    if inserted is None or there is None:
        return None
    line = "".join(there)
    return Diff(inserted.file, inserted.line, [line], [*inserted.added, f"    {line}"])


def shifted(process: Process, place: Location | None) -> str:
    """The statement of the loss with the token after each position as its target, for tensors of [batch, positions,
    ...]; lines to copy where it does not flatten both of them."""
    own = own_statement.at(process, place)
    flattened = [call for call in own.parsed.calls("reshape", "view", "flatten") if _flattens(call)] if own else []
    if own is None or len(flattened) != len(("scores", "targets")):
        return _SHIFTED
    scores, targets = (_held(call) for call in sorted(flattened, key=lambda call: (call.lineno, call.col_offset)))
    parts = {scores: f"{own.parsed.text_of(scores)}[:, :-1]", targets: f"{own.parsed.text_of(targets)}[:, 1:]"}
    shift = own.dedented(own.parsed.with_parts(parts)).replace(".view(", ".reshape(")  # a part cannot be viewed so
    return f"{shift}  # [batch, positions, ...]: each position is compared with the token after it"


def line_before(process: Process, place: Location | None, line: str) -> Diff | None:
    """Another statement in front of a whole one."""
    there = recorded_text.line_at(process, place) if place else None
    above = recorded_text.around(process, place).get(place.line - 1, "") if place else ""
    own = parsed_line.parse(there[1]) if there else None
    whole = own is not None and isinstance(own.statement, ast.Assign | ast.AugAssign)
    if not place or not there or not whole or above.rstrip().endswith(("(", "[", "{", ",", "\\")):
        return None
    return Diff(place.file, place.line, [], [there[0] + line])


def to_bfloat16(process: Process, place: Location | None) -> Diff | None:
    """bfloat16 in place of float16, where the line opens a region of autocast and names the type once."""
    there = recorded_text.line_at(process, place) if place else None
    if not place or not there or "autocast" not in there[1] or there[1].count("float16") != 1:
        return None
    line = "".join(there)
    return Diff(place.file, place.line, [line], [line.replace("float16", "bfloat16")])


def _edit(process: Process, place: Location | None, changed: Callable[[ParsedLine], str | None]) -> Diff | None:
    """The statement as `changed` leaves it; None where that is the same, or is not known."""
    own = own_statement.at(process, place)
    return own.changed(changed(own.parsed)) if own is not None else None


def _only(calls: list[ast.Call]) -> ast.Call | None:
    return calls[0] if len(calls) == 1 else None


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """What an argument is given as, by position or by name."""
    if any(isinstance(one, ast.Starred) for one in call.args[: position + 1]):
        return None
    if len(call.args) > position:
        return call.args[position]
    return next((one.value for one in call.keywords if one.arg == name), None)


def _renamed(line: ParsedLine, function: ast.expr, name: str) -> str:
    holder = f"{line.operand(function.value)}." if isinstance(function, ast.Attribute) else ""
    return line.with_parts({function: holder + name})


def _is_integer(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and type(inner.value) is int


def _is_computed_with(line: ParsedLine, call: ast.Call) -> bool:
    """Whether the call is an operand of something: `softmax(x) * y`, `softmax(x).argmax()`, `softmax(x)[0]`."""
    holders = (ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript, ast.Compare, ast.BoolOp)
    return any(isinstance(node, holders) and call in ast.iter_child_nodes(node) for node in ast.walk(line.tree))


def of_a_part(place: Location | None) -> bool:
    """Whether the loss of the line is given a part of what a model returned, `out["probs"]`, whose name says what it
    is: the model goes on giving that away."""
    line = parsed_line.of(place)
    calls = [node for node in ast.walk(line.tree) if isinstance(node, ast.Call) and node.args] if line else []
    calls = [call for call in calls if _OF_CLASSES.search(name_of(call.func))]
    parts = [call.args[0] for call in calls]
    return any(isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Constant) for one in parts) or any(
        isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id != "self" for one in parts
    )


def _has_a_name(process: Process, place: Location, line: ParsedLine, call: ast.Call) -> bool:
    """Whether what the call returns goes further than to a loss, by a name or a place of its own: out of a forward, as
    in `{"scores": z, "probs": softmax(z)}` or `return z, softmax(z)`, or to other lines of the loop. What is largest
    stays what it is."""
    own, text = line.statement, recorded_text.around(process, place)
    variable = ast.unparse(own.targets[0]) if isinstance(own, ast.Assign) and own.value is call else ""
    if place.function != "forward":
        used = [
            one
            for number, one in text.items()
            if number != place.line and re.search(rf"\b{re.escape(variable)}\b", one)
        ]
        rest = [re.sub(rf"\b{re.escape(variable)}\.argmax\(", "", one) for one in used if not _OF_LOSSES.search(one)]
        return bool(variable) and any(re.search(rf"(?<![\w.]){re.escape(variable)}\b", one) for one in rest)
    holders = [node for node in ast.walk(line.tree) if isinstance(node, ast.Dict | ast.keyword | ast.Tuple)]
    if any(call in ast.walk(holder) for holder in holders):
        return True
    return bool(variable) and not any(one.strip() == f"return {variable}" for one in text.values())


def _flattens(call: ast.Call) -> bool:
    """`name.reshape(-1, ...)` of a plain name, or `name.flatten()` from its first dimension on."""
    first = ast.unparse(call.args[0]) if call.args else "0"
    flat = isinstance(call.func, ast.Attribute) and call.func.attr == "flatten" and first == "0"
    return (flat or first == "-1") and isinstance(_held(call), ast.Name)


def _held(call: ast.Call) -> ast.expr:
    """What the method is called on."""
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func
