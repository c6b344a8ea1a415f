"""Targets of padding that count in a loss: the line to change, and what leaves them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import copied_labels
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.analyzers.script.settings import made_losses

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process

_FIX_WRITTEN: Final = (
    "Leave the positions that fill up out of the mean: multiply what each position costs by a mask, and divide by the "
    "number of real tokens. A target of -100 picks nothing here: the loss is written out."
)
_MASKED: Final = (
    "real = targets != {value}  # or: input_ids != pad_id, where real tokens have class {value} as well\n"
    "loss = (per_token * real).sum() / real.sum()  # per_token: what each position costs, before any mean"
)
_OF_IDS: Final = (
    "# above the loss, or in the collator that makes the labels: where the inputs are padding\n"
    "labels = labels.masked_fill(input_ids == pad_id, {ignored})\n"
    "# or, only if no real token has class {value}, as a class of tags may be:\n"
    "# labels = labels.masked_fill(labels == {value}, {ignored})"
)
_BY_CLASS: Final = (
    "labels = labels.masked_fill(labels == {value}, {ignored})  # right above the loss\n"
    "# or, where the loss is called or made: ignore_index={value}"
)
_IF_UNUSED: Final = " If no real token has class {value}, setting it as ignore_index is enough."
_NOWHERE_ELSE: Final = (
    " Or set class {value} as ignore_index: no other target in these calls has it, so no real token is lost."
)
_BEHIND_END: Final = (
    " Or set class {value} as ignore_index: apart from padding, it is only the target of id {end}, which stands right "
    "before the padding of every row. If {end} is the end symbol, no real token is lost."
)
_HANDED: Final = (
    "Line {line} hands on the labels, in which padding is class {value} (no real token may have that class)."
)
_UNSET: Final = -100  # torch's default of ignore_index
_LOSSES: Final = ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss")


def remedy(process: Process, line: Line, counted: list[Row], value: int) -> Remedy:
    """Its place is the line to change if that is not the one that computes the loss."""
    if line.function == loss_calls.WRITTEN:
        return Remedy(_FIX_WRITTEN, _MASKED.format(value=value))
    told = {row.get("ignore_index") for row in counted}
    known = next(iter(told)) if len(told) == 1 else None
    ignored = _UNSET if known is None else int(known)
    where = "usually" if known is None else "here"
    fix = (
        f"Give padded positions a target that the loss ignores, {where} {ignored}, and leave them out of accuracies, "
        "too."
    )
    copied = copied_labels.line(process, line.location)
    if copied is not None:
        entry = copied_labels.entry(process, copied)
        code = copied_labels.masked(copied) or (copied_labels.example(entry, ignored) if entry is not None else "")
        code = code or _OF_IDS.format(value=value, ignored=ignored)
        return Remedy(fix, code, copied, copied_labels.edit(entry, ignored) if entry is not None else None)
    place = copied_labels.handed(process, line.location)
    if place is not None and (given := copied_labels.masked_by_class(process, place, value, ignored)):
        return Remedy(f"{fix} {_HANDED.format(line=place.line, value=value)}", given, place)
    ends = {row["pad_behind"] for row in counted if row.get("pad_begins")}
    if {_elsewhere(row) for row in counted} != {0} or len(ends) > 1:
        return Remedy(fix + _IF_UNUSED.format(value=value), _OF_IDS.format(value=value, ignored=ignored))
    more = (_BEHIND_END if ends else _NOWHERE_ELSE).format(value=value, end=int(max(ends, default=0)))
    by_name = {_UNSET: ""}.get(ignored, r"|[A-Za-z_]")  # a name in another loss may be of any number
    setting = script_lines.only(process, "setting", rf"\bignore_index\s*=\s*(?:{ignored}\b{by_name})")
    own = own_statement.at(process, setting)
    text = own.with_argument(_LOSSES, "ignore_index", str(value)) if own is not None else ""
    if own is not None and text:
        return Remedy(fix + more, own.dedented(text), setting)
    made = None if by_name else made_losses.made(process, line.location, made_losses.OVER_CLASSES)
    if made is None:
        return Remedy(fix + more, _BY_CLASS.format(value=value, ignored=ignored))
    place, own = made
    text = own.with_argument(_LOSSES, "ignore_index", str(value))
    return Remedy(fix + more, own.dedented(text), place, None if ends else own.changed(text))


def _elsewhere(row: Row) -> float | None:
    """How many targets of this class are neither padding nor what the end symbol of a padded row is to say."""
    others = row.get("pad_elsewhere")
    return None if others is None else others - (row.get("pad_begins") or 0)
