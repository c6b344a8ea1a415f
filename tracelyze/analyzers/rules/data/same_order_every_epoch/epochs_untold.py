"""Samplers that draw their order from the number of the epoch, where nobody tells them that number."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script import called, recorded_text
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process


_EPOCHS: Final = re.compile(r"(?P<indent>\s*)for (?P<epoch>[A-Za-z]\w*) in [^#]*:\s*")
_OVER: Final = re.compile(r"\s*for .+ in (?:\w+\()?(?P<loader>[A-Za-z_][\w.]*)[^\w.(].*")
_SEEDABLE: Final = "SeedableRandomSampler"  # Accelerate's: its loader tells it which pass this is
_LEAVES: Final = re.compile(r"\s*(?:break|return)\b")
_OF_THE_LOADER: Final = re.compile(r"(?<!batch_sampler)\.sampler\.set_epoch\s*\(")


@dataclass(frozen=True)
class Untold:
    """Why the order repeats, what to change, and where. `certain`: torch's own sampler does nothing else.
    `left`: passes end early, at the same place of the same order."""

    why: str
    fix: str
    code: str
    location: Location | None
    diff: Diff | None
    certain: bool
    left: bool = False


def shuffles(loader: Mapping[str, Any]) -> bool:
    """Whether a loader is to give a new order in each pass: torch's own sampler draws one, or a sampler of the script's
    own takes the number of the epoch."""
    return bool(loader["shuffled"] or (loader["shuffled"] is None and loader.get("takes_epoch")))


def of(process: Process, loader: Mapping[str, Any]) -> Untold | None:
    """None where the sampler takes no number of an epoch."""
    if loader["sampler"] == _SEEDABLE:
        return _uncounted(process, loader)
    own = not loader["shuffled"]
    if not own and "Distributed" not in loader["sampler"]:
        return None
    holder = str(loader.get("takes_epoch") or "sampler")
    place, diff = _loop_over_epochs(process, loader, holder)
    why = "The sampler derives its order from its seed and the epoch number, which nothing sets."
    told = process.locations("set-epoch")
    if own:
        why = (
            f"{loader['sampler']} has a set_epoch, so its order should follow the epoch number: either nothing passes "
            "it that number, or it does not read it."
        )
    if len(told) == 1:
        place = place or told[0]
        why += f" Line {told[0].line} calls a set_epoch: is it reached, and on this sampler?"
        if holder.startswith("batch_sampler") and _OF_THE_LOADER.search(told[0].source):
            why += f" Beside batch_sampler=, the loader's `sampler` is another one, which nothing asks; see `{holder}`."
    return Untold(
        why=why,
        fix=f"Call set_epoch(epoch) on the loader's {holder} before iterating over the loader.",
        code=f"loader.{holder}.set_epoch(epoch)  # the first line in the loop over epochs",
        location=place,
        diff=diff,
        certain=not own,
    )


def _uncounted(process: Process, loader: Mapping[str, Any]) -> Untold:
    """Accelerate's sampler: its loader counts a pass when it has been read to its end."""
    place, diff = _loop_over_epochs(process, loader, "")
    over = process.site(loader.get("site"))
    leaves = _left_at(process, over)
    left = f" Line {leaves} leaves the loop over it before that." if leaves else ""
    return Untold(
        why="Accelerate's sampler derives its order from a seed and the number of the pass, which its loader counts up "
        f"only when it has been read to its end.{left}"
        + " The order begins again with each pass, so samples behind the place where it is left are never seen."
        * bool(leaves),
        fix="Call set_epoch(epoch) on the loader that prepare() gave, before each pass over it. Or read on where the "
        "pass before ended, with one iterator for all epochs.",
        code="loader.set_epoch(epoch)  # the first line in the loop over epochs",
        location=place or over,
        diff=diff,
        certain=bool(leaves),
        left=bool(leaves),
    )


def _left_at(process: Process, over: Location | None) -> int:
    """The line that leaves the loop over a loader early; 0 where none was recorded."""
    texts = recorded_text.around(process, over) if over is not None else {}
    depth = recorded_text.indent_of(texts.get(over.line, "")) if over is not None else 0
    for at in sorted(at for at in texts if over is not None and at > over.line):
        if texts[at].strip() and recorded_text.indent_of(texts[at]) <= depth:
            break
        if _LEAVES.match(texts[at]):
            return at
    return 0


def _loop_over_epochs(process: Process, loader: Mapping[str, Any], holder: str) -> tuple[Location | None, Diff | None]:
    """The loop over epochs around the one over this loader, or that calls its function, and the edit that tells its
    `holder`, a sampler of it, the epoch: only where that loop knows the very variable that holds the loader."""
    loop, over, made = process.location("epochs"), process.site(loader.get("site")), process.site(loader.get("made_at"))
    if loop is None or over is None or loop.file != over.file:
        return None, None
    text = recorded_text.around(process, loop).get(loop.line, "")
    head, named = _EPOCHS.fullmatch(text), _OVER.fullmatch(over.source)
    if head is None:
        return None, None
    if loop.function == over.function:
        if over.line <= loop.line:
            return None, None
        own = named is not None and made is not None and made.function == loop.function
        name = named["loader"] if named is not None and made is not None and own else ""
        name = name if made is not None and called.assigned(made) == name else ""
    else:
        call = _call_in(process, loop, over.function)
        if call is None:
            return None, None
        name = _given(process, call, over, named["loader"]) if named is not None else ""
    if not name:
        return loop, None
    told = f"{head['indent']}    {'.'.join(filter(None, (name, holder)))}.set_epoch({head['epoch']})"
    return loop, Diff(loop.file, loop.line, [text], [text, told])


def _call_in(process: Process, loop: Location, function: str) -> ast.Call | None:
    """The only call of a function in the recorded lines of a loop, on one line."""
    texts = recorded_text.around(process, loop)
    depth = recorded_text.indent_of(texts.get(loop.line, ""))
    found: list[ast.Call] = []
    for line in sorted(at for at in texts if at > loop.line):
        text = texts[line]
        if text.strip() and recorded_text.indent_of(text) <= depth:
            break
        parsed = parsed_line.parse(text.strip()) if re.search(rf"\b{re.escape(function)}\s*\(", text) else None
        found += parsed.calls(function) if parsed is not None else []
    return found[0] if len(found) == 1 else None


def _given(process: Process, call: ast.Call, over: Location, loader: str) -> str:
    """What a call gives a function under the name of the loader that it goes over, where that is a plain name; a
    loader that an object keeps, if the call is one of its own methods."""
    if loader.startswith("self."):
        return loader if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "self" else ""
    heads = [text.strip() for text in recorded_text.around(process, over).values()]
    heads = [text for text in heads if re.match(rf"def {re.escape(over.function)}\b.*:$", text)]
    try:
        made = ast.parse(f"{heads[0]} pass").body[0] if len(heads) == 1 else None
    except SyntaxError:
        return ""
    if not isinstance(made, ast.FunctionDef) or any(isinstance(one, ast.Starred) for one in call.args):
        return ""
    taken = [one.arg for one in (*made.args.posonlyargs, *made.args.args)]
    taken = taken[isinstance(call.func, ast.Attribute) and taken[:1] == ["self"] :]
    given = dict(zip(taken, call.args, strict=False)) | {str(one.arg): one.value for one in call.keywords}
    value = given.get(loader)
    return ast.unparse(value) if isinstance(value, ast.Name | ast.Attribute) else ""
