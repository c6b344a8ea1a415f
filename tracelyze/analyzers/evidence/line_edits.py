"""Edits of one line that a rule knows to be wrong in itself: an argument, a function's name, a call too many.

As in :mod:`edits`, every function answers None where it is not sure: where the line is not the one that ran, or holds
what is to be changed never or more than once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import edits
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracelyze.analyzers.recorded.run import Process

_SOFTMAX: Final = re.compile(r"(?<!\w)(?:log_)?softmax\(|(?<!\w)(?:Log)?Softmax\(")
_DIM: Final = re.compile(r"\bdim=-?\d+|(?<=\.softmax\()-?\d+(?=\))|(?<=\.log_softmax\()-?\d+(?=\))")
_FUNCTION: Final = r"(?<![\w.])(?:torch\.|F\.|(?:torch\.)?nn\.functional\.){name}\("
_SQRT: Final = re.compile(r"(?<![\w.])torch\.sqrt\(")
_OWN_SQRT: Final = re.compile(r"\.sqrt\(\)")
_FORWARD: Final = re.compile(r"(?<![\w.])(?P<model>(?!super)[A-Za-z_][\w.]*)\.forward\(")
_SHIFTED: Final = (
    "inputs, targets = tokens[:, :-1], tokens[:, 1:]\n"
    "loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())"
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][\w., ]* [-+*/]?= \S")
_RANDINT: Final = re.compile(r"(?<![\w.])torch\.randint\(")


def log_softmax(process: Process, place: Location | None) -> Diff | None:
    """The softmax of the line as log_softmax."""

    def changed(line: str) -> str:
        line = re.sub(r"(?<!\w)softmax\(", "log_softmax(", line)
        return re.sub(r"(?<!\w)Softmax\(", "LogSoftmax(", line)

    return _edit(process, place, changed if place and len(_SOFTMAX.findall(place.source)) == 1 else None)


def softmax_dimension(process: Process, place: Location | None, dimension: int) -> Diff | None:
    """The softmax of the line over this dimension, where the line says over which one it runs."""
    told = place is not None and len(_SOFTMAX.findall(place.source)) == len(_DIM.findall(place.source)) == 1

    def changed(line: str) -> str:
        return _DIM.sub(lambda found: f"dim={dimension}" if "=" in found[0] else str(dimension), line)

    return _edit(process, place, changed if told else None)


def without_activation(process: Process, place: Location | None, name: str) -> Diff | None:
    """The line of the model without its last activation, `Softmax` or `Sigmoid`: an identity in place of the module,
    what the function was given in place of its call."""
    module = re.compile(rf"(?<!\w)((?:torch\.)?nn\.){name}\([^()]*\)")
    call = re.compile(_FUNCTION.format(name=name.lower()))

    def changed(line: str) -> str:
        if len(module.findall(line)) == 1:
            return module.sub(r"\1Identity()", line)
        begin = call.search(line)
        end = _closing(line, begin.end()) if begin else None
        if begin is None or end is None or len(call.findall(line)) > 1:
            return line
        given, simple = _arguments(line[begin.end() : end])[0], line[end + 1 : end + 2] in ("", ",", ")")
        return line[: begin.start()] + given + line[end + 1 :] if simple else line

    return _edit(process, place, changed)


def without_retained_graph(process: Process, place: Location | None) -> Diff | None:
    """The backward without retain_graph=True."""
    return _edit(
        process, place, lambda line: re.sub(r"(\.backward\((?:[^()]*?))(?:, )?retain_graph=True(?=\))", r"\1", line)
    )


def clipped_at(process: Process, place: Location | None, limit: str) -> Diff | None:
    """The clip of the line with another max_norm."""

    def changed(line: str) -> str:
        begin = line.find("clip_grad_norm_(")
        start = begin + len("clip_grad_norm_(")
        end = _closing(line, start) if begin >= 0 else None
        arguments = _arguments(line[start:end]) if end is not None else []
        if len(arguments) < 2 or ("=" in arguments[1] and not arguments[1].startswith("max_norm=")):
            return line
        named = "max_norm=" if arguments[1].startswith("max_norm=") else ""
        return f"{line[:start]}{', '.join([arguments[0], named + limit, *arguments[2:]])}{line[end:]}"

    return _edit(process, place, changed)


def kept_from_zero(process: Process, place: Location | None) -> Diff | None:
    """The only square root of the line, of something that is never exactly zero."""

    def changed(line: str) -> str:
        functions, methods = _SQRT.findall(line), _OWN_SQRT.findall(line)
        if len(functions) + len(methods) != 1:
            return line
        if methods:
            return _OWN_SQRT.sub(".add(1e-8).sqrt()", line)
        begin = _SQRT.search(line)
        end = _closing(line, begin.end()) if begin else None
        return f"{line[:end]} + 1e-8{line[end:]}" if end is not None else line

    return _edit(process, place, changed)


def called_whole(process: Process, place: Location | None) -> Diff | None:
    """`model(x)` in place of `model.forward(x)`."""
    return _edit(process, place, lambda line: _FORWARD.sub(r"\g<model>(", line))


def anomalies_unseen(process: Process, place: Location | None) -> Diff | None:
    """Anomaly detection switched off."""
    return _edit(process, place, lambda line: line.replace("set_detect_anomaly(True)", "set_detect_anomaly(False)"))


def drawn_below(process: Process, place: Location | None, end: int) -> Diff | None:
    """torch.randint(0, end, ...) at the line that draws from less."""

    def changed(line: str) -> str:
        begin = _RANDINT.search(line)
        close = _closing(line, begin.end()) if begin else None
        if begin is None or close is None or len(_RANDINT.findall(line)) > 1:
            return line
        arguments = _arguments(line[begin.end() : close])
        if len(arguments) <= 2 or arguments[0] != "0" or "=" in arguments[1]:
            return line
        return f"{line[: begin.end()]}{', '.join(['0', str(end), *arguments[2:]])}{line[close:]}"

    return _edit(process, place, changed)


def line_for(process: Process, place: Location | None, line: str) -> Diff | None:
    """Another statement in place of the one that stands there."""
    return _edit(process, place, lambda _: line)


def under(process: Process, place: Location | None, head: str) -> Diff | None:
    """A whole statement inside of a block that begins with this line."""
    inserted = line_before(process, place, head)
    there = edits.statement(process, place) if place else None
    if inserted is None or there is None:
        return None
    line = "".join(there)
    return Diff(inserted.file, inserted.line, [line], [*inserted.added, f"    {line}"])


def shifted(place: Location | None) -> str:
    """The line of the loss with the token after each position as its target, for tensors of [batch, positions, ...];
    lines to copy where it does not flatten both of them."""
    flat = re.compile(r"(?P<name>[A-Za-z_]\w*)\.(?:reshape|view)\((?P<sizes>-1(?:, [^()]*)?)\)")
    found = flat.findall(place.source) if place else []
    if place is None or len(found) != len(("scores", "targets")):
        return _SHIFTED
    ends = iter(("[:, :-1]", "[:, 1:]"))
    line = flat.sub(lambda one: f"{one['name']}{next(ends)}.reshape({one['sizes']})", place.source)
    return f"{line}  # [batch, positions, ...]: each position is compared with the token after it"


def line_before(process: Process, place: Location | None, line: str) -> Diff | None:
    """Another statement in front of a whole one."""
    there = edits.statement(process, place) if place else None
    above = edits.recorded_lines(process, place).get(place.line - 1, "") if place else ""
    whole = there and _ASSIGNMENT.match(there[1]) and there[1].count("(") == there[1].count(")")
    if not place or not there or not whole or above.rstrip().endswith(("(", "[", "{", ",", "\\")):
        return None
    return Diff(place.file, place.line, [], [there[0] + line])


def _edit(process: Process, place: Location | None, changed: Callable[[str], str] | None) -> Diff | None:
    """The line as `changed` leaves it, None where that is the same."""
    there = edits.statement(process, place) if place else None
    if not place or not there or changed is None:
        return None
    line = changed(there[1])
    return Diff(place.file, place.line, ["".join(there)], [there[0] + line]) if line != there[1] else None


def _closing(line: str, start: int) -> int | None:
    """Where the bracket closes that was opened right before `start`."""
    depth = 1
    for at in range(start, len(line)):
        depth += (line[at] in "([{") - (line[at] in ")]}")
        if depth == 0:
            return at
    return None


def _arguments(text: str) -> list[str]:
    """The arguments of a call, split at the commas between them."""
    found, depth = [""], 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return [argument.strip() for argument in found]
