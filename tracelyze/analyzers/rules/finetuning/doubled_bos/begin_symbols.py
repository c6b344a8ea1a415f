"""The line of the script that puts the begin-of-text token into a text, or its id in front of others, and the same line
without it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine

_TEMPLATE: Final = "apply_chat_template"
_AS_TEXT: Final = re.compile(r"\btokenize\s*=\s*False\b")  # else the tokens are made there, and no second one is added
_PROMPT: Final = re.compile(r"\badd_generation_prompt\s*=\s*True\b")
_WRITES: Final = re.compile(r"\{[\w.]*\bbos_token\}|\bbos_token\s*\+|\+\s*[\w.]*\bbos_token\b")
_ID: Final = "bos_token_id"
_AHEAD: Final = re.compile(r"\[\s*[\w.]*\bbos_token_id\s*[\],]")  # in a list of ids
_FILLED: Final = re.compile(r"\b(?:full|new_full|full_like)\s*\(.*\bbos_token_id\b", re.DOTALL)  # a column of it
_TRAINS: Final = ("training-call", "loss", "backward", "collate", "sample")


def place(process: Process) -> Location | None:
    """The only line that renders a template as text, prompts for answers aside; else the only one that writes the token
    into a string, or begins a list with its id, or fills a tensor with it where the script trains."""
    lines = {one.file_line: one for one in process.locations("begin-text")}
    texts = {at: _text(process, one) for at, one in lines.items()}
    rendered = [lines[at] for at, text in texts.items() if _TEMPLATE in text and _AS_TEXT.search(text)]
    apart = [one for one in rendered if not _PROMPT.search(texts[one.file, one.line])]
    writes, ahead = ([lines[at] for at, text in texts.items() if one.search(text)] for one in (_WRITES, _AHEAD))
    trains = process.functions(*_TRAINS)
    filled = [lines[at] for at, text in texts.items() if _FILLED.search(text) and lines[at].file_function in trains]
    for found in (apart, rendered, writes, ahead, filled):
        if found:
            return found[0] if len(found) == 1 else None
    return None


def without(process: Process, line: Location | None) -> str:
    """The statement that renders the template, with the token taken off its text, or that puts the id in front of a
    list or a tensor, without it; empty where that is not known."""
    own = own_statement.at(process, line)
    if line is not None and own is not None and _FILLED.search(own.text):
        return _shifted(process, line, own)
    ahead = _put_ahead(own) if own is not None and own.is_whole else None
    if own is not None and ahead is not None:
        return own.dedented(own.parsed.with_parts({ahead: own.parsed.text_of(ahead.right)}))
    call = own.only_call(_TEMPLATE) if own is not None and own.is_whole else None
    if own is None or call is None or not _AS_TEXT.search(own.parsed.text_of(call)):
        return ""
    tokenizer = own.parsed.text_of(call.func).rpartition(".")[0]
    text = f"{own.parsed.text_of(call)}.removeprefix({tokenizer}.bos_token)"
    return own.dedented(own.parsed.with_parts({call: text})) if tokenizer else ""


def tokenized(process: Process, line: Location | None) -> tuple[Location, str] | None:
    """The only line below that gives the rendered text, by its name, to the same tokenizer; and the line with
    add_special_tokens=False."""
    own = own_statement.at(process, line)
    call = own.only_call(_TEMPLATE) if own is not None and own.is_whole else None
    made = own.parsed.statement if own is not None else None
    if line is None or own is None or call is None or not isinstance(made, ast.Assign) or made.value is not call:
        return None
    tokenizer, name = own.parsed.text_of(call.func).rpartition(".")[0], own.parsed.text_of(made.targets[0])
    found = []
    for number, text in sorted(recorded_text.of_function(process, line).items()):
        parsed = parsed_line.parse(text.strip()) if number > line.line and f"{tokenizer}(" in text else None
        calls = [one for one in ast.walk(parsed.tree) if isinstance(one, ast.Call)] if parsed is not None else []
        for one in calls:
            given = parsed.text_of(one.args[0]) if parsed is not None and one.args else ""
            if parsed is not None and parsed.text_of(one.func) == tokenizer and given == name:
                edited = parsed.with_argument(one, "add_special_tokens", "False") or ""
                found.append((line.at(number, text), edited))
    return found[0] if len(found) == 1 and found[0][1] not in ("", found[0][0].source) else None


def _put_ahead(own: OwnStatement) -> ast.BinOp | None:
    """The only sum of the statement whose first part is a list that holds the id alone."""
    sums = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add)]
    found = [one for one in sums if isinstance(one.left, ast.List) and [name_of(id_) for id_ in one.left.elts] == [_ID]]
    return found[0] if len(found) == 1 else None


def _shifted(process: Process, line: Location, filled: OwnStatement) -> str:
    """In place of the statement that puts a column of the id in front of rows but their last id: inputs and targets of
    these rows, which begin with it already."""
    made = filled.parsed.statement
    names = [filled.parsed.text_of(one) for one in made.targets] if isinstance(made, ast.Assign) else []
    for number, text in sorted(recorded_text.of_function(process, line).items()):
        parsed = parsed_line.parse(text.strip()) if number >= line.line else None
        joined = parsed.statement if parsed is not None else None
        for call in parsed.calls("cat", "concat", "concatenate", "hstack") if parsed is not None else ():
            parts = call.args[0] if call.args and isinstance(call.args[0], ast.List | ast.Tuple) else None
            whole = parts is not None and len(parts.elts) == 2 and isinstance(joined, ast.Assign)
            if parsed is None or parts is None or not whole or not isinstance(joined, ast.Assign):
                continue
            first, rows = parts.elts
            inside = names and parsed.text_of(first) in names
            if joined.value is call and (inside or _FILLED.search(parsed.text_of(first))):
                return _inputs_and_targets(parsed.text_of(joined.targets[0]), parsed, rows)
    return ""


def _inputs_and_targets(inputs: str, line: ParsedLine, rows: ast.expr) -> str:
    if not isinstance(rows, ast.Subscript):
        return f"{inputs} = {line.text_of(rows)}  # which begin with it already"
    whole = line.text_of(rows.value)
    if line.text_of(rows.slice).replace(" ", "") not in (":,:-1", "...,:-1"):
        return ""
    return f"{inputs}, {whole} = {line.text_of(rows)}, {whole}[:, 1:]  # inputs, and the targets behind them"


def puts_id(process: Process, line: Location | None) -> bool:
    """Whether the line writes no text, but puts the id itself in front of others."""
    text = _text(process, line) if line is not None else ""
    return bool(_AHEAD.search(text) or _FILLED.search(text))


def _text(process: Process, line: Location) -> str:
    own = own_statement.at(process, line)
    return own.text if own is not None else line.source
