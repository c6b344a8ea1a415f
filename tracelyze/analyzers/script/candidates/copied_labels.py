"""The line that copies ids into labels, where a framework or the model itself computes the loss of them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

_IDS, _MASK, _LABELS, _IGNORED = "input_ids", "attention_mask", "labels", -100
_COPIES: Final = ("list", "copy", "deepcopy")
_SAMPLES: Final = ("dataset", "sample")  # functions that read one sample, which others may fill up later
_NOT_EMPTY: Final = r"^(?!.*=\s*(?:\[\s*\]|list\(\))\s*(?:[,#]|$))"  # a list that is made fills nothing in yet


class Entry(NamedTuple):
    """Labels that a dictionary is given as a copy of its ids: the statement, their value, the ids as they are written,
    and the attention mask beside them."""

    own: OwnStatement
    value: ast.expr
    ids: str
    mask: ast.expr | None


def assigned(process: Process) -> Location | None:
    """The only line that assigns labels; empty lists, which are filled in elsewhere, aside."""
    return script_lines.only(process, "labels", _NOT_EMPTY)


def line(process: Process, seen: Location | None) -> Location | None:
    """The only line that makes labels, where the line at which the loss was seen computes none of its own: it runs a
    framework's loop (`trainer.train()`), or hands labels to a model."""
    return made(process) if seen is not None and _is_handed_on(process, seen) else None


def handed(process: Process, seen: Location | None) -> Location | None:
    """The only line at which a dictionary of a batch is given labels that are no copy of its ids, where the loss is
    computed as in :func:`line` and no line assigns labels. Those of single samples may be filled up later."""
    if seen is None or not _is_handed_on(process, seen) or process.locations("labels"):
        return None
    places = sorted(process.locations("labels-given"), key=lambda one: one.function.startswith("<"), reverse=True)
    lines = {one.file_line: one for one in places}  # in the function itself rather than in a comprehension of it
    samples = process.functions(*_SAMPLES)
    found = [one for one in lines.values() if one.file_function not in samples]
    return found[0] if len(found) == 1 else None


def masked_by_class(process: Process, place: Location, value: int, ignored: int) -> str:
    """What is given as the labels of a batch at a place, with one class ignored; empty where that is not known."""
    own = own_statement.at(process, place)
    found = (
        [given[_LABELS] for node in ast.walk(own.parsed.tree) if _LABELS in (given := _entries(node))] if own else []
    )
    if own is None or len(found) != 1:
        return ""
    text = own.dedented(own.parsed.text_of(found[0]))
    if isinstance(found[0], ast.Name):
        return f"{text} = {text}.masked_fill({text} == {value}, {ignored})  # above line {own.line}"
    return (
        f"labels = {text}  # above line {own.line}\n"
        f"labels = labels.masked_fill(labels == {value}, {ignored})\n"
        f'# and in line {place.line}: "{_LABELS}": labels'
    )


def _is_handed_on(process: Process, seen: Location) -> bool:
    """Whether a line runs a framework's loop, or hands labels to a model."""
    loops = {one.file_line for one in process.locations("step")}
    return seen.file_line in loops or "labels=" in seen.source.replace(" ", "")


def made(process: Process) -> Location | None:
    """The only line that assigns labels. In a script that assigns none, the only one that has a dictionary hold a copy
    of the ids as labels, where padding is known to be beside it: not in what reads a sample without its mask."""
    if _are_assigned(process):
        return assigned(process)
    lines = list({one.file_line: one for one in process.locations("labels-given")}.values())
    found = entry(process, lines[0]) if len(lines) == 1 else None
    if found is None or (found.mask is None and lines[0].file_function in process.functions(*_SAMPLES)):
        return None
    return lines[0] if found.mask is None or not _is_all_ones(found.own, found.mask) else None


def entry(process: Process, place: Location | None) -> Entry | None:
    """The labels of the only dictionary in the statement at a place, where they are a copy of its ids."""
    own = own_statement.at(process, place)
    found = [given for node in ast.walk(own.parsed.tree) if _LABELS in (given := _entries(node))] if own else []
    if own is None or len(found) != 1 or _IDS not in found[0]:
        return None
    value, ids = found[0][_LABELS], own.parsed.text_of(found[0][_IDS])
    return Entry(own, value, ids, found[0].get(_MASK)) if own.parsed.text_of(_copied(value)) == ids else None


def copied(process: Process) -> Location | None:
    """The only line at which a dictionary is given a copy of its ids as labels, in a script in which no line assigns
    labels but those that make empty lists."""
    if _are_assigned(process):
        return None
    places = {one.file_line: one for one in process.locations("labels-given")}.values()
    found = [one for one in places if entry(process, one) is not None]
    return found[0] if len(found) == 1 else None


