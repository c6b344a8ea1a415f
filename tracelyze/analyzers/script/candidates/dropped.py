"""A statement that computes what is missing and drops it: `labels.masked_fill(mask, -100)` where padding counts.

It changes nothing, whatever it is for. So it is named where it does what a diagnosis misses, and no other line does.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Finding, Location

_ELEMENTWISE: Final = frozenset({"sub", "div", "mul", "add", "lerp", "clamp", "float", "masked_fill", "where"})
_LIBRARIES: Final = frozenset({"torch", "np", "numpy", "F", "functional", "xp", "jnp"})
_FUNCTIONS: Final = frozenset({"normalize", "permutation", "randperm"})  # of a module or a generator, none of a tensor
_ROLE: Final = "dropped"
_STATE: Final = "dropped-state"


@dataclass(frozen=True)
class _Missing:
    """What a statement calls if it was to do what a diagnosis misses. `says`, `never`: what its text holds, or does
    not. `in_place`: another name for the result would be lost as well, as that of a loop's variable is."""

    names: frozenset[str] = frozenset()
    says: str = ""
    never: str = r"(?!)"
    in_place: bool = False


_MASKS: Final = frozenset({"masked_fill", "masked_scatter", "index_fill", "where"})
_BOUNDS: Final = frozenset({"clamp", "clamp_min", "clamp_max", "clip", "nan_to_num"})
_FILLS: Final = frozenset({"fillna", "dropna", "fill_nan", "drop_nulls", "where", "masked_fill"})
_ORDERS: Final = _Missing(frozenset({"permutation", "randperm", "shuffle"}))
_DETACHES: Final = _Missing(frozenset({"detach"}))
_COPIES: Final = _Missing(frozenset({"clone"}))
_BOUNDED: Final = _Missing(_BOUNDS | {"where"}, never=r"\.grad\b")
_OF_WEIGHTS: Final = r"\.data\b|\b(?:p|w|params?|parameters?|weights?)\.cl(?:amp|ip)"
_CLIPPED: Final = _Missing(
    _BOUNDS | {"mul", "div"}, says=rf"\.grad\b|{_OF_WEIGHTS}", never=r"\.data\.(?:mul|div)\b", in_place=True
)
_WEIGHTS_BOUNDED: Final = _Missing(_BOUNDS, says=_OF_WEIGHTS, never=r"\.grad\b")
_WRITTEN_TO_STATE: Final = _Missing()
_MISSING: Final = {
    "padding-in-loss": _Missing(_MASKS, never=r"\binf\b|\bfinfo\b|\bscores\b|\battn_w"),
    "prompt-in-loss": _Missing(_MASKS, says=r"prompt|answer|question|instruct|source|src|context|compl|assist|role"),
    "target-in-input": _Missing(_MASKS | {"tril", "triu"}, says=r"\binf\b|\bfinfo\b|1e\+?\d|\btri[lu]\b"),
    "loss-broadcast": _Missing(frozenset({"squeeze", "unsqueeze", "reshape", "view", "flatten"})),
    "no-shuffle": _ORDERS,
    "same-order-every-epoch": _ORDERS,
    "ema-not-updated": _Missing(frozenset({"lerp", "mul", "add"}), never=r"\.grad\b", in_place=True),
    "nonfinite-input": _Missing(_BOUNDS | _FILLS),
    "loss-nonfinite": _BOUNDED,
    "nonfinite-gradients": _BOUNDED,
    "exploding-gradients": _CLIPPED,
    "gradient-spikes": _CLIPPED,
    "input-normalization": _Missing(frozenset({"div", "sub", "normalize"})),
    "memory-leak": _DETACHES,
    "advantage-not-detached": _DETACHES,
    "teacher-trains": _DETACHES,
    "snapshot-aliased": _COPIES,
    "corrupted-copy": _COPIES,
    "weights-not-loaded": _WRITTEN_TO_STATE,
    "checkpoint-mismatch": _WRITTEN_TO_STATE,
    "sampler-mismatch": _WRITTEN_TO_STATE,
}
"""By the id of the rule."""


def bounds_weights(process: Process) -> Location | None:
    """The only statement that computes bounded weights and drops them."""
    return _only(process, _WEIGHTS_BOUNDED)


