"""Why no optimizer holds tensors that backward reaches, and what to do about it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.computed.gradients.trainable import moved_below, tensor_names
from tracelyze.analyzers.rules.updates.frozen_parameters import empty_groups, given_parts
from tracelyze.analyzers.rules.updates.frozen_parameters.unheld import (
    added_later,
    broken_ties,
    passed_by_name,
    taken_by_name,
)
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.storing import registered_layers

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Location

HELD: Final = (
    "# where its groups have rates of their own, name one beside the parameters:\n"
    'held = {id(p) for group in optimizer.param_groups for p in group["params"]}\n'
    'optimizer.add_param_group({"params": [p for p in model.parameters() if id(p) not in held]})'
)
BELOW: Final = (
    "# right below the line that makes the optimizer, or the last one that adds a layer to the model or replaces one"
)
_MADE_LATER: Final = (
    f"{BELOW};\n{HELD}\n# if the layers are in a Python list, in __init__:\n# self.layers = nn.ModuleList(layers)"
)
_LIST: Final = re.compile(r"\bself\.\w+\s*(?::[^=]+)?=\s*[\[{]|\.append\(\s*(?:nn\.|torch\.nn\.|[A-Z]\w*\()")
_RATE: Final = re.compile(r"""["']lr["']\s*:\s*(?P<rate>[\w.]+)\s*[,}]""")
_STATEMENT: Final = 6  # lines of one that lists a few groups
_ADDED: Final = f"# right below the last line that adds a layer to the model;\n{HELD}"
_IN_LIST: Final = (
    "# in __init__ of the module that keeps layers in a Python list, below the line that fills it. If it is called\n"
    "# self.blocks (not of lists that are a ModuleList already):\n"
    "self.blocks = nn.ModuleList(self.blocks)\n"
    "# if there is no such list: make the optimizer below the last line that adds a layer to the model:\n"
    "# optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)"
)
_LISTED: Final = (
    "# below the line that fills it; nn.ModuleDict for a dictionary:\nself.{name} = nn.ModuleList(self.{name})"
)
_ATTRIBUTE: Final = re.compile(r"\bself\.(\w+)\s*(?:(?::[^=]+)?=[^=]|\.(?:append|extend)\b|\[)")
FIX: Final = (
    "Build the optimizer after the whole model, over all of its parameters, and keep layers in nn.ModuleList. Set "
    "requires_grad_(False) on parameters that should stay fixed, which also saves computing their gradients."
)
FIX_WHOLE: Final = FIX.replace(", and keep layers in nn.ModuleList", "")
FIX_BELOW: Final = (
    "Make the optimizer below line {line}, and then what is given it, such as a scheduler. Set requires_grad_(False) "
    "on parameters that should stay fixed, which also saves computing their gradients."
)
FIX_LISTED: Final = (
    "Keep the layers in nn.ModuleList, which registers them: model.parameters(), state_dict(), eval() and to(device) "
    "skip a Python list."
)
_IN_NO_GROUP: Final = (
    "# right below the line that makes the optimizer, and above that of a scheduler;\n"
    f"{HELD.replace('the parameters:', 'the parameters, and weight_decay=0:')}"
)
FIX_GROUPS: Final = (
    "Put the parameters that no group takes into one of them: add an else where the parameters are split. Set "
    "requires_grad_(False) on parameters that should stay fixed, which also saves computing their gradients."
)
_USUALLY: Final = (
    "This happens when layers sit in a Python list instead of nn.ModuleList, when the model was built or extended "
    "after the optimizer, or when the optimizer was not given part of the model (an encoder)."
)
_USUALLY_REGISTERED: Final = (
    "This happens when the model was built or extended after the optimizer, or when the optimizer was not given part "
    "of the model (an encoder)."
)
SEVERAL: Final = 2
"""Groups of an optimizer among which parameters were divided."""


class Cause(NamedTuple):
    """Why no optimizer holds the tensors, what to do, the line that shows it, and its edit, where these are known."""

    why: str
    fix: str
    code: str
    place: Location | None
    diff: Diff | None = None


class _Tensors(NamedTuple):
    """The tensors of one row of the table reach, and the optimizer that might hold them.

    `other`: the line that put in their part for another one. `among_held`: other tensors of their model are held.
    """

    optimization: Optimization
    names: str
    missed: int
    other: Location | None
    among_held: bool

    @property
    def each(self) -> list[str]:
        """Their names, as far as the collector wrote them down."""
        return tensor_names.each(self.names)

    @property
    def all_are_named(self) -> bool:
        return len(self.each) == self.missed


def cause(optimization: Optimization, row: dict[str, Any], replaced: bool) -> Cause:
    """The first cause that is seen, of a row of the table reach. `optimization`: what does not hold the tensors;
    `replaced`: an optimizer holds tensors of modules that are not called, as if these had taken their place."""
    process, names = optimization.process, str(row["names"] or "")
    other = script_lines.replaced(process, tensor_names.each(names)) if replaced and names else None
    among_held = other is None and bool(row["missed"]) and row["shared_model"] == row["missed"]
    tensors = _Tensors(optimization, names, row["missed"], other, among_held)
    return (
        _in_a_list(tensors)
        or _in_an_empty_group(tensors)
        or _skipped_by_name(tensors)
        or _taken_by_name(tensors)
        or _in_no_group(tensors)
        or _put_in_later(tensors)
        or _added_later(tensors)
        or _as_usual(tensors)
    )


def _in_a_list(tensors: _Tensors) -> Cause | None:
    """Layers in a Python list, which no module registers."""
    process = tensors.optimization.process
    made = script_lines.only(process, "unregistered") if tensor_names.is_nameless(tensors.names) else None
    if made is None:
        return None
    listed_at = registered_layers.listed(process, made)
    held, why = set(_ATTRIBUTE.findall(listed_at.source)), registered_layers.said(made, listed_at)
    own, maker = own_statement.at(process, listed_at), "" if listed_at is made else made.function
    edit = own.changed(registered_layers.text(process, own, listed_at, maker)) if own is not None else None
    return Cause(why, FIX_LISTED, _LISTED.format(name=held.pop()) if len(held) == 1 else _IN_LIST, listed_at, edit)


def _in_an_empty_group(tensors: _Tensors) -> Cause | None:
    """A group of the optimizer that was given no parameters."""
    empty = empty_groups.of(tensors.optimization)
    if empty is None:
        return None
    return Cause(empty.said, empty_groups.FIX, empty.example, empty.made_at or tensors.other, empty.diff)


def _skipped_by_name(tensors: _Tensors) -> Cause | None:
    """A filter of names that lets none of these pass."""
    if tensors.other is not None or not tensors.all_are_named:
        return None
    skipped = passed_by_name.of(tensors.optimization, tensors.each)
    if skipped is None:
        return None
    process, single = tensors.optimization.process, len(tensors.each) == 1
    tie = broken_ties.of(process, tensors.each[0], skipped.place.line) if single else None
    if tie is not None:
        return Cause(f"{skipped.said} {tie.said}", tie.fix, tie.code, tie.place)
    return Cause(skipped.said, skipped.fix, "", skipped.place, skipped.diff)


def _taken_by_name(tensors: _Tensors) -> Cause | None:
    """Groups that take in what has these names alone."""
    taken = taken_by_name.of(tensors.optimization, tensors.each) if tensors.other is None else None
    return Cause(taken.said, taken.fix, taken.code, taken.place) if taken is not None else None


def _in_no_group(tensors: _Tensors) -> Cause | None:
    """Groups that are chosen by names, or by kinds of layers, and take none of these in."""
    why = _passed_over(tensors.names, int(tensors.optimization.facts.get("groups") or 0))
    if not why:
        return None
    return Cause(_inserted(tensors.other) if tensors.other else why, FIX_GROUPS, _IN_NO_GROUP, tensors.other)


def _put_in_later(tensors: _Tensors) -> Cause | None:
    """A part that was put in for another one below the line that makes the optimizer."""
    other = tensors.other
    moved = moved_below.of(tensors.optimization, other) if other is not None else None
    if moved is None or other is None:
        return None
    why = (
        f"Line {other.line} inserts this part, but line {moved.optimizer.line} has made the optimizer by then: it "
        "holds the tensors of the part that was replaced."
    )
    return Cause(why, FIX_BELOW.format(line=other.line), moved.code, moved.optimizer)


def _added_later(tensors: _Tensors) -> Cause | None:
    """Layers that were added to a model, the rest of which an optimizer held by then."""
    if not tensors.among_held:
        return None
    optimization = tensors.optimization
    later = added_later.of(optimization, tensors.each)
    if later is not None:
        return Cause(later.said, later.fix, later.code or _ADDED, later.optimizer)
    below = added_later.below(optimization, tensors.each)
    if below is None:
        return None
    moved = moved_below.of(optimization, below.made_at)
    if moved is not None and below.are_taken_by(moved.code):
        return Cause(below.said, FIX_BELOW.format(line=below.made_at.line), moved.code, moved.optimizer)
    code = below.with_names(_with_rate(optimization, f"# right below line {below.made_at.line}"))
    return Cause(below.said, below.fix, code, below.optimizer)


def _as_usual(tensors: _Tensors) -> Cause:
    """What usually is behind it, as far as it may be here."""
    process, other = tensors.optimization.process, tensors.other
    why = _inserted(other) if other is not None else _USUALLY
    if tensor_names.is_nameless(tensors.names):
        return Cause(why, FIX, _IN_LIST, other)
    if process.locations("unregistered") or recorded_text.matching(process, _LIST):
        return Cause(why, FIX, _MADE_LATER, other)
    known = tensors.among_held and tensors.all_are_named
    parts = given_parts.of(tensors.optimization, tensors.each) if known else None
    said, fix = parts or (_USUALLY_REGISTERED if other is None else why, FIX_WHOLE)
    return Cause(said, fix, _with_rate(tensors.optimization, BELOW), other)


def _inserted(other: Location) -> str:
    return f"Line {other.line} inserts this part, but the optimizer holds the tensors of the one it replaced."


def _passed_over(names: str, groups: int) -> str:
    """Why groups that are chosen by names or by kinds of layers left these out; empty where that may not be why.

    A parameter that a module has by itself, a position table or a scale, is called neither weight nor bias.
    """
    known = tensor_names.each(names)
    own = known and not any(
        tensor_names.is_nameless(one) or one.rpartition(".")[2] in ("weight", "bias") for one in known
    )
    if not own or groups < SEVERAL:
        return ""
    who, what = ("It is a parameter", "it") if len(known) == 1 else ("They are parameters", "them")
    return (
        f"{who} that a module has by itself, named neither weight nor bias: where the {groups} groups of the optimizer "
        f"are chosen by such names, or by kinds of layers, none takes {what} in."
    )


def _with_rate(optimization: Optimization, where: str) -> str:
    """The lines that add a group, and where, with the rate that all groups have in the statement that makes the
    optimizer; with a word about it where the groups may have several."""
    made = optimization.made_at
    lines = recorded_text.of_function(optimization.process, made) if made is not None else {}
    near = [line for at, line in sorted(lines.items()) if made is not None and 0 <= at - made.line < _STATEMENT]
    rates = {found["rate"] for line in near for found in _RATE.finditer(line)}
    if len(rates) != 1:
        return f"{where};\n{HELD}"
    group = f'not in held], "lr": {rates.pop()}}}'
    return f"{where}:\n{HELD.partition(chr(10))[2].replace('not in held]}', group)}"
