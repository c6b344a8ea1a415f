"""Tensors that backward reaches and no optimizer holds."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.computed.gradients.trainable import (
    added_later,
    batch_norms,
    moved_below,
    passed_by_name,
    tensor_names,
)
from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.evidence import pictures, recorded_text, script_lines, timing
from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.analyzers.evidence.editing.optimizers import empty_groups, given_parts
from tracelyze.analyzers.evidence.editing.storing import registered_layers
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Diff, Location

_HELD: Final = (
    "# where its groups have rates of their own, name one beside the parameters:\n"
    'held = {id(p) for group in optimizer.param_groups for p in group["params"]}\n'
    'optimizer.add_param_group({"params": [p for p in model.parameters() if id(p) not in held]})'
)
_SCHEDULED: Final = (
    "# above the line that makes the scheduler, which keeps the groups that it finds (move it down, if need be):"
)
_BELOW: Final = (
    "# right below the line that makes the optimizer, or the last one that adds a layer to the model or replaces one"
)
_MADE_LATER: Final = (
    f"{_BELOW};\n{_HELD}\n# if the layers are in a Python list, in __init__:\n# self.layers = nn.ModuleList(layers)"
)
_LIST: Final = re.compile(r"\bself\.\w+\s*(?::[^=]+)?=\s*[\[{]|\.append\(\s*(?:nn\.|torch\.nn\.|[A-Z]\w*\()")
_RATE: Final = re.compile(r"""["']lr["']\s*:\s*(?P<rate>[\w.]+)\s*[,}]""")
_STATEMENT: Final = 6  # lines of one that lists a few groups
_ADDED: Final = f"# right below the last line that adds a layer to the model;\n{_HELD}"
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
    f"{_HELD.replace('the parameters:', 'the parameters, and weight_decay=0:')}"
)
FIX_GROUPS: Final = (
    "Put the parameters that no group takes into one of them: add an else where the parameters are split. Set "
    "requires_grad_(False) on parameters that should stay fixed, which also saves computing their gradients."
)
FIX_ANEW: Final = "Make these layers once, in __init__ of the module, and have forward call them."
_ANEW: Final = (
    "# in __init__, in place of the line that makes it in forward; with its own sizes and name:\n"
    "self.layer = nn.Linear(64, 64)\n"
    "# in forward:\n"
    "h = self.layer(h)"
)
_MADE_ANEW: Final = (
    "They are made anew for every backward, as where forward builds a layer or an nn.Parameter: what a step computes "
    "for them is lost with them."
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
SHOWN: Final = 4
"""Names that a sentence can bear."""
ROOM: Final = 120
"""Characters that these names may have, those of adapters deep in a model among them; a longer one stands alone."""
NAMED: Final = 45
"""Characters of the names that a title has room for."""


def _title(names: str, count: int) -> str:
    """Names one or two tensors, counts more of them."""
    known = tensor_names.each(names)
    named = len(known) == count <= 2 and len(names) <= NAMED
    who = " and ".join(known) if named else f"{plural(count, 'tensor')} with gradients"
    return f"{who} {'is' if count == 1 else 'are'} in no optimizer and never {'trains' if count == 1 else 'train'}"


def named(names: str) -> str:
    """The first of the tensors that the collector names, and how many more there are; those without a name by shape."""
    each, more = tensor_names.each(names), names.partition(" and ")[2]
    if all(map(tensor_names.is_nameless, each)):
        shapes = dict.fromkeys(one.removeprefix(tensor_names.NAMELESS) for one in each)
        return f"tensors of shape {listed(shapes, most=SHOWN)}"
    lengths = accumulate(len(one) for one in each)
    shown = [one for one, length in zip(each[:SHOWN], lengths, strict=False) if length <= ROOM] or each[:1]
    rest = len(each) - len(shown) + (int(more.partition(" ")[0].replace(",", "")) if more else 0)
    return f"{', '.join(shown)} and {rest:,} more" if rest else names


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


class _Cause(NamedTuple):
    """Why no optimizer holds the tensors, what to do, the line that shows it, and its edit, where these are known."""

    why: str
    fix: str
    code: str
    place: Location | None
    diff: Diff | None = None


def _cause(process: Process, row: dict[str, Any], replaced: bool, optimization: Optimization) -> _Cause:
    """The first cause that is seen. `replaced`: as in :func:`finding`; `optimization`: what does not hold them."""
    names = str(row["names"] or "")
    made = script_lines.only(process, "unregistered") if tensor_names.is_nameless(names) else None
    if made is not None:
        listed_at = registered_layers.listed(process, made)
        held, why = set(_ATTRIBUTE.findall(listed_at.source)), registered_layers.said(made, listed_at)
        own, maker = own_statement.at(process, listed_at), "" if listed_at is made else made.function
        edit = own.changed(registered_layers.text(process, own, listed_at, maker)) if own is not None else None
        return _Cause(why, FIX_LISTED, _LISTED.format(name=held.pop()) if len(held) == 1 else _IN_LIST, listed_at, edit)
    other = script_lines.replaced(process, tensor_names.each(names)) if replaced and names else None
    empty = empty_groups.of(optimization)
    if empty is not None:
        return _Cause(empty.said, empty_groups.FIX, empty.example, empty.made_at or other, empty.diff)
    each = tensor_names.each(names)
    skipped = passed_by_name.of(optimization, each) if len(each) == row["missed"] else None
    if skipped is not None and other is None:
        return _Cause(skipped.said, skipped.fix, "", skipped.place, skipped.diff)
    passed_over = _passed_over(names, int(optimization.facts.get("groups") or 0))
    why = passed_over or _USUALLY
    if other is not None:
        why = f"Line {other.line} inserts this part, but the optimizer holds the tensors of the one it replaced."
    if passed_over:
        return _Cause(why, FIX_GROUPS, _IN_NO_GROUP, other)
    moved = moved_below.of(optimization, other) if other is not None else None
    if moved is not None and other is not None:
        why = (
            f"Line {other.line} inserts this part, but line {moved.optimizer.line} has made the optimizer by then: it "
            "holds the tensors of the part that was replaced."
        )
        return _Cause(why, FIX_BELOW.format(line=other.line), moved.code, moved.optimizer)
    alone = other is None and row["missed"] and row["shared_model"] == row["missed"]  # other tensors of it are held
    later = added_later.of(optimization, tensor_names.each(names)) if alone else None
    if later is not None:
        return _Cause(later.said, later.fix, later.code or _ADDED, later.optimizer)
    below = added_later.below(optimization, tensor_names.each(names)) if alone else None
    moved = moved_below.of(optimization, below.made_at) if below is not None else None
    if below is not None and moved is not None and below.are_taken_by(moved.code):
        return _Cause(below.said, FIX_BELOW.format(line=below.made_at.line), moved.code, moved.optimizer)
    if below is not None:
        code = below.with_names(_with_rate(optimization, f"# right below line {below.made_at.line}"))
        return _Cause(below.said, below.fix, code, below.optimizer)
    if tensor_names.is_nameless(names):
        return _Cause(why, FIX, _IN_LIST, other)
    if process.locations("unregistered") or recorded_text.matching(process, _LIST):
        return _Cause(why, FIX, _MADE_LATER, other)
    parts = given_parts.of(optimization, each) if alone and len(each) == row["missed"] else None
    said, fix = parts or (_USUALLY_REGISTERED if why == _USUALLY else why, FIX_WHOLE)
    return _Cause(said, fix, _with_rate(optimization, _BELOW), other)


def _with_rate(optimization: Optimization, where: str) -> str:
    """The lines that add a group, and where, with the rate that all groups have in the statement that makes the
    optimizer; with a word about it where the groups may have several."""
    made = optimization.made_at
    lines = recorded_text.of_function(optimization.process, made) if made is not None else {}
    near = [line for at, line in sorted(lines.items()) if made is not None and 0 <= at - made.line < _STATEMENT]
    rates = {found["rate"] for line in near for found in _RATE.finditer(line)}
    if len(rates) != 1:
        return f"{where};\n{_HELD}"
    group = f'not in held], "lr": {rates.pop()}}}'
    return f"{where}:\n{_HELD.partition(chr(10))[2].replace('not in held]}', group)}"


def says_of(process: Process, missed: dict[str, Any], orphans: dict[str, Any] | None) -> bool:
    """Whether tensors that no backward reached are those of a part that another one replaced: the finding about the
    new part says so."""
    if not orphans or orphans["missed"] != missed["missed"] or not tensor_names.is_nameless(missed["names"] or ""):
        return False
    return script_lines.replaced(process, tensor_names.each(orphans["names"] or "")) is not None


def _beside_schedulers(process: Process, code: str) -> str:
    """The example with where its scheduler is to be made: some kinds break with a group that comes after them, or take
    its rate for another."""
    first, known = _HELD.split("\n")[1], schedulers.last_rows(process)
    return code.replace(first, f"{_SCHEDULED}\n{first}", 1) if known and "scheduler" not in code else code


def _where_returned(optimization: Optimization, code: str) -> str:
    """The example with where it goes, if the line that makes the optimizer returns it: nothing runs below."""
    made = optimization.made_at
    returns = made is not None and made.source.startswith("return ")
    named = f"# give the optimizer of line {made.line} a name, and return it below this" if made is not None else ""
    return code.replace(_BELOW, named) if returns else code


def finding(process: Process, row: dict[str, Any], rule: str, replaced: bool) -> Finding:
    """What is wrong, from a row of the table reach without optimizer.

    `replaced`: an optimizer holds tensors of modules that are not called, as if these had taken their place. A network
    that is trained nowhere, behind one that is, may only measure: that is worth knowing, no more. So may batch
    normalisations be left out on purpose.
    """
    looks = [one for one in process.tables["reach"].records() if one["optimizer"] is None and one["names"]]
    where = timing.placed(process, [max(0, one["step"] - 1) for one in looks or [row]])
    optimization = where.optimization or process.longest
    count = row["missed"] or row["short_lived"]
    fixed = replaced or not row["missed"] or row["fed_by_trained"] < row["missed"] or row["shared_model"] > 0
    what = "Backward computes their gradients, but no optimizer step changes them."
    what = "Backward computes its gradient, but no optimizer step changes it." if count == 1 else what
    cause = _cause(process, row, replaced, optimization)
    if not replaced and batch_norms.alone(process, str(row["names"] or ""), count):
        fixed, cause = False, cause._replace(why=batch_norms.LEFT_OUT)
    if not row["missed"]:
        place = process.location("forward") or optimization.backward_location
        what, cause = _MADE_ANEW, _Cause("", FIX_ANEW, _ANEW, place)
    return Finding(
        rule=rule,
        severity="warning" if fixed else "info",
        confidence="certain",
        title=_title(str(row["names"] or ""), count),
        summary=(
            f"Backward reaches {named(str(row['names'] or 'parameters'))}, which no optimizer holds. {what}"
            + (f" {cause.why}" if cause.why else "")
        ),
        fix=cause.fix,
        fix_code=_beside_schedulers(process, _where_returned(optimization, cause.code)),
        diff=cause.diff,
        first_step=1,
        last_step=timing.last_step(optimization),
        trainings=[where.name] if where.name else [],
        evidence=[
            Evidence("tensors in no optimizer", count, "tensors", 0, "backward reaches only what is to be trained"),
            Evidence("their elements", row["missed_elements"] or None, "", role="basis"),
            Evidence("tensors that optimizers hold", row["held"], "tensors"),
        ],
        location=cause.place or optimization.made_at or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization),
        false_alarm="A network used only to measure (a perceptual loss), or a part kept fixed without marking it as "
        "frozen.",
        verify="Record the run again: an optimizer holds every trainable tensor that a backward reaches.",
    )
