"""Samples on both sides of a split because the data held copies of them before: oversampled, repeated, augmented.

Copies are met more often than others, so that the share of the validation data which is trained on cannot be estimated
from the part that was looked at. What was met is known.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.diagnosis import Location
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.splits.overlap import Overlap
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Finding

FIX: Final = "Split first, and copy or oversample the training part alone."
_COPIES: Final = re.compile(
    r"=.*(?:\b\w*(?:over_?sampl|re_?sampl|up_?sampl|duplicat|replicat|repeat|augment|balanc|smote|tile\b)\w*)\s*\(",
    re.IGNORECASE,
)
_NO_DATA: Final = re.compile(
    r"rng|rand|gen|seed|path|file|dir|cfg|conf|arg|opt|size|count|num|^n_?\w?$|^[a-z]$", re.IGNORECASE
)
_PARTS: Final = 2  # of a split: the training data and what is held out
_ONCE: Final = re.compile(r"\breplace(?:ment)?\s*=\s*False")


def told(finding: Finding, found: Overlap, process: Process) -> Finding:
    """The finding of shared samples, where many samples have an equal one in the same pass."""
    met = percent(found.hits / found.looked)
    copied = made_above(process, finding.location)
    return replace(
        finding,
        title=f"{met} of the validation samples checked are also in the training data",
        summary=(
            f"{found.hits:,} of the {found.looked:,} distinct samples checked in validation were also seen in "
            f"training. {percent(found.doubled)} of the samples in a pass over them occur twice or more: the data held "
            "copies before the split. On these, validation measures memorisation, so its numbers are too good."
        ),
        fix=FIX,
        fix_code=split_first(process, beside(process, finding.location, copied), copied) or finding.fix_code,
        diff=None,
        evidence=[
            replace(one, value=found.hits / found.looked) if one.name == "share trained on" else one
            for one in finding.evidence
            if one.name != "standard error of that share"
        ],
        location=copied or finding.location,
        seen_at=finding.location if copied is not None else finding.seen_at,
        false_alarm="Recordings of different things that are equal.",
    )


def repeated_above(process: Process, split: Location | None) -> bool:
    """Whether the only line above the split that gives data to a function and takes them back calls one that draws some
    of them again: fewer equal samples then tell that there are copies."""
    return len(_drawn_again(process, split) or _drawn_again(process, _called_at(process, split))) == 1


def made_above(process: Process, split: Location | None) -> Location | None:
    """The only line above the split, in its function, that assigns what a function named after copies returns; else the
    only one that gives data to a function of the script which draws some of them again, and takes them back. Where the
    split stands in a function of its own, it may be a line above the call of that."""
    for place in (split, _called_at(process, split)):
        named = [one for one in _above(process, place) if _COPIES.search(code_of(one.source))]
        if found := named or _drawn_again(process, place):
            return script_lines.only_of(found)
    return None


def _drawn_again(process: Process, split: Location | None) -> list[Location]:
    """The lines above the split that give data to a function which draws some of them again, and take them back."""
    repeating = _repeating(process)
    return [one for one in _above(process, split) if _gives_back(one) in repeating]


def _called_at(process: Process, split: Location | None) -> Location | None:
    """The only line that calls the function in which the split stands."""
    name = split.function if split is not None and split.function.isidentifier() else ""
    calls = re.compile(rf"(?<![\w.]){name}\s*\(")
    places = [one for one in process.locations("split-call") if split is not None and one.file == split.file]
    return script_lines.only_of([one for one in places if name and one.function != name and calls.search(one.source)])


def beside(process: Process, split: Location | None, copied: Location | None) -> Location | None:
    """The split, or the call of its function, in the function that makes the copies."""
    apart = split is not None and copied is not None and split.file_function != copied.file_function
    return _called_at(process, split) if apart else split


def split_first(process: Process, split: Location | None, copied: Location | None) -> str:
    """The script's own split into two parts, of what the call that copies is given, and that call below it for one of
    them; empty where the call is given more, or gives back anything but what is split."""
    own, given = own_statement.at(process, split), copied and _given(copied)
    if own is not None and copied is not None and not given:
        return _all_first(own, copied)
    made = own.parsed.statement if own is not None else None
    parts = made.targets[0] if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    train = parts.elts[0] if isinstance(parts, ast.Tuple) and len(parts.elts) == _PARTS else None
    if own is None or copied is None or not given or not isinstance(train, ast.Name):
        return ""
    target, before = given
    targets, _, divides = own.text.partition("=")
    if not _is(target).search(divides):
        return ""
    called = code_of(copied.source).partition("=")[2]
    again = f"{train.id} ={_is(before).sub(train.id, called)}  # these alone"
    return own.dedented(f"{targets}={_is(target).sub(before, divides)}") + f"\n{again}"


def _all_first(own: OwnStatement, copied: Location) -> str:
    """The same where the call that copies is given several names and gives all of them back: the split divides each,
    into one pair of tuples, or side by side as train_test_split does."""
    parsed, made = parsed_line.of(copied), own.parsed.statement
    again = parsed.statement if parsed is not None and _gives_back(copied) else None
    names = again.targets[0] if isinstance(again, ast.Assign) else None
    parts = made.targets[0] if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    if not isinstance(names, ast.Tuple) or not isinstance(parts, ast.Tuple):
        return ""
    targets, (first, flat) = [ast.unparse(one) for one in names.elts], (parts.elts[0], parts.elts[::_PARTS])
    whole = len(parts.elts) == _PARTS and isinstance(first, ast.Tuple)
    train = first.elts if whole and isinstance(first, ast.Tuple) else flat if own.only_call("train_test_split") else []
    divides = own.text.partition("=")[2]
    if len(train) != len(targets) or not all(isinstance(one, ast.Name) for one in train):
        return ""
    if not all(_is(name).search(divides) for name in targets):
        return ""
    line = code_of(copied.source)
    for name, part in zip(targets, train, strict=True):
        line = _is(name).sub(ast.unparse(part), line)
    return f"{own.dedented(own.text)}\n{line}  # these alone"


def _is(name: str) -> re.Pattern[str]:
    """A name, and neither a longer one, an attribute, nor an argument's."""
    return re.compile(rf"(?<![\w.]){name}\b(?!=(?!=))")