def at_its_line(finding: Finding, process: Process) -> Finding:
    """The finding at the only statement that computes what it misses, and drops it; else as it is."""
    missing = _MISSING.get(finding.rule)
    if missing is None:
        return finding
    place = _only(process, missing)
    own = own_statement.at(process, place)
    if place is None or own is None:
        return finding
    seen = finding.seen_at or finding.location
    moved = replace(finding, location=place, seen_at=seen, excerpt=None, diff=None, setting=None)
    if not missing.names:
        code = _loaded(own)
        fix = (
            f"state_dict() makes a new dictionary each time: what line {place.line} puts into it reaches no weights. "
            "Copy into its tensors, or load the dictionary."
        )
        return replace(moved, fix=fix, fix_code=code or finding.fix_code)
    call = _call(own)
    if call is None:
        return finding
    in_place = missing.in_place or _is_of_loop(process, place, own, call)
    text = _in_place(own, call) if in_place else _assigned(own, call)
    fix = (
        f"Line {place.line} changes nothing: {name_of(call.func)}() returns its result, which is dropped there. "
        f"{'Change the tensor in place' if in_place else 'Assign it'}."
    )
    diff: Diff | None = own.changed(text)
    return replace(moved, fix=fix, fix_code=own.dedented(text) if text else finding.fix_code, diff=diff)


def _only(process: Process, missing: _Missing) -> Location | None:
    """The only statement of the kind, in no function that evaluates."""
    lines = process.locations(_ROLE if missing.names else _STATE)
    apart = process.functions("evaluation")
    called = re.compile(rf"\b(?:{'|'.join(sorted(missing.names))})\s*\(") if missing.names else re.compile("")
    found = [
        one
        for one in lines
        if one.file_function not in apart
        and called.search(one.source)
        and re.search(missing.says, one.source, re.IGNORECASE)
        and not re.search(missing.never, one.source)
    ]
    return found[0] if len(found) == 1 else None


def _call(own: OwnStatement) -> ast.Call | None:
    """The call that the whole statement is."""
    statement = own.parsed.statement
    return statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None


def _assigned(own: OwnStatement, call: ast.Call) -> str:
    """The statement with its result given to what it was computed of; empty where that has no plain name."""
    target = _target(call)
    return f"{own.parsed.text_of(target)} = {own.text}" if target is not None else ""


def _target(call: ast.Call) -> ast.expr | None:
    """What a method belongs to, before others of its kind that are called on the way; the only plain argument that a
    function of torch or NumPy is given, conditions aside."""
    held = call.func.value if isinstance(call.func, ast.Attribute) else None
    while isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute) and held.func.attr in _ELEMENTWISE:
        held = held.func.value
    if held is None or not _is_plain(held):
        return None
    if name_of(held) not in _LIBRARIES and not _is_function(call):
        return held
    given = call.args[1:] if name_of(call.func) == "where" else call.args[:1]
    plain = [one for one in given if _is_plain(one)]
    return plain[0] if len(plain) == 1 else None


def _is_of_loop(process: Process, place: Location, own: OwnStatement, call: ast.Call) -> bool:
    """Whether it is the variable of a `for`, whose new value nothing else sees."""
    target = _target(call)
    if not isinstance(target, ast.Name):
        return False
    head = re.compile(rf"\s*for\b[^:]*(?<![\w.]){target.id}\b.*\bin\b")
    return any(at < own.line and head.match(text) for at, text in recorded_text.of_function(process, place).items())


def _is_function(call: ast.Call) -> bool:
    """Whether a module or a generator has it, and no tensor: `rng.permutation(order)`."""
    return name_of(call.func) in _FUNCTIONS


def _is_plain(node: ast.expr) -> bool:
    """Whether it is a name, or an attribute or item of one, that can be assigned to."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Name)


def _in_place(own: OwnStatement, call: ast.Call) -> str:
    """The statement with each of its methods as the one that changes the tensor: `p.mul_(0.9).add_(q, alpha=0.1)`."""
    if isinstance(call.func, ast.Attribute) and name_of(call.func.value) == "torch" and _target(call) is call.args[0]:
        rest = [own.parsed.text_of(one) for one in call.args[1:]]
        rest += [f"{one.arg}={own.parsed.text_of(one.value)}" for one in call.keywords if one.arg]
        return f"{own.parsed.text_of(call.args[0])}.{call.func.attr}_({', '.join(rest)})"
    node: ast.expr = call
    methods: list[str] = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        methods.append(node.func.attr)
        node = node.func.value
    if not _is_plain(node) or name_of(node) in _LIBRARIES or _is_function(call):
        return ""
    text = own.text
    for one in dict.fromkeys(methods):
        text = re.sub(rf"\.{one}\(", f".{one}_(", text)
    return text


def _loaded(own: OwnStatement) -> str:
    """What was written into the dictionary, copied into the tensor that it holds there, or loaded."""
    statement = own.parsed.statement
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        target = own.parsed.text_of(statement.targets[0])
        return own.dedented(f"{target}.copy_({own.parsed.text_of(statement.value)})")
    call = _call(own)
    if call is None or len(call.args) != 1 or not isinstance(call.func, ast.Attribute):
        return ""
    held = own.parsed.text_of(call.func.value)
    model = held.removesuffix(".state_dict()")
    given = own.parsed.text_of(call.args[0])
    return f"{model}.load_state_dict({{**{held}, **{given}}})" if model != held else ""
