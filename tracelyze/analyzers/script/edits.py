"""Edits of the user's program that a rule knows to be right, made from the lines that were recorded around a place.

Every function answers None where it is not sure: a line that is not a plain statement, that stands in another function
than the line it depends on, or whose neighbours were not recorded. A reader who applies an edit has a working script.
"""

from __future__ import annotations

import ast
import re
import textwrap
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracelyze.analyzers.recorded.run import Optimization, Process

STEP: Final = re.compile(r"(?P<optimizer>[A-Za-z_][\w.]*)\.step\(\)")
SCALER_STEP: Final = re.compile(r"(?P<scaler>[A-Za-z_.]*[Ss]caler\w*)\.step\((?P<optimizer>[A-Za-z_][\w.]*)\)")
SCALED_BACKWARD: Final = re.compile(r"(?P<scaler>[A-Za-z_.]*[Ss]caler\w*)\.scale\(.+\)\.backward\(\)")
BACKWARD: Final = re.compile(r"(?P<loss>[A-Za-z_][\w.]*)\.backward\(\)")
CLEAR: Final = re.compile(r"[A-Za-z_][\w.]*\.zero_grad\((set_to_none=\w+)?\)")
_READS_GRADIENTS: Final = re.compile(r"\.grad\b|norm\w*\s*\(")
_STRETCH: Final = 12  # lines that one edit may show, most of them as they were


def of_several(
    process: Process, places: list[Location], edit: Callable[[Process, Location], Diff | None]
) -> Diff | None:
    """The same edit at places that stand together in one function, from the first to the last; None where one of them,
    or what stands between them, is not known."""
    made = [one for place in places if (one := edit(process, place)) is not None]
    if not made or len(made) < len(places):
        return None
    text = recorded_text.around(process, places[0])
    first, last = made[0].line, made[-1].line + len(made[-1].removed) - 1
    if last - first >= _STRETCH or any(at not in text for at in range(first, last + 1)):
        return made[0] if len(made) == 1 else None
    removed, added = list[str](), list[str]()
    for one in made:
        between = [text[at] for at in range(first + len(removed), one.line)]
        removed, added = [*removed, *between, *one.removed], [*added, *between, *one.added]
    return Diff(made[0].file, first, removed, added)


def clear_after_step(optimization: Optimization) -> Diff | None:
    """zero_grad right behind the only line at which the optimizer steps."""
    return cleared_behind(optimization.process, _only(optimization.process, "step"))


def clear_after_own_step(optimization: Optimization) -> Diff | None:
    """zero_grad right behind the line at which this one of several optimizers steps, where a single line makes all
    backwards: none of another loss fills the gradients between that step and the next backward."""
    process = optimization.process
    return cleared_behind(process, optimization.step_location) if _only(process, "backward") else None


def cleared_behind(process: Process, step: Location | None) -> Diff | None:
    """zero_grad right behind a line at which an optimizer steps."""
    found = step and recorded_text.line_at(process, step)
    match = found and (STEP.fullmatch(found[1]) or SCALER_STEP.fullmatch(found[1]))
    if not step or not found or not match:
        return None
    return Diff(step.file, step.line + 1, [], [f"{found[0]}{match['optimizer']}.zero_grad()"])


def clear_all(optimization: Optimization) -> Diff | None:
    """The optimizer's own zero_grad in place of that of a part of the model."""
    clear, step = _only(optimization.process, "zero_grad"), _only(optimization.process, "step")
    there = clear and recorded_text.line_at(optimization.process, clear)
    stepped = step and STEP.fullmatch(step.source)
    if not clear or not there or not stepped or not _same_function(clear, step) or not CLEAR.fullmatch(there[1]):
        return None
    return Diff(clear.file, clear.line, ["".join(there)], [f"{there[0]}{stepped['optimizer']}.zero_grad()"])


def clear_before_backward(optimization: Optimization) -> Diff | None:
    """zero_grad moved from behind the backward to before it, where both stand close together at one depth."""
    process = optimization.process
    clear, backward = _only(process, "zero_grad"), _only(process, "backward")
    there, done = (
        clear and recorded_text.line_at(process, clear),
        backward and recorded_text.line_at(process, backward),
    )
    excerpt = clear and recorded_text.excerpt_of(process, clear)
    if not clear or not backward or not there or not done or not excerpt or not _same_function(clear, backward):
        return None
    between = excerpt.lines[backward.line - excerpt.first_line : clear.line - excerpt.first_line]
    if backward.line < excerpt.first_line or not between or not CLEAR.fullmatch(there[1]) or there[0] != done[0]:
        return None
    return Diff(backward.file, backward.line, [*between, "".join(there)], ["".join(there), *between])


