"""What an example about a validation shows: the line that validates, and the model that is evaluated there."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import called, recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.modes import (
    another_model,
    back_in_training,
    beside_gradients,
    never_switched,
    own_train,
)

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.diagnosis import Diff, Location

FIX: Final = "Call model.eval() before each validation and model.train() before training continues."
CODE: Final = (
    "model.eval()  # right before each validation\n\nmodel.train()  # right behind it, before training goes on"
)
_COPY: Final = "Put the copy that is evaluated into eval mode. Nothing trains it, so that it may stay there."
_COPY_CODE: Final = "{name}.eval()  # once, where it is made, or right before each validation"
_ANOTHER: Final = (
    "Line {line} puts {named} into eval mode, but line {at} calls {called}, which stays in train mode: call "
    "{called}.eval() as well"
)
_TRAINS_ON: Final = ", and {called}.train() before training continues"
_BACK: Final = (
    "Line {line} puts the model back into train mode before it is evaluated: move it behind what validates. {name} is "
    "called above it already."
)
_BY_CALL: Final = (
    "Line {line} in {function}(), which line {at} calls, puts the model back into train mode before it is evaluated: "
    "have {function}() restore the mode that it found."
)
_RESTORED: Final = (
    "was_training = {name}.training  # first in {function}()\n\n{name}.train(was_training)  # line {line}"
)
_PUT: Final = "Line {line} puts the model into train mode before it is evaluated: have it be model.eval() there."
_HOOK: Final = (
    "Line {line} in {function}(), which the framework calls as a validation begins, puts the model back into train "
    "mode: take it out."
)
_HEADS: Final = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.If)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_HELD: Final = re.compile(r"self\.(?:\w+_)?(?:model|net|network)")  # not a method, as self.predict, which has no eval()
NO_GRAD: Final = "with torch.no_grad():"


class Mode(NamedTuple):
    """How a model comes to be evaluated in eval mode: words, an example, and the line to change, if one is known."""

    fix: str
    code: str
    place: Location | None = None
    diff: Diff | None = None


def mode(
    process: Process, row: int, seen_at: Location | None, begins: Location | None = None, judged: Mask | None = None
) -> Mode:
    """For a pass of the table evals: a line within the validation that undoes its eval(), or within what it calls, a
    model that is evaluated in place of the one whose eval() is called, a copy of it, a train() that eval() calls in
    vain, or else the calls that are missing; `begins`: the first statement of the function that evaluates;
    `judged`: rows of evals, shape [evals]."""
    own = own_train.of(process, seen_at)
    if own is not None:
        return Mode(own.fix, own.code, own.place, own.diff)
    back = back_in_training.line(process, seen_at)
    inside = back is not None and seen_at is not None and back.file_function == seen_at.file_function
    if back is not None and inside and not _is_one_way(process, back):
        return Mode(_BACK.format(line=back.line, name="eval()"), "", back)
    by_call = back_in_training.by_call(process, seen_at)
    if by_call is not None and not _is_one_way(process, by_call[0]):
        return _restored(process, *by_call)
    hook = back_in_training.in_hook(process)
    if hook is not None and not _is_one_way(process, hook):
        return Mode(_HOOK.format(line=hook.line, function=hook.function.rpartition(".")[2]), "", hook)
    put = back_in_training.above(process, seen_at)
    if put is not None and not _is_one_way(process, put):
        return Mode(_PUT.format(line=put.line), "", put)
    other = another_model.of(process, seen_at)
    if other is not None:
        words = {"line": other.place.line, "named": other.named, "called": other.called, "at": other.at}
        fix = _ANOTHER + _TRAINS_ON * int(process.evals["trained"][row] != 0)
        return Mode(f"{fix.format(**words)}.", f"{other.called}.eval()  # below line {other.place.line}", other.place)
    name = called.name_in(process, process.evals["model"][row], None)
    if process.evals["trained"][row] == 0 and name and seen_at and re.search(rf"(?<![\w.]){name}\(", seen_at.source):
        return Mode(_COPY, _COPY_CODE.format(name=name))
    missing = never_switched.of(process, seen_at, begins, judged) if judged is not None else None
    if missing is not None:
        return Mode(missing.fix, missing.call, begins, missing.diff)
    beside = beside_gradients.of(process, seen_at)
    if beside is not None:
        return Mode(beside.fix, beside.call, beside.place, beside.diff)
    held = _held_model(process, seen_at)
    return Mode(FIX.replace("model.", f"{held}."), CODE.replace("model.", f"{held}.")) if held else Mode(FIX, CODE)


def _held_model(process: Process, seen_at: Location | None) -> str:
    """The attribute by which the line calls the model, as `self.model`; empty where it has another name."""
    own = own_statement.at(process, seen_at)
    name = another_model.model_of(own.parsed) if own is not None else ""
    return name if _HELD.fullmatch(name) and not another_model.is_function(process, name) else ""


def _restored(process: Process, place: Location, at: int) -> Mode:
    """A function that leaves the model in train mode, whatever mode it found, and the line by which it is called."""
    words = {"line": place.line, "function": place.function}
    own = own_statement.at(process, place)
    call = own.only_call("train") if own is not None else None
    named = own.parsed.text_of(call.func.value) if own and call and isinstance(call.func, ast.Attribute) else ""
    return Mode(_BY_CALL.format(at=at, **words), _RESTORED.format(name=named, **words) if named else "", place)


def _is_one_way(process: Process, place: Location) -> bool:
    """Whether the line stands behind a condition, so that it need not have run."""
    lines = recorded_text.around(process, place)
    own = lines.get(place.line, "")
    depth = recorded_text.indent_of(own)
    above = [one for at, one in sorted(lines.items()) if at < place.line and one.strip()]
    heads = [one.strip() for one in above if recorded_text.indent_of(one) < depth]
    return not heads or heads[-1].startswith(("if ", "elif ", "else"))


def under(process: Process, place: Location | None, head: str = NO_GRAD) -> str:
    """The script's own statement within a block that begins with this line; of the head of a loop, with what stands in
    it. Empty where it is not known."""
    own = own_statement.at(process, place)
    if own is None or isinstance(own.parsed.statement, _DEFINITIONS):
        return ""
    text = own.dedented(own.text)
    if isinstance(own.parsed.statement, _HEADS):
        text += "\n    ...  # as it is"
    return f"{head}\n{textwrap.indent(text, '    ')}"
