"""The line of the script that puts the begin-of-text token into a text, or its id in front of others, and the same line
without it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.analyzers.evidence.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.own_statement import OwnStatement
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_TEMPLATE: Final = "apply_chat_template"
_AS_TEXT: Final = re.compile(r"\btokenize\s*=\s*False\b")  # else the tokens are made there, and no second one is added
_PROMPT: Final = re.compile(r"\badd_generation_prompt\s*=\s*True\b")
_WRITES: Final = re.compile(r"\{[\w.]*\bbos_token\}|\bbos_token\s*\+|\+\s*[\w.]*\bbos_token\b")
_ID: Final = "bos_token_id"
_AHEAD: Final = re.compile(r"\[\s*[\w.]*\bbos_token_id\s*[\],]")  # in a list of ids


def place(process: Process) -> Location | None:
    """The only line that renders a template as text, prompts for answers aside; else the only one that writes the token
    into a string, or begins a list with its id."""
    lines = {one.file_line: one for one in process.locations("begin-text")}
    texts = {at: _text(process, one) for at, one in lines.items()}
    rendered = [lines[at] for at, text in texts.items() if _TEMPLATE in text and _AS_TEXT.search(text)]
    apart = [one for one in rendered if not _PROMPT.search(texts[one.file, one.line])]
    writes, ahead = ([lines[at] for at, text in texts.items() if one.search(text)] for one in (_WRITES, _AHEAD))
    for found in (apart, rendered, writes, ahead):
        if found:
            return found[0] if len(found) == 1 else None
    return None


def without(process: Process, line: Location | None) -> str:
    """The statement that renders the template, with the token taken off its text, or that puts the id in front of a
    list, without it; empty where that is not known."""
    own = own_statement.at(process, line)
    ahead = _put_ahead(own) if own is not None and own.is_whole else None
    if own is not None and ahead is not None:
        return own.dedented(own.parsed.with_parts({ahead: own.parsed.text_of(ahead.right)}))
    call = own.only_call(_TEMPLATE) if own is not None and own.is_whole else None
    if own is None or call is None or not _AS_TEXT.search(own.parsed.text_of(call)):
        return ""
    tokenizer = own.parsed.text_of(call.func).rpartition(".")[0]
    text = f"{own.parsed.text_of(call)}.removeprefix({tokenizer}.bos_token)"
    return own.dedented(own.parsed.with_parts({call: text})) if tokenizer else ""


def _put_ahead(own: OwnStatement) -> ast.BinOp | None:
    """The only sum of the statement whose first part is a list that holds the id alone."""
    sums = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add)]
    found = [one for one in sums if isinstance(one.left, ast.List) and [name_of(id_) for id_ in one.left.elts] == [_ID]]
    return found[0] if len(found) == 1 else None


def puts_id(process: Process, line: Location | None) -> bool:
    """Whether the line writes no text, but puts the id itself in front of others."""
    return line is not None and _AHEAD.search(_text(process, line)) is not None


def _text(process: Process, line: Location) -> str:
    own = own_statement.at(process, line)
    return own.text if own is not None else line.source
