"""The script's own line that writes a file, with the state of the model that is trained in place of another one's."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

EXAMPLE: Final = "torch.save(model.state_dict(), path)  # model: the one whose parameters the optimizer was given"
TO_GO_ON: Final = 'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)'
_WITH_A_PART: Final = (
    'torch.save({"model": model.state_dict(), "head": head.state_dict(), "optimizer": optimizer.state_dict()}, path)'
)
_OTHERS: Final = re.compile(
    r"opt|sched|scaler|epoch|step|config|args|metric|loss|score|best|acc|iter|seed|rng|time|version", re.IGNORECASE
)


def shown(to_go_on: bool) -> str:
    """An example of a file to go on from, or of one that holds weights alone."""
    return TO_GO_ON if to_go_on else EXAMPLE


def of_model(process: Process, place: Location | None, else_shown: str = EXAMPLE, keys: str | None = None) -> str:
    """The line, or the one that makes what it saves, with the only part that may be the weights replaced: a file has to
    keep the keys by which the script reads it (`keys`: its outermost ones, as far as they are known). Empty where
    several parts may be the weights; `else_shown` where no line is known."""
    if None in _saved(process, place):
        return else_shown
    found = weights(process, place, keys) or _copied_before(process, place)
    return found[0].dedented(found[0].parsed.with_parts({found[1]: "model.state_dict()"})) if found else ""


def _copied_before(process: Process, place: Location | None) -> tuple[OwnStatement, ast.expr] | None:
    """The line that saves a variable, and the variable, where another line makes it of one module's weights alone."""
    line, (own, saved) = own_statement.at(process, place), _saved(process, place)
    call = line.only_call("save") if line is not None else None
    if line is None or call is None or own is None or saved is None or own.line == line.line:
        return None
    states = [node for node in ast.walk(saved) if isinstance(node, ast.expr) and _is_state(node)]
    return (line, call.args[0]) if len(states) == 1 and _entries(saved) is None else None


def weights(process: Process, place: Location | None, keys: str | None) -> tuple[OwnStatement, ast.expr] | None:
    """The only part of what is saved that may be the weights, and the statement that it stands in."""
    own, saved = _saved(process, place)
    if own is None or saved is None:
        return None
    held = _entries(saved)
    if held is not None:
        parts = [value for key, value in held if not _OTHERS.search(key)]
    else:
        whole = isinstance(saved, ast.Name | ast.Attribute) and (not keys or "." in keys)
        parts = [saved] if whole or _is_state(saved) else []
    return (own, parts[0]) if len(parts) == 1 else None


def made_at(process: Process, place: Location | None) -> tuple[str, int] | None:
    """File and line of the statement that gives the variable its value which is saved at a place."""
    own, saved = _saved(process, place)
    return (own.file, own.line) if own is not None and saved is not None else None


def read_back(process: Process, place: Location | None, name: str) -> str:
    """The line that loads into a model of this name what the only state of a model in the file at `place` is; empty
    where that is not known."""
    (_own, saved), line = _saved(process, place), own_statement.at(process, place)
    call = line.only_call("save") if line is not None else None
    if saved is None or line is None or call is None or len(call.args) != 2:
        return ""
    held = _entries(saved)
    states = [f'["{key}"]' for key, value in held or [] if _is_state(value) and not _OTHERS.search(key)]
    if held is None:
        states = [""] if _is_state(saved) else []
    path = line.parsed.text_of(call.args[1])
    return f"{name}.load_state_dict(torch.load({path}){states[0]})" if len(states) == 1 else ""


def with_a_part(process: Process, place: Location | None) -> str:
    """The line that saves, with another module beside what is saved today."""
    return with_state(process, place, {"head": "head.state_dict()"}, _WITH_A_PART)


def with_state(process: Process, place: Location | None, added: Mapping[str, str], else_shown: str) -> str:
    """The line, or the one that makes what it saves, with these entries as well; `else_shown` where it holds no entries
    of its own: what reads the file goes on to find what it reads today."""
    own, saved = _saved(process, place)
    dictionary = next((node for node in ast.walk(saved) if isinstance(node, ast.Dict)), None) if saved else None
    if own is None or saved is None or dictionary is None or not dictionary.keys:
        return else_shown
    more = ", ".join(f'"{key}": {value}' for key, value in added.items())
    inside = own.parsed.text_of(dictionary)[1:-1]
    text = inside.rstrip()
    last, end = text.rpartition("\n")[2], inside[len(text) :]
    if "#" in last:
        return else_shown
    comma = "" if text.endswith(",") else ","
    alone = "\n" in end and "\n" in text  # each entry stands on a line of its own, and so does the bracket
    more = f"\n{last[: len(last) - len(last.lstrip())]}{more},{end}" if alone else f" {more}"
    return own.dedented(own.parsed.with_parts({dictionary: f"{{{text}{comma}{more}}}"}))


def _saved(process: Process, place: Location | None) -> tuple[OwnStatement | None, ast.expr | None]:
    """The statement that saves, and what; of a variable the only statement above that makes it, and its value."""
    own = own_statement.at(process, place)
    call = own.only_call("save") if own is not None else None
    if own is None or place is None or call is None or not call.args or not own.is_whole:
        return None, None
    saved = call.args[0]
    if isinstance(saved, ast.Name):
        made = _made(process, place, saved.id)
        if made is not None and isinstance(made.parsed.statement, ast.Assign):
            return made, made.parsed.statement.value
    return own, saved


def _made(process: Process, place: Location, name: str) -> OwnStatement | None:
    """The only recorded statement above a place that gives a variable its value."""
    lines = recorded_text.of_function(process, place)
    heads = [at for at, text in lines.items() if at < place.line and re.match(rf"\s*{re.escape(name)}\s*=(?!=)", text)]
    if len(heads) != 1:
        return None
    return own_statement.at(process, place.at(heads[0], lines[heads[0]]))


def _entries(saved: ast.expr) -> list[tuple[str, ast.expr]] | None:
    """Keys and values of the dictionaries in it; None where it has none."""
    found = [node for node in ast.walk(saved) if isinstance(node, ast.Dict)]
    pairs = [pair for node in found for pair in zip(node.keys, node.values, strict=True)]
    return [(str(key.value), value) for key, value in pairs if isinstance(key, ast.Constant)] if found else None


def _is_state(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) == "state_dict"