def _given(line: Location) -> tuple[str, str] | None:
    """The name that a line assigns, and the only one that its call is given in its place, as in `x = copies(x, 3)`."""
    parsed = parsed_line.of(line)
    made = parsed.statement if parsed is not None else None
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.value, ast.Call):
        return None
    target, names = made.targets[0], [one.id for one in made.value.args if isinstance(one, ast.Name)]
    if not isinstance(target, ast.Name) or not (target.id in names or len(names) == 1):
        return None
    if target.id not in names and _NO_DATA.search(names[0]):
        return None
    return target.id, target.id if target.id in names else names[0]


def _above(process: Process, split: Location | None) -> list[Location]:
    """The recorded lines of the function in which a split stands, above it."""
    lines = recorded_text.of_function(process, split) if split is not None else {}
    return [split.at(number, text) for number, text in lines.items() if split is not None and number < split.line]


def _repeating(process: Process) -> set[str]:
    """The functions of the script that draw something again, or repeat it."""
    return {one.function for one in process.locations("repeats") if not _ONCE.search(one.source)}


def _gives_back(line: Location) -> str:
    """The function of `X, y = function(X, y, ...)`; empty for a line that does not assign what it gives."""
    parsed = parsed_line.of(line)
    made = parsed.statement if parsed is not None else None
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.value, ast.Call):
        return ""
    targets = made.targets[0].elts if isinstance(made.targets[0], ast.Tuple) else made.targets
    given = {one.id for one in made.value.args if isinstance(one, ast.Name)}
    back = all(isinstance(one, ast.Name) and one.id in given for one in targets)
    return parsed_line.name_of(made.value.func) if back else ""