def clear_behind_the_step(optimization: Optimization, clear: Location | None) -> Diff | None:
    """The line that clears, moved from above the step to right behind it, where both stand close together at one depth
    and no backward runs in between."""
    process = optimization.process
    step = _only(process, "step")
    there, done = clear and recorded_text.line_at(process, clear), step and recorded_text.line_at(process, step)
    if not clear or not step or not there or not done or not _same_function(clear, step) or clear.line > step.line:
        return None
    text = recorded_text.of_function(process, step)
    lines = [text.get(at) for at in range(clear.line + 1, step.line + 1)]
    kept = [line for line in lines if line is not None]
    whole = len(kept) == len(lines) <= _STRETCH and (STEP.fullmatch(done[1]) or SCALER_STEP.fullmatch(done[1]))
    if not whole or not CLEAR.fullmatch(there[1]) or there[0] != done[0] or any("backward(" in line for line in kept):
        return None
    return Diff(clear.file, clear.line, ["".join(there), *kept], [*kept, "".join(there)])


def call_before_backward(optimization: Optimization, clear: Location | None) -> tuple[Location, Diff] | None:
    """The only call of a function that does nothing but clear, and an edit that moves it to before the backward."""
    process, backward = optimization.process, _only(optimization.process, "backward")
    done = backward and recorded_text.line_at(process, backward)
    if not clear or not backward or not done or _same_function(clear, backward) or not CLEAR.fullmatch(clear.source):
        return None
    body = recorded_text.of_function(process, clear)
    depth = recorded_text.indent_of(body.get(clear.line, ""))
    inner = [line.strip() for line in body.values() if recorded_text.indent_of(line) >= depth]
    own = [line for line in inner if line and not line.startswith(("#", '"""'))]
    text = recorded_text.of_function(process, backward)
    called = re.compile(rf"[A-Za-z_][\w.]*\.{re.escape(clear.function)}\(\)|{re.escape(clear.function)}\([\w., ]*\)")
    at = [number for number, line in text.items() if called.fullmatch(code_of(line).strip())]
    if own != [clear.source] or len(at) != 1 or not 0 < at[0] - backward.line < _STRETCH:
        return None
    between = [text.get(number) for number in range(backward.line, at[0])]
    kept, line = [one for one in between if one is not None], text[at[0]]
    if len(kept) < len(between) or recorded_text.indent_of(line) != len(done[0]):
        return None
    place = backward.at(at[0], line)
    return place, Diff(backward.file, backward.line, [*kept, line], [line, *kept])


def unscale_before_clip(optimization: Optimization) -> Diff | None:
    """scaler.unscale_ in front of the line that clips; of one that is given a norm, in front of where that is taken."""
    process = optimization.process
    clip, step = _only(process, "clip"), process.site(optimization.facts.get("site")) or _only(process, "step")
    there = clip and recorded_text.line_at(process, clip)
    match = step and SCALER_STEP.fullmatch(step.source)
    stepping = step and recorded_text.line_at(process, step)
    if not clip or not there or not match or not _same_function(clip, step):
        return None
    if stepping and len(stepping[0]) > len(
        there[0]
    ):  # in a loop over optimizers, whose variable the clip does not know
        return None
    if is_given_a_norm(clip):
        clip = norm_taken(process, clip)
    if clip is None:
        return None
    return Diff(clip.file, clip.line, [], [f"{there[0]}{match['scaler']}.unscale_({match['optimizer']})"])


def is_given_a_norm(clip: Location) -> bool:
    """Whether the line clips by a norm that was taken before: what is unscaled after that changes nothing of it."""
    line = parsed_line.parse(clip.source)
    calls = line.calls("clip_grads_with_norm_") if line else []
    given = [one.value for call in calls for one in call.keywords if one.arg == "total_norm"]
    given += [one for call in calls for one in call.args[2:3]]
    return any(not isinstance(one, ast.Call) for one in given) or (line is None and "_with_norm_(" in clip.source)


def norm_taken(process: Process, clip: Location) -> Location | None:
    """The first of the lines between backward and clip, at the depth of the clip, that reads gradients or takes norms:
    of a loop that does so its head."""
    lines, backward = recorded_text.of_function(process, clip), _only(process, "backward")
    if backward is None or not _same_function(backward, clip) or backward.line >= clip.line:
        return None
    between = [(at, lines.get(at, "")) for at in range(backward.line + 1, clip.line)]
    depth = recorded_text.indent_of(lines.get(clip.line, ""))
    first = next((at for at, line in between if _READS_GRADIENTS.search(line)), None)
    if first is None or any(
        line.strip() and recorded_text.indent_of(line) < depth for at, line in between if at >= first
    ):
        return None
    heads = [at for at, line in between if at <= first and line.strip() and recorded_text.indent_of(line) == depth]
    block = textwrap.dedent("\n".join(lines.get(at, "") for at in range(heads[-1], clip.line))) if heads else ""
    if not block or parsed_line.parse(f"if True:\n{textwrap.indent(block, ' ')}") is None:
        return None  # within a statement of several lines
    return clip.at(heads[-1], lines[heads[-1]])


