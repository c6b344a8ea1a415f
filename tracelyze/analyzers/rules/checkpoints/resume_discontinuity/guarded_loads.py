"""A function that restores the state of an optimizer or a scheduler only where it is given one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.settings import callers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_GUARD: Final = re.compile(r"if (?P<name>[A-Za-z_]\w*)(?: is not None)?(?: and .+)?:(?P<same>.*)")
_ASSIGNED: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*=(?!=)")


class Guarded(NamedTuple):
    """What a fix says of it; the call that passes none of them, and that call with them, where both are known."""

    fix: str
    call: Location | None
    code: str


def found(
    process: Process, read: Location | None, wanted: Mapping[str, re.Pattern[str]], made: Mapping[str, Location | None]
) -> Guarded | None:
    """Of the function that reads the file. `wanted`: by the names of states that were not restored, what arguments of
    theirs are called; `made`: the lines that make them. None where it restores none of them under a condition on an
    argument."""
    if read is None or read.function == "<module>":
        return None
    guards = _guards(recorded_text.of_function(process, read))
    head = callers.signature(process, read)
    optional = {name for name in guards if head is None or name in (*head.names, *head.defaults)}
    known = {state: [one for one in optional if pattern.search(one)] for state, pattern in wanted.items()}
    guarded = {state: one[0] for state, one in known.items() if len(one) == 1}
    if not guarded:
        return None
    lines = sorted(guards[one] for one in guarded.values())
    fix = (
        f"{read.function} restores the state of the {' and '.join(guarded)} only where it is given "
        f"{'one' if len(guarded) == 1 else 'them'} (line{'s' * (len(lines) > 1)} {' and '.join(map(str, lines))})."
    )
    names = dict(guarded)
    defaults = head.defaults if head is not None else {}
    for state, pattern in wanted.items():  # an argument whose use was not recorded
        unset = [one for one, value in defaults.items() if value == "None" and pattern.search(one)]
        names |= {state: unset[0]} if state not in names and len(unset) == 1 else {}
    them = " and ".join(names)
    called = _call_without(process, read, head, {*names.values()}) if head is not None else None
    if called is None:
        return Guarded(f"{fix} Pass the {them} where it is called.", None, "")
    code = _with_states(process, called, read.function, names, made)
    return Guarded(f"{fix} Pass the {them} in the call on line {called.own.line}.", called.place, code)


def _call_without(process: Process, read: Location, head: callers.Signature, names: set[str]) -> callers.Called | None:
    """The only recorded call of the function that passes none of these arguments."""
    calls = callers.of(process, read.function, read.file)
    given = [callers.given(one.call, head.names) for one in calls]
    without = [one for one, said in zip(calls, given, strict=True) if said is not None and not said & names]
    return without[0] if len(without) == 1 and None not in given else None


def _with_states(
    process: Process,
    called: callers.Called,
    function: str,
    names: Mapping[str, str],
    made: Mapping[str, Location | None],
) -> str:
    """The call with what the script made above it; empty where the name of one is not known."""
    text = called.own.text
    for state, name in names.items():
        value = _name_of(process, made.get(state), called.place)
        parsed = parsed_line.parse(text)
        calls = parsed.calls(function) if parsed is not None else []
        if not value or parsed is None or len(calls) != 1:
            return ""
        text = parsed.with_argument(calls[0], name, value) or ""
    return called.own.dedented(text)


def _guards(lines: Mapping[int, str]) -> dict[str, int]:
    """The names whose state is loaded directly under a condition on the name, with the line of the condition."""
    guards: dict[str, int] = {}
    for at, text in lines.items():
        head = _GUARD.fullmatch(code_of(text).strip())
        name = head["name"] if head is not None else ""
        loads = re.compile(rf"(?<![\w.]){re.escape(name)}\.load_state_dict\(")
        if head is not None and (loads.search(head["same"]) or loads.search(_block(lines, at))):
            guards[name] = at
    return guards


def _block(lines: Mapping[int, str], head: int) -> str:
    """What stands under a condition."""
    depth, at, inside = recorded_text.indent_of(lines[head]), head + 1, []
    while at in lines and (not lines[at].strip() or recorded_text.indent_of(lines[at]) > depth):
        inside.append(lines[at])
        at += 1
    return "\n".join(inside)


def _name_of(process: Process, made: Location | None, call: Location) -> str:
    """The name of what this line makes, where that stands above the call in the same function."""
    if made is None or made.file_function != call.file_function or made.line >= call.line:
        return ""
    own = own_statement.at(process, made)
    match = _ASSIGNED.match(own.text if own is not None else made.source)
    return match["name"] if match is not None else ""