def without_prompt(found: Entry) -> str:
    """The labels of the entry with the prompt ignored; empty where they are the ids themselves, or a part of these."""
    line = found.own.line
    masked = f"labels[..., :prompt_length] = {_IGNORED}"
    made = found.own.dedented(found.own.parsed.text_of(found.value))
    if _holds_list(found):  # or an array, which would be added to the numbers in front of it
        masked = "# where these are the ids of one row"
        made = f"[{_IGNORED}] * prompt_length + list({found.ids}[prompt_length:])"
    elif not isinstance(found.value, ast.Call):
        return ""
    return f"labels = {made}  # above line {line}\n{masked}\n# and in line {line}: {_key(found)}labels"


def edit(found: Entry, ignored: int) -> Diff | None:
    """The entry with padding set to the target that is ignored, by the mask beside it; None where it may hold lists,
    which are no tensors."""
    clones = isinstance(found.value, ast.Call) and parsed_line.name_of(found.value.func) == "clone"
    if found.mask is None or not clones:
        return None
    mask, ids = found.own.parsed.operand(found.mask), found.own.parsed.operand(_copied(found.value))
    masked = f"{ids}.masked_fill({mask} == 0, {ignored})"
    return found.own.changed(found.own.parsed.with_parts({found.value: masked}))


def example(found: Entry, ignored: int) -> str:
    """The entry with padding ignored where it holds a list, by the mask beside it; empty where it may hold a tensor."""
    if found.mask is None or not _holds_list(found):
        return ""
    mask = found.own.parsed.text_of(found.mask)
    masked = f"[token if real else {ignored} for token, real in zip({found.ids}, {mask})]"
    return f"{_key(found)}{masked},  # where the ids are those of one row"


def _are_assigned(process: Process) -> bool:
    return any(re.search(_NOT_EMPTY, one.source) for one in process.locations("labels"))


def _holds_list(found: Entry) -> bool:
    return isinstance(found.value, ast.Call) and parsed_line.name_of(found.value.func) in _COPIES


def _key(found: Entry) -> str:
    """What the entry of the labels begins with, in a dictionary or among the arguments of `dict`."""
    return f'"{_LABELS}": ' if re.search(rf"[\"']{_LABELS}[\"']", found.own.text) else f"{_LABELS}="


def _entries(node: ast.AST) -> dict[str, ast.expr]:
    """What a dictionary that is written out holds, by the names of its entries."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.Call) and parsed_line.name_of(node.func) == "dict":
        return {one.arg: one.value for one in node.keywords if one.arg is not None}
    return {}


def _copied(value: ast.expr) -> ast.expr:
    """What a value is a copy of; itself where it is none."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not value.args:
        return value.func.value if value.func.attr in ("clone", "copy") else value
    if isinstance(value, ast.Call) and len(value.args) == 1 and parsed_line.name_of(value.func) in _COPIES:
        return value.args[0]
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        return value if value.slice.lower or value.slice.upper or value.slice.step else value.value
    return value


def _is_all_ones(own: OwnStatement, mask: ast.expr) -> bool:
    """Whether a mask attends to everything: nothing is filled up there yet."""
    text = own.parsed.text_of(mask).replace(" ", "")
    return "ones" in text or text.startswith("[1]*")


def masked(place: Location) -> str:
    """The line that copies ids into labels, with padding ignored by the attention mask beside the ids; empty where it
    reads otherwise."""
    parsed = parsed_line.parse(place.source)
    made = parsed.statement if parsed is not None else None
    if parsed is None or not isinstance(made, ast.Assign) or len(made.targets) != 1:
        return ""
    target, value = parsed.text_of(made.targets[0]), made.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "clone":
        ids = parsed.text_of(value.func.value)
        return f"{target} = {ids}.masked_fill({_beside(ids)} == 0, {_IGNORED})" if _beside(ids) else ""
    if not isinstance(value, ast.ListComp) or len(value.generators) != 1 or value.generators[0].ifs:
        return ""
    rows, elements = (parsed.text_of(one) for one in (value.generators[0].iter, value.generators[0].target))
    copied = isinstance(value.elt, ast.Call) and parsed_line.name_of(value.elt.func) in _COPIES
    if not _beside(rows) or not (copied or parsed.text_of(value.elt) in (elements, f"{elements}[:]")):
        return ""
    return (
        f"{target} = [\n    [token if real else {_IGNORED} for token, real in zip(ids, mask)]\n"
        f"    for ids, mask in zip({rows}, {_beside(rows)})\n]"
    )


def _beside(ids: str) -> str:
    """What holds the attention mask, where `ids` is what holds the ids: `batch["input_ids"]` or `batch.input_ids`."""
    return ids.replace(_IDS, _MASK) if ids.endswith((f"['{_IDS}']", f'["{_IDS}"]', f".{_IDS}")) else ""
