"""The line of the script that puts the begin-of-text token into a text, and the same line without it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_TEMPLATE: Final = "apply_chat_template"
_AS_TEXT: Final = re.compile(r"\btokenize\s*=\s*False\b")  # else the tokens are made there, and no second one is added
_PROMPT: Final = re.compile(r"\badd_generation_prompt\s*=\s*True\b")
_WRITES: Final = re.compile(r"\{[\w.]*\bbos_token\}|\bbos_token\s*\+|\+\s*[\w.]*\bbos_token\b")


def place(process: Process) -> Location | None:
    """The only line that renders a template as text, prompts for answers aside; else the only one that writes the token
    into a string."""
    lines = {(one.file, one.line): one for one in process.locations("begin-text")}
    texts = {at: _text(process, one) for at, one in lines.items()}
    rendered = [lines[at] for at, text in texts.items() if _TEMPLATE in text and _AS_TEXT.search(text)]
    apart = [one for one in rendered if not _PROMPT.search(texts[one.file, one.line])]
    for found in (apart, rendered, [lines[at] for at, text in texts.items() if _WRITES.search(text)]):
        if found:
            return found[0] if len(found) == 1 else None
    return None


def without(process: Process, line: Location | None) -> str:
    """The statement that renders the template, with the token taken off its text; empty where that is not known."""
    own = own_statement.at(process, line)
    call = own.only_call(_TEMPLATE) if own is not None and own.is_whole else None
    if own is None or call is None or not _AS_TEXT.search(own.parsed.text_of(call)):
        return ""
    tokenizer = own.parsed.text_of(call.func).rpartition(".")[0]
    text = f"{own.parsed.text_of(call)}.removeprefix({tokenizer}.bos_token)"
    return own.dedented(own.parsed.with_parts({call: text})) if tokenizer else ""


def _text(process: Process, line: Location) -> str:
    own = own_statement.at(process, line)
    return own.text if own is not None else line.source
