"""The line that leaves parameters out of an optimizer by their names, in the function that makes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.computed.gradients.trainable import tensor_names
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

_TEST: Final = re.compile(
    r"""^if (?:(?:\w*name\w*|n|k|key)\.(?P<how>startswith|endswith)\((?P<q>["'])(?P<end>[^"']+)(?P=q)\)"""
    r"""|(?P<quote>["'])(?P<part>[^"']+)(?P=quote) in (?:\w*name\w*|n|k|key)):$"""
)
_FIX: Final = (
    "Take out line {line}, with the continue below it, so that a group takes these parameters in: a tensor with two "
    "names comes only once from named_parameters(). Where one was meant to be the same tensor as another, tie them "
    "again instead. Set requires_grad_(False) on parameters that should stay fixed."
)


class Passed(NamedTuple):
    """What the line does, what to do, the line, and the edit that takes it out."""

    said: str
    fix: str
    place: Location
    diff: Diff


def of(optimization: Optimization, names: list[str]) -> Passed | None:
    """The only line above the optimizer, in its function, that passes over parameters by their names, if it does so
    with all of these."""
    made = optimization.made_at
    lines = recorded_text.of_function(optimization.process, made) if made is not None else {}
    tests = {at: found for at, line in lines.items() if (found := _TEST.match(code_of(line).strip()))}
    tests = {at: found for at, found in tests.items() if code_of(lines.get(at + 1, "")).strip() == "continue"}
    if made is None or len(tests) != 1 or not names or any(map(tensor_names.is_nameless, names)):
        return None
    ((at, found),) = tests.items()
    if at > made.line or not all(_holds(found, name) for name in names):
        return None
    what = f'whose names contain "{found["part"]}"'
    if found["end"]:
        what = f'whose names {"begin" if found["how"] == "startswith" else "end"} with "{found["end"]}"'
    return Passed(
        f"Line {at} passes over parameters {what}.",
        _FIX.format(line=at),
        made.at(at, lines[at]),
        Diff(made.file, at, [lines[at], lines[at + 1]], []),
    )


def _holds(test: re.Match[str], name: str) -> bool:
    if test["part"]:
        return test["part"] in name
    return name.startswith(test["end"]) if test["how"] == "startswith" else name.endswith(test["end"])
