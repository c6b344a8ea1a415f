"""Input and targets of a sequence model that are cut out of one tensor in the same way: `ids[:, 1:]` both."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.candidates import copied_labels
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_CUT: Final = re.compile(r"^(\s*)([A-Za-z_]\w*)(\s*=\s*)([A-Za-z_][\w.]*)\[((?::,\s*)?)(1:|:-1)\](.*)$")
_OTHER: Final = {"1:": ":-1", ":-1": "1:"}
FIX: Final = (
    "Line {line} cuts {whole} as line {other} does: give the model all but the last token, and make its targets all "
    "but the first."
)
_MADE: Final = re.compile(r"^(?P<indent>\s*)(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<value>.*\[.*:.*\].*)$")
_HANDED_OUT: Final = r"\s*(?:return|yield)\s*\(?\s*(?:\({0}, {1}\)|{0}, {1})\b"
_NEAR: Final = 6  # lines below both, in which they are handed out
LATER: Final = "Line {line} makes the targets as line {other} makes the inputs: take them one position later."
_COPY: Final = re.compile(r"(?P<name>\w+) = (?P<whole>[A-Za-z_][\w.]*)\.(?:clone|copy)\(\)")
UNKNOWN: Final = "the targets of this next-token model were not shifted."


def remedy(process: Process, loss: Location | None) -> Remedy | None:
    """Where two lines of the function that computes a loss cut one tensor alike: what one of them makes is given to the
    model, and what the other one makes to the loss."""
    if loss is None:
        return None
    found = {at: cut for at, line in recorded_text.of_function(process, loss).items() if (cut := _CUT.match(line))}
    calls = [one.source for one in process.locations("training-call") if one.file_function == loss.file_function]
    given = {at: cut for at, cut in found.items() if any(_names(cut[2], call) for call in calls)}
    targets = {at: cut for at, cut in found.items() if _names(cut[2], loss.source)}
    if len(given) != 1 or len(targets) != 1 or given.keys() == targets.keys():
        return None
    (read, model), (told, target) = *given.items(), *targets.items()
    if model.group(4, 5, 6) != target.group(4, 5, 6):
        return None
    at, other, cut = (read, told, model) if model[6] == "1:" else (told, read, target)
    line = f"{cut[1]}{cut[2]}{cut[3]}{cut[4]}[{cut[5]}{_OTHER[cut[6]]}]{cut[7]}"
    return Remedy(
        FIX.format(line=at, other=other, whole=cut[4]),
        code=line.strip(),
        place=loss.at(at, cut[0]),
        diff=Diff(loss.file, at, [cut[0]], [line]),
        why=f"lines {min(read, told)} and {max(read, told)} cut both out of {cut[4]} in the same way.",
    )


def not_shifted(process: Process) -> str:
    """What is known of targets that are the tokens at their own positions, where no line cuts them out: that the only
    line which makes labels copies the ids."""
    line = copied_labels.assigned(process)
    copy = _COPY.fullmatch(code_of(line.source).strip()) if line is not None else None
    if line is None or copy is None:
        return UNKNOWN
    return f"line {line.line} makes {copy['name']} a copy of {copy['whole']}, which nothing shifts after that."


def handed_out(process: Process) -> Remedy | None:
    """Where two lines, one below the other, make by one expression the pair that a function hands out, such as inputs
    and targets of a batch: the only such place. Text that is cut later may end sooner: what it is read from is to be
    one longer, so that this is no edit."""
    texts = {one.file_line: one for one in recorded_text.lines(process)}
    found = [cut for one in texts.values() if (cut := _pair_at(texts, one)) is not None]
    return found[0] if len(found) == 1 else None


def _pair_at(texts: dict[tuple[str, int], Location], first: Location) -> Remedy | None:
    second = texts.get((first.file, first.line + 1))
    one, other = _MADE.match(first.source), _MADE.match(second.source) if second is not None else None
    if second is None or one is None or other is None or one["name"] == other["name"]:
        return None
    if one.group("indent", "value") != other.group("indent", "value"):
        return None
    below = [texts.get((first.file, second.line + more)) for more in range(1, _NEAR + 1)]
    for given, target, place, beside in ((one, other, second, first), (other, one, first, second)):
        pattern = re.compile(_HANDED_OUT.format(re.escape(given["name"]), re.escape(target["name"])))
        later = _one_later(place.source.strip())
        if later and any(line is not None and pattern.match(line.source) for line in below):
            return Remedy(
                LATER.format(line=place.line, other=beside.line),
                code=later,
                place=place.at(place.line, place.source),
                why=f"lines {first.line} and {second.line} make both by the same expression.",
            )
    return None


def _one_later(source: str) -> str:
    """The statement with its only slice one position later; empty where there is none with a begin and an end."""
    line = parsed_line.parse(source)
    slices = [node for node in ast.walk(line.tree) if isinstance(node, ast.Slice)] if line is not None else []
    whole = [node for node in slices if node.lower is not None and node.upper is not None and node.step is None]
    if line is None or len(whole) != 1:
        return ""
    (only,) = whole
    parts = {bound: f"{line.operand(bound)} + 1" for bound in (only.lower, only.upper) if bound is not None}
    parts = {
        bound: f"{line.text_of(bound)} + 1" if isinstance(bound, ast.BinOp) and isinstance(bound.op, ast.Add) else text
        for bound, text in parts.items()
    }
    return line.with_parts(parts)


def _names(name: str, source: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)(?!\s*=(?!=))", source) is not None
