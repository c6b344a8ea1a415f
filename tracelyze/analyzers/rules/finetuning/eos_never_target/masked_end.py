"""What leaves the end of a text out of the targets, and how it counts: a line that masks by its id or from one position
of a row on, or a padding token that is the same."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.finetuning.eos_never_target import labelled_spans, masked_by_id
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.candidates import copied_labels
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

SHARES: Final = "Usually the padding token is also the end-of-text token, so masking the padding masks the end."
APART: Final = (
    "Padding has an id of its own, {padding}: what leaves the padding behind a text out of the targets leaves its end "
    "out as well."
)
COPIED: Final = (
    "The labels are ignored but for what line {line} copies into them: the end symbol is never in such a span."
)
NOT_COPIED: Final = "The labels begin as ignored everywhere, and what then makes some of them count leaves the end out."
SLICED: Final = "Line {line}, the only one of the script that writes -100, does so from one position of a row on."
OWN_ID: Final = (
    "Give padding its own id, or mask it by attention_mask instead of by id, and make sure that each text ends in the "
    "end-of-text token."
)
BEGINS_EARLY: Final = (
    "Let the target that is id {end} count: what masks the labels behind a text begins one position too early."
)
ENDS_EARLY: Final = "Let the target that is id {end} count: a span of labels that count has to reach over it."
BEHIND: Final = "  # line {line}, where the end symbol stands right behind such a span"
KEPT: Final = (
    "labels = labels.masked_fill(input_ids == {padding}, -100)"
    "  # in place of what masks id {end} as well; prompts stay masked"
)
RESIZED: Final = "model.resize_token_embeddings(len(tokenizer))  # right after the model is made"
_PADDED: Final = re.compile(r"\bpad_token_id\s*=\s*[\w.]+\.pad_token_id\b")
_SAME: Final = re.compile(r"(?P<tokenizer>[\w.]+)\.pad_token\s*=\s*(?P=tokenizer)\.eos_token\b")
_IGNORED: Final = "-100"


def remedy(process: Process, end: int, padding: int | None, shared: Location | None) -> Remedy:
    """Why the end of a text is no target, and what to do about it. It depends on what masks the end: a line that masks
    by its id, one that masks to the end of a row, labels that stop short of it where padding has another id, or a
    padding token that is the end-of-text token (`shared`: the line that makes both the same)."""
    masking = masked_by_id.line(process)
    place = masking or copied_labels.assigned(process) or shared
    why = SHARES if padding is None else APART.format(padding=padding)
    labels = masked_by_id.example(process, masking, end)
    if masking is None and shared is None:
        sliced = _to_the_end_of_a_row(process)
        if sliced is not None:
            why = SLICED.format(line=sliced[0].line)
            return Remedy(BEGINS_EARLY.format(end=end), f"{sliced[1]}  # line {sliced[0].line}", sliced[0], why=why)
        if labelled_spans.begin_ignored(process):
            return _of_spans(process, end)
        if padding is not None:
            return Remedy(BEGINS_EARLY.format(end=end), KEPT.format(end=end, padding=padding), place, why=why)
    if masking is not None:
        return Remedy(f"{OWN_ID} Line {masking.line} masks by the id.", labels, place, why=why)
    fix = OWN_ID + script_lines.said(shared, "makes both the same")
    if not shared and not _mentions(process, "tokeniz"):
        return Remedy(fix, labels, place, why=why)
    where = f"in place of line {shared.line}" if shared else "right below the line that makes it"
    same = _SAME.match(shared.source) if shared else None
    named = same["tokenizer"] if same else "tokenizer"
    added, room = f'{named}.add_special_tokens({{"pad_token": "<pad>"}})', _with_room(process)
    if not room and same is not None and place == shared and (own := own_statement.at(process, shared)) is not None:
        return Remedy(fix, added, place, own.changed(own.text.replace(same[0], added)), why=why)
    code = "\n".join(filter(None, [f"{added}  # {where}", room, "# or, where you make the labels:", f"# {labels}"]))
    return Remedy(fix, code, place, why=why)


def _with_room(process: Process) -> str:
    """The model with a row for the new id: right after it is made; or by its configuration, if that takes the id of the
    padding from the tokenizer, as it is refused there beyond its rows. Empty where that has one row for each id of the
    tokenizer already."""
    for place in recorded_text.matching(process, _PADDED):
        own = own_statement.at(process, place)
        for call in (node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)) if own else ():
            given = {one.arg for one in call.keywords}
            if own is not None and name_of(call.func).endswith("Config") and "pad_token_id" in given:
                padding = next(own.parsed.text_of(one.value) for one in call.keywords if one.arg == "pad_token_id")
                tokenizer = padding.removesuffix(".pad_token_id")
                sizes = [own.parsed.text_of(one.value) for one in call.keywords if one.arg == "vocab_size"]
                if sizes == [f"len({tokenizer})"]:
                    return ""
                sized = own.parsed.with_argument(call, "vocab_size", f"len({tokenizer})")
                return own.dedented(sized) if sized else RESIZED
    return RESIZED


def _of_spans(process: Process, end: int) -> Remedy:
    """Where labels begin as ignored: the only line that copies into them, else what makes them, and no example."""
    copied, fix = labelled_spans.only(process), ENDS_EARLY.format(end=end)
    if copied is None:
        return Remedy(fix, "", copied_labels.assigned(process), why=NOT_COPIED)
    line = copied.place.line
    return Remedy(fix, copied.later + BEHIND.format(line=line), copied.place, why=COPIED.format(line=line))


def _to_the_end_of_a_row(process: Process) -> tuple[Location, str] | None:
    """The line that writes -100 from a position on, where none but it does, and the line with the next position."""
    written = [place for place in process.locations("ignored") if "ignore_index" not in place.source]
    if len({place.file_line for place in written}) != 1 or _mentions(process, "datacollator"):
        return None
    own = own_statement.at(process, written[0])
    begin = None if own is None else _begin(own.parsed.statement)
    if own is None or begin is None:
        return None
    text = ast.unparse(begin)
    later = f"{text} + 1" if isinstance(begin, (ast.Name, ast.Attribute, ast.Call)) else f"({text}) + 1"
    return written[0], ast.unparse(ast.parse(own.parsed.with_parts({begin: later}).strip()))


def _begin(statement: ast.stmt) -> ast.expr | None:
    """Where `labels[begin:] = -100`, or `labels[..., begin:]`, begins; None of a number, or if counted from behind."""
    if not isinstance(statement, ast.Assign) or ast.unparse(statement.value) != _IGNORED or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    part = target.slice if isinstance(target, ast.Subscript) else None
    part = part.elts[-1] if isinstance(part, ast.Tuple) and part.elts else part
    if not isinstance(part, ast.Slice) or part.upper is not None or part.step is not None:
        return None
    return None if part.lower is None or isinstance(part.lower, (ast.Constant, ast.UnaryOp)) else part.lower


def _mentions(process: Process, word: str) -> bool:
    return any(word in text.lower() for text in recorded_text.everything(process))