def step_by_scaler(optimization: Optimization) -> Diff | None:
    """The scaler's step and update in place of the optimizer's step."""
    step, backward = _only(optimization.process, "step"), _only(optimization.process, "backward")
    there = step and recorded_text.line_at(optimization.process, step)
    match, scaled = there and STEP.fullmatch(there[1]), backward and SCALED_BACKWARD.fullmatch(backward.source)
    if not step or not there or not match or not scaled or not _same_function(step, backward):
        return None
    name, indent = scaled["scaler"], there[0]
    added = [f"{indent}{name}.step({match['optimizer']})", f"{indent}{name}.update()"]
    return Diff(step.file, step.line, ["".join(there)], added)


def scale_the_loss(optimization: Optimization) -> Diff | None:
    """The backward of the scaled loss in place of the plain one: by its name where a line above gives it one, or in
    place of a line above that scales in vain."""
    step, backward = _only(optimization.process, "step"), _only(optimization.process, "backward")
    there = backward and recorded_text.line_at(optimization.process, backward)
    match, stepped = there and BACKWARD.fullmatch(there[1]), step and SCALER_STEP.fullmatch(step.source)
    if not backward or not there or not match or not stepped or not _same_function(step, backward):
        return None
    scaled = f"{there[0]}{stepped['scaler']}.scale({match['loss']})"
    name = scaled_above(optimization.process, backward, f"{stepped['scaler']}.scale", match["loss"])
    if name:
        return Diff(backward.file, backward.line, ["".join(there)], [f"{there[0]}{name}.backward()"])
    above = recorded_text.around(optimization.process, backward).get(backward.line - 1, "")
    in_vain = [above] if above == scaled else []
    return Diff(backward.file, backward.line - len(in_vain), [*in_vain, "".join(there)], [f"{scaled}.backward()"])


def scaled_above(process: Process, backward: Location, scale: str, loss: str) -> str:
    """The name that a line above this backward, in the same block, gives the scaled loss, as `s = scaler.scale(loss)`;
    empty where none does, or where the name or the loss may be another's by then."""
    text = recorded_text.around(process, backward)
    indent, at = recorded_text.indent_of(text.get(backward.line, "")), backward.line - 1
    named = re.compile(rf"(?P<name>[A-Za-z_][\w.]*)\s*=\s*{re.escape(scale)}\({re.escape(loss)}\)\s*(?:#.*)?")
    between: list[str] = []
    while (line := text.get(at)) is not None and (not line.strip() or recorded_text.indent_of(line) >= indent):
        found = named.fullmatch(line.strip()) if recorded_text.indent_of(line) == indent else None
        if found and found["name"] != loss:
            anew = re.compile(rf"(?<![\w.])(?:{re.escape(found['name'])}|{re.escape(loss)})\s*[-+*/]?=(?!=)")
            return "" if any(anew.search(one) for one in between) else found["name"]
        between.append(line)
        at -= 1
    return ""


def without_softmax(process: Process, loss: Location | None) -> Diff | None:
    """The scores in place of their softmax, where the line of the loss takes it of its first argument."""
    there = loss and recorded_text.line_at(process, loss)
    line = parsed_line.parse(there[1]) if there else None
    softmaxes = line.calls("softmax") if line else []
    if not loss or not there or line is None or len(softmaxes) != 1:
        return None
    (softmax,) = softmaxes
    of_loss = [node for node in ast.walk(line.tree) if isinstance(node, ast.Call) and node.args[:1] == [softmax]]
    by_function = parsed_line.is_function_of_torch(softmax.func)
    holder = softmax.func.value if isinstance(softmax.func, ast.Attribute) else None
    scores = softmax.args[0] if by_function and softmax.args else holder
    if not of_loss or scores is None:
        return None
    added = line.with_parts({softmax: line.text_of(scores)})
    return Diff(loss.file, loss.line, ["".join(there)], [there[0] + added])


def together(process: Process, place: Location, parts: list[Diff]) -> Diff | None:
    """Edits of lines of one function as a single one, with what stands between them; None where that is not known or
    much."""
    first, behind = parts[0].line, parts[-1].line + len(parts[-1].removed)
    text = recorded_text.around(process, place)
    if behind - first > _STRETCH or any(line not in text for line in range(first, behind)):
        return None
    added, line = list[str](), first
    for part in parts:
        added += [*(text[at] for at in range(line, part.line)), *part.added]
        line = part.line + len(part.removed)
    return Diff(place.file, first, [text[at] for at in range(first, behind)], added)


def _only(process: Process, role: str) -> Location | None:
    """The line with this role, if there is exactly one."""
    places = process.locations(role)
    return places[0] if len(places) == 1 else None


def _same_function(one: Location | None, other: Location | None) -> bool:
    return bool(one and other and one.file_function == other.file_function)
