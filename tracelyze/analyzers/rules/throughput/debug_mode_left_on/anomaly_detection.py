"""The line that switches anomaly detection on, what that depends on, and what to do about it.

Where an option decides, `if args.debug:`, the advice to put it under a condition would not help: the option was true.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.recorded.run import location_of
from tracelyze.analyzers.script import line_edits, recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.analyzers.script.settings import constants
from tracelyze.diagnosis import Location, Setting

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff

FIX: Final = "Turn it on for a few steps, or under a condition, and leave it off otherwise."
_CODE: Final = "torch.autograd.set_detect_anomaly(debug)  # debug: True only while you look for a NaN"
_BLOCK: Final = """with torch.autograd.set_detect_anomaly(debug):  # debug: True only while you look for a NaN
    ...  # the block, as it is"""
_FRAMEWORK: Final = "detect_anomaly=False  # what the Trainer is given"
_HEAD: Final = re.compile(r"if\b(?P<test>[^#]+):\s*(?:#.*)?")
_CALLS: Final = ("set_detect_anomaly", "detect_anomaly")
_ARGUMENTS: Final = ("mode", "check_nan", "enabled")
_READS: Final = 'lambda word: word.lower() in ("1", "true", "yes")'


class SwitchedOn(NamedTuple):
    """`said`: how an option came to be true, for a summary; `setting`: what a constant elsewhere may set."""

    place: Location | None
    fix: str = FIX
    code: str = _CODE
    said: str = ""
    diff: Diff | None = None
    setting: Setting | None = Setting(_ARGUMENTS, (True,), "False")


class _Switch(NamedTuple):
    """The option that decides, as the script writes it, and the line that asks for it: the head of an `if`, or a call
    that is given the option."""

    option: str
    place: Location
    is_head: bool


def of(process: Process) -> SwitchedOn:
    """The only line of the script that does it, else none with advice for any."""
    place = script_lines.only(process, "anomaly")
    switch = _switch(process, place) if place is not None else None
    if switch is not None:
        return _by_word(process, switch) or _by_option(switch)
    if not process.locations("anomaly") and script_lines.only(process, "setting", r"\bdetect_anomaly\s*="):
        return SwitchedOn(None, code=_FRAMEWORK)
    block = place is not None and place.source.startswith(("with ", "async with "))
    return SwitchedOn(place, code=_BLOCK if block else _CODE, diff=line_edits.anomalies_unseen(process, place))


def _by_option(switch: _Switch) -> SwitchedOn:
    code = f"{switch.option} = False  # where it is set"
    setting = Setting(() if switch.is_head else _ARGUMENTS, (True,), "False")
    return SwitchedOn(
        switch.place, f"Leave {switch.option} off, but for a few steps.", code, _held(switch), None, setting
    )


def _held(switch: _Switch) -> str:
    return f" Line {switch.place.line} switches it on by {switch.option}, which was true."


def _switch(process: Process, place: Location) -> _Switch | None:
    """What decides whether the line runs, or what it is given: one option, and nothing else beside it."""
    lines = recorded_text.of_file(process, place.file)
    own = own_statement.at(process, place)
    if option := _option(place.source):
        return _Switch(option, place, is_head=True)
    above = lines.get(place.line - 1, "")
    if recorded_text.indent_of(above) < recorded_text.indent_of(lines.get(place.line, "")) and _option(above):
        return _Switch(_option(above), place.at(place.line - 1, above), is_head=True)
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)] if own is not None else []
    for call in (one for one in calls if name_of(one.func) in _CALLS):
        named = [one.value for one in call.keywords if one.arg in _ARGUMENTS]
        for given in (one for one in [*named, *call.args[:1]] if _is_plain(one)):
            return _Switch(ast.unparse(given), place, is_head=False)
    return None


def _option(line: str) -> str:
    """What the head of an `if` asks for, where that is one name: a comparison may hold for a few steps alone."""
    head = _HEAD.fullmatch(line.strip())
    test = parsed_line.parse(head["test"].strip()) if head is not None else None
    statement = test.statement if test is not None else None
    return ast.unparse(statement.value) if isinstance(statement, ast.Expr) and _is_plain(statement.value) else ""


def _is_plain(node: ast.expr) -> bool:
    """`debug`, `args.debug` or `config["debug"]`."""
    if isinstance(node, ast.Subscript):
        return _is_plain(node.value) and isinstance(node.slice, ast.Constant)
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_plain(node.value))


def _was_to_be_off(process: Process, name: str) -> bool:
    """Whether the command line gives the option a word for False, `--debug False` or `--debug=0`."""
    argv = process.facts.get("argv")
    words = " ".join(str(word) for word in argv) if isinstance(argv, list) else ""
    given = re.search(rf"--{re.escape(name)}[ =](\w+)", words.replace("-", "_").replace("__", "--"))
    return given is not None and given[1].lower() in ("false", "no", "off", "0", "f", "n")


def _by_word(process: Process, switch: _Switch) -> SwitchedOn | None:
    """By `add_argument("--debug", type=bool)`, the only line that declares the option: it takes each word for True."""
    name = re.findall(r"\w+", switch.option)[-1]
    rows = [row for row in process.sites.records() if row["role"] == "constant" and row["name"] == name]
    places = {(row["file"], row["line"]): row for row in rows}
    if len(places) != 1 or (constants.is_on_the_command_line(process, name) and not _was_to_be_off(process, name)):
        return None
    (row,) = places.values()
    place = location_of(row)
    own = own_statement.at(process, place)
    call = own.only_call("add_argument") if own is not None else None
    given = [one.value for one in call.keywords if one.arg == "type"] if call is not None else []
    if own is None or call is None or not given or not isinstance(given[0], ast.Name) or given[0].id != "bool":
        return None
    flags = [str(one.value) for one in call.args if isinstance(one, ast.Constant)]
    flag = next((one for one in flags if one.startswith("--")), name)
    diff = own.changed(own.parsed.with_parts({given[0]: _READS}))
    said = f" Line {own.line} reads {flag} with type=bool, which takes every word for True, the word False as well."
    fix = f"Leave {flag} out of the arguments, or let line {own.line} tell the words apart."
    return SwitchedOn(place, fix, f"type={_READS}", _held(switch) + said, diff, None)
