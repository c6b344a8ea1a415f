"""The hook that multiplies a gradient by a mask, or sets its first rows to 0, and so keeps rows of an embedding as they
are."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_MASK: Final = re.compile(
    r"register_hook\(\s*lambda (?P<g>\w+): (?P=g) \* (?P<inverse>\(\s*1(?:\.0*)?\s*-\s*)?(?P<mask>[A-Za-z_][\w.]*)"
    r"\s*(?(inverse)\)\s*)\)"
)
_SIDE: Final = re.compile(
    r"^\[\s*(?:(?P<from>[A-Za-z_][\w.]*)\s*:|:\s*(?P<to>[A-Za-z_][\w.]*))\s*\]\s*=\s*(?P<value>[01])(?P<rest>\.0*)?$"
)
_NAMED: Final = re.compile(r"register_hook\(\s*(?P<hook>[A-Za-z_]\w*)\s*\)")
_FIRST_ROWS: Final = re.compile(
    r"^(?P<grad>[A-Za-z_]\w*)\[\s*:\s*(?P<count>[A-Za-z_][\w.]*)\s*\](?:\s*=\s*0(?:\.0*)?|\s*\*=\s*0(?:\.0*)?|\.zero_\(\))$"
)
_ABOVE: Final = 8  # lines of a hook between its first one and the one that registers it


def remedy(process: Process, before: int, rows: int) -> Remedy | None:
    """What the only hook of a tensor does to these new rows, from number `before` on, if it masks a gradient."""
    hook = script_lines.only(process, "hook")
    found = _MASK.search(hook.source) if hook is not None else None
    if hook is None:
        return None
    if found is None:
        return _of_first_rows(process, hook, before)
    mask = found["mask"]
    if (turned := _other_side(process, hook, found)) is not None:
        return turned
    if found["inverse"]:
        why = (
            f"The weight is trainable. Line {hook.line}, the only one of the script that registers a hook on a tensor, "
            f"multiplies a gradient by 1 - `{mask}`: rows in which `{mask}` is 1 stay as they are."
        )
        code = f"{mask}[{before}:] = 0.0  # above line {hook.line}: new rows train"
        return Remedy(f"Let `{mask}` be 0 in rows {before:,} to {rows - 1:,}.", code, hook, why=why)
    why = (
        f"The weight is trainable. Line {hook.line}, the only one of the script that registers a hook on a tensor, "
        f"multiplies a gradient by `{mask}`: rows in which that is 0 stay as they are."
    )
    code = f"{mask}[{before}:] = 1.0  # above line {hook.line}: new rows train"
    return Remedy(f"Let `{mask}` be 1 in rows {before:,} to {rows - 1:,}.", code, hook, why=why)


def _other_side(process: Process, hook: Location, found: re.Match[str]) -> Remedy | None:
    """The only line of the function that sets rows of the mask, if it is the new ones that it takes the gradient from:
    with those below it in their place."""
    lines, mask = recorded_text.of_function(process, hook), found["mask"]
    texts = {at: code_of(line).strip() for at, line in lines.items()}
    given = {at: text.removeprefix(mask) for at, text in texts.items() if text.startswith(f"{mask}[")}
    ((at, text),) = given.items() if len(given) == 1 else [(0, "")]
    side = _SIDE.match(text)
    if side is None or at > hook.line or (bound := side["from"] or side["to"]) is None:
        return None
    stays = "1" if found["inverse"] else "0"
    if (side["value"] == stays) is (side["from"] is None):  # it keeps the first rows, as it should, or is not all
        return None
    place = replace(hook, line=at, source=lines[at].strip())
    own = own_statement.at(process, place)
    rows = f"[{bound}:]" if side["to"] else f"[:{bound}]"
    text = f"{mask}{rows} = {side['value']}{side['rest'] or ''}"
    why = (
        f"The weight is trainable. Line {hook.line}, the only one of the script that registers a hook on a tensor, "
        f"multiplies a gradient by {'1 - ' if found['inverse'] else ''}`{mask}`: rows in which `{mask}` is {stays} "
        f"stay as they are. Line {at} has that turned round: the new rows are held, and the old ones train."
    )
    fix = f"Turn the rows of line {at} round, so that the old ones are held and the new ones train."
    return Remedy(fix, text, place, own.changed(text) if own is not None else None, why)


def _of_first_rows(process: Process, hook: Location, before: int) -> Remedy | None:
    """What to do where the function that a hook is set to stands right above, and sets the first rows to 0."""
    lines, named = recorded_text.of_file(process, hook.file), _NAMED.search(hook.source)
    depth = recorded_text.indent_of(lines.get(hook.line, ""))
    found: dict[int, re.Match[str]] = {}
    for at in range(hook.line - 1, hook.line - _ABOVE, -1):
        text = lines.get(at, "")
        if named is None or (text.strip() and recorded_text.indent_of(text) <= depth):
            found = found if named is not None and re.match(rf"\s*def {named['hook']}\(", text) else {}
            break
        zeroed = _FIRST_ROWS.match(code_of(text).strip())
        if zeroed is not None:
            found[at] = zeroed
    if named is None or len(found) != 1:
        return None
    ((at, zeroed),) = found.items()
    count = zeroed["count"]
    why = (
        f"The weight is trainable. Line {hook.line}, the only one of the script that registers a hook on a tensor, "
        f"gives it `{named['hook']}`. Right above, line {at} sets a gradient to 0 in all rows below `{count}`. The new "
        f"rows begin at {before:,}."
    )
    fix = (
        f"Let `{count}` be {before:,} in line {at}, and no more: rows from there on train. A length that is read after "
        "the tokens were added, of the tokenizer or of the embedding, counts them, too: read it before."
    )
    code = f"{zeroed['grad']}[:{before}] = 0  # in place of line {at}: the new rows keep their gradient"
    place = replace(hook, line=at, source=lines[at].strip(), function=named["hook"])
    return Remedy(fix, code, place, why=why)
