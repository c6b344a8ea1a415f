"""Lines of the script that keep a tensor beyond its step, with the autograd graph behind it.

Appends to a list that grew from step to step, and lines that make what grew of itself, were found as the training ran
(signals/gradients/live_graphs.py). Of other ways to keep something the text tells, of the lines that were recorded
around the loop's own calls, in its function. A name
holds a graph if it is the loss, if something was called to compute it and the loss is computed from it, or if it is
computed from such a name. Sizes and data, of which the loss is computed as well, hold none.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import edits, recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.storing import averages, displays
from tracelyze.diagnosis import Diff, Location
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization

NAME: Final = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*(?!\w*\s*[=(](?!=))")
ASSIGNED: Final = re.compile(r"(?P<names>[A-Za-z_][\w, ]*?)\s*=(?!=)\s*(?P<value>.+)")
STORED: Final = re.compile(
    r"(?:(?P<sum>[\w.]+(?:\[[^\]]*\])?)\s*\+=\s*|(?P<list>[\w.]+(?:\[[^\]]*\])*"
    r"(?:\.setdefault\([^()]*, (?:\[\]|list\(\))\))?)\.append\(|"
    r"(?P<entry>[\w.]+\[[^\]]+\])\s*=(?!=)\s*)(?P<value>.+?)\)?$"
)
AGAIN: Final = re.compile(
    r"(?P<name>[\w.]+)\s*(?:=\s*(?P=name)\s*\+|\+=)\s*(?P<value>[A-Za-z_]\w*)|"
    r"(?P<list>[\w.]+)\s*(?:=\s*(?P=list)\s*\+|\+=)\s*\[(?P<entry>[A-Za-z_]\w*)\]"
)
"""A sum or a list that is made anew of itself and one more value."""
SEVERAL: Final = re.compile(r"[(\[]\s*[A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)+\s*,?\s*[)\]]")  # names in brackets
HEAD: Final = re.compile(r"\s*(?:async )?(?:def|class) (?P<name>\w+)")
SIZES: Final = re.compile(r"\blen\(|\.(?:size|numel|dim)\(|\.(?:shape|ndim)\b")
LENGTH: Final = re.compile(r"\blen\([^()]*\)")
MADE: Final = re.compile(
    r"(?<![\w.])(?!(?:len|int|float|range|next|iter|list|tuple|zip|min|max|round|sorted|enumerate)\()(?P<called>[\w.]+)\("
)
"""Something that is called, for what it computes."""
DATA: Final = re.compile(
    r"\.(?:to|cuda|cpu|long|int|view|reshape|pop|get|split|keys|values|items)$|^(?:np|numpy|random)\.|"
    r"^torch\.(?:rand\w*|normal|zeros\w*|ones\w*|full\w*|empty\w*|arange|linspace|eye|tensor|as_tensor|from_numpy)$"
)
"""What only hands data over, or makes them."""
FREED: Final = ("item(", "detach(", "float(", "int(", "tolist(", "numpy(", "no_grad")
"""What makes a number, or a tensor without a graph, of a tensor."""
_ELSE: Final = "# where a loss is computed through what it gives, keep detached copies of its tensors instead"
_TUPLES: Final = "# what a loss is computed through stays as it is; of a tuple of tensors, detach each"
SOMETHING: Final = (
    "Something that the script stores still refers to them: usually a running sum of losses, a list of losses or "
    "outputs, or a hidden state."
)
UNDER_NO_GRAD: Final = f"{_ELSE}\nwith torch.no_grad():"


NO_GRAPH: Final = re.compile(r"with .*(?:\bno_grad\(|\binference_mode\(|\bset_grad_enabled\(False\))")


class Kept(NamedTuple):
    """A line that stores something with its graph, and the edit that stores it without, where that is plain.

    `emptied`: backward ran through that graph, which has freed what it saved: the line keeps next to nothing.
    """

    location: Location
    diff: Diff | None
    emptied: bool


def lines(optimization: Optimization) -> list[Kept]:
    """The appends that were seen to keep a graph, and the lines in the function of the only backward whose text stores
    a name with a graph, in order; last those whose graph the backward has emptied."""
    seen = {one.file_line: one for one in optimization.process.locations("keeps")}
    told = _told(optimization)
    own = [one for one in told if (one.location.file, one.location.line) in seen or not (seen and _appends(one))]
    places = {(one.location.file, one.location.line) for one in own}
    own += [Kept(one, _plain(optimization, one), False) for place, one in sorted(seen.items()) if place not in places]
    return sorted(own, key=lambda one: one.emptied)


def _appends(kept: Kept) -> bool:
    stored = STORED.fullmatch(code_of(kept.location.source).strip())
    return bool(stored and stored["list"])


def _plain(optimization: Optimization, line: Location) -> Diff | None:
    """The edit of an append of a name, or of a sum with one that holds a graph, in the function that calls backward:
    elsewhere, as in a meter's `update`, a name may stand for a number now and then, which cannot be detached."""
    there, backward = recorded_text.line_at(optimization.process, line), optimization.backward_location
    averaged = None if retains(optimization) else averages.detached(optimization, line)
    if averaged is not None:
        return averaged
    if there is None or backward is None or backward.file_function != line.file_function:
        return None
    text = "".join(there)
    again = AGAIN.fullmatch(text.strip())
    if again is not None:
        part = "value" if again["value"] else "entry"
        return _diff(line, text, again, part) if again[part] in _graphs(optimization, backward) else None
    stored = STORED.fullmatch(text.strip())
    if stored is None or not stored["list"] or _holds_several(optimization, line, stored["value"]):
        return None
    around = recorded_text.around(optimization.process, line)
    holding, counted = _graphs(optimization, backward), _counted(around)
    several = _diff_of_several(line, text, stored, holding, counted)
    return _diff(line, text, stored) or several or displays.edit(optimization.process, line, holding, counted)


def _holds_several(optimization: Optimization, line: Location, name: str) -> bool:
    """Whether the text of the function takes a name for a dictionary or a list, which cannot be detached."""
    made = re.compile(
        rf"\b{re.escape(name)}\s*=\s*[\[{{]|\b{re.escape(name)}\[[\"']|\b{re.escape(name)}\.(?:items|values)\("
    )
    return any(made.search(text) for text in recorded_text.around(optimization.process, line).values())


def _is_dictionary(optimization: Optimization, line: Location, name: str) -> bool:
    """Whether the text of the function takes an entry of it by a plain key, or makes it with braces."""
    taken = re.compile(rf"\b{re.escape(name)}(?:\s*=\s*\{{|\[[\"'])")
    return any(taken.search(text) for text in recorded_text.around(optimization.process, line).values())


def _graphs(optimization: Optimization, backward: Location) -> set[str]:
    """Names that hold a graph, in the function that calls backward."""
    match = edits.BACKWARD.match(backward.source)
    text = _of_function(recorded_text.around(optimization.process, backward), backward)
    loss = match["loss"] if match else ""
    return _holding(text, _made(text, _behind(text, loss), loss)) if match else set()


def _told(optimization: Optimization) -> list[Kept]:
    """What the text tells."""
    backward = optimization.backward_location
    match = backward and edits.BACKWARD.match(backward.source)
    if backward is None or not match:
        return []
    text = _of_function(recorded_text.around(optimization.process, backward), backward)
    behind_loss = _behind(text, match["loss"])
    holding = _holding(text, _made(text, behind_loss, match["loss"]))
    behind = [value for names, value in _assignments(text) if names & behind_loss]
    found = []
    for number, line in sorted(text.items()):
        statement = code_of(line).strip()
        stored = STORED.fullmatch(statement)
        if not stored or any(word in statement for word in FREED):
            continue
        if any(NO_GRAPH.match(block) for block in recorded_text.blocks_around(text, number)):
            continue
        used = NAME.findall(LENGTH.sub("", stored["value"]))
        if stored["sum"] in holding or not holding.intersection(used):
            continue  # the loss itself, that is being added up, or something else
        if any(_mentions(value, stored["sum"] or stored["list"] or stored["entry"]) for value in behind):
            continue  # what the loss is computed from needs its graph
        location = backward.at(number, line)
        emptied = holding.intersection(used) <= behind_loss and not stored["sum"]
        averaged = None if retains(optimization) else averages.detached(optimization, location)
        plain = _diff(location, line, stored) or _diff_of_several(location, line, stored, holding, _counted(text))
        plain = plain or displays.edit(optimization.process, location, holding, _counted(text))
        plain = plain or _diff_of_a_sum(location, line, holding - _counted(text))
        found.append(Kept(location, plain or averaged, emptied))
    return found


def _of_function(text: dict[int, str], place: Location) -> dict[int, str]:
    """The lines without those of functions that stand around this one, as far as their heads are among them."""
    kept = {}
    for number, line in text.items():
        depth, at, head = recorded_text.indent_of(line), number, None
        while depth and head is None and (above := text.get(at - 1)) is not None:
            at -= 1
            if above.strip() and recorded_text.indent_of(above) < depth:
                depth, head = recorded_text.indent_of(above), HEAD.match(above)
        known = head is not None or not depth
        own = head["name"] == place.function if head is not None else place.function == "<module>"
        if own if known else place.function != "<module>":
            kept[number] = line
    return kept


def retains(optimization: Optimization) -> bool:
    """Whether the last backward of most steps keeps its graph (`retain_graph=True`)."""
    steps = optimization.steps
    known = steps.known("graph_retained")
    return bool(known.any() and steps["graph_retained"][known].mean() > 1 / 2)


def edit(kept: list[Kept]) -> Diff | None:
    """The edit of the first line, and of those that follow it at once."""
    if not kept or kept[0].diff is None:
        return None
    whole = kept[0].diff
    for one in kept[1:]:
        if one.diff is None or one.diff.line != whole.line + len(whole.removed):
            break
        whole = Diff(whole.file, whole.line, [*whole.removed, *one.diff.removed], [*whole.added, *one.diff.added])
    return whole


def guarded(optimization: Optimization, stored: list[Kept]) -> str:
    """The line as it would store a tensor without its graph, and anything else as before: for an append of a name, or a
    running average, in another function than the loop's, which may be given numbers too. Empty without such a line."""
    line = stored[0].location if stored and stored[0].diff is None else None
    averaged = averages.guarded(optimization.process, line, retains(optimization))
    shown = averaged or displays.detached(optimization.process, line)
    if shown:
        return shown
    text = line and recorded_text.line_at(optimization.process, line)
    statement = "".join(text).strip() if text else ""
    found = STORED.fullmatch(statement)
    if line is None or found is None or not found["value"].isidentifier() or "#" in statement:
        return _of_a_call(optimization, line) if line is not None else ""
    name, (begin, end) = found["value"], found.span("value")
    if _holds_several(optimization, line, name):
        if not _is_dictionary(optimization, line, name):
            return ""
        entry = 'value.detach() if hasattr(value, "detach") else value'
        return f"{statement[:begin]}{{key: {entry} for key, value in {name}.items()}}{statement[end:]}"
    if _keeps_parts(optimization, line):
        return f"entry.append(value.detach())  # where {name} is filled, of what it holds with a graph"
    return f'{statement[:begin]}{name}.detach() if hasattr({name}, "detach") else {name}{statement[end:]}'


def _keeps_parts(optimization: Optimization, line: Location) -> bool:
    """Whether what the line stores was seen to be no tensor, and to hold some."""
    return line.file_line in {one.file_line for one in optimization.process.locations("keeps-parts")}


def _of_a_call(optimization: Optimization, line: Location) -> str:
    """The append of what a call gives, without its graph; empty where the statement is none."""
    own = own_statement.at(optimization.process, line)
    append = own.only_call("append") if own is not None else None
    given = append.args[0] if append is not None and len(append.args) == 1 else None
    if own is None or not isinstance(given, ast.Call) or any(word in own.parsed.text_of(given) for word in FREED):
        return ""
    parts = _keeps_parts(optimization, line)
    if parts and parsed_line.name_of(given.func)[:1].isupper():  # it puts together what was computed before
        return own.dedented(_of_parts(own.parsed, given))
    if parts:
        return f"{UNDER_NO_GRAD}\n    {own.dedented(own.text)}" if "\n" not in own.text else ""
    return own.dedented(own.parsed.with_parts({given: f"{own.parsed.text_of(given)}.detach()"}))


def _of_parts(parsed: parsed_line.ParsedLine, made: ast.Call) -> str:
    """A statement whose call puts together plain values, with each of them without its graph; empty for other ones."""
    kinds = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant)
    if not made.args or made.keywords or not all(isinstance(one, kinds) for one in made.args):
        return ""
    values = ", ".join(parsed.text_of(one) for one in made.args) + "," * (len(made.args) == 1)
    free = 'one.detach() if hasattr(one, "detach") else one'
    return f"{_TUPLES}\n" + parsed.with_parts({made: f"{parsed.text_of(made.func)}(*({free} for one in ({values})))"})


def told(stored: list[Kept]) -> str:
    """What keeps the graphs, in a sentence or two."""
    if not stored:
        return SOMETHING
    return f"{culprits(stored)} beyond its step, and with it the graph that computed it.{emptied(stored)}"


def culprits(stored: list[Kept]) -> str:
    """The line that keeps a tensor, or each of the lines, with the verb."""
    if len(stored) == 1:
        return f"`{stored[0].location.source}` keeps a tensor"
    return f"Each of the lines {listed(sorted(one.location.line for one in stored), most=8)} keeps a tensor"


def emptied(stored: list[Kept]) -> str:
    """Which of several lines keep little; empty where all do, or none."""
    little = [one.location.line for one in stored if one.emptied]
    if not little or len(little) == len(stored):
        return ""
    lines = f"line {little[0]} keeps" if len(little) == 1 else f"lines {listed(sorted(little), most=8)} keep"
    return f" What {lines} is small: backward has freed what that graph had saved."


def others(stored: list[Kept], diff: Diff) -> str:
    """The lines to change in the same way that the edit leaves out."""
    edited = range(diff.line, diff.line + len(diff.removed))
    left = [one.location.line for one in stored if one.location.line not in edited]
    if not left:
        return ""
    return f" Do the same in {'line' if len(left) == 1 else 'lines'} {listed(left, most=8)}."


def _behind(text: dict[int, str], loss: str) -> set[str]:
    """The loss, and the names from which it is computed."""
    assigned = [(names, set(NAME.findall(value))) for names, value in _assignments(text)]
    made = set().union(*(names for names, _ in assigned)) if assigned else set()
    behind = {loss}
    for names, used in reversed(assigned):
        if names & behind:
            behind |= used & made
    return behind


def _made(text: dict[int, str], behind_loss: set[str], loss: str) -> set[str]:
    """The loss, and of the names from which it is computed those that something was called to compute."""
    values = [(names, value) for names, value in _assignments(text) if names & behind_loss]
    made = [names for names, value in values if " @ " in value or _calls(value)]
    return set().union(*made, {loss}) & behind_loss


def _calls(value: str) -> bool:
    """Whether something is called that does more than hand data over."""
    return any(not DATA.search(one["called"]) for one in MADE.finditer(value))


def _holding(text: dict[int, str], made: set[str]) -> set[str]:
    """Names that hold a graph: those that are known to, and what is computed from them."""
    assigned = [(names, set(NAME.findall(value))) for names, value in _assignments(text)]
    holding = set(made)
    for names, used in assigned:
        if used & holding:
            holding |= names
    return holding


def _assignments(text: dict[int, str]) -> list[tuple[set[str], str]]:
    """The names and the value of each assignment that may keep a graph, in order."""
    return [
        ({name.strip() for name in found["names"].split(",")}, found["value"])
        for _, line in sorted(text.items())
        if (found := ASSIGNED.fullmatch(code_of(line).strip())) and not any(word in line for word in FREED)
    ]


def _mentions(value: str, name: str) -> bool:
    """Whether an expression reads this name, or what the name is an entry of."""
    holder = name.partition("[")[0].partition(".setdefault(")[0]
    return re.search(rf"(?<![\w.]){re.escape(holder)}(?!\w)", value) is not None


def _diff(location: Location, line: str, stored: re.Match[str], part: str = "value") -> Diff | None:
    value = stored[part]
    if not value.isidentifier() or "#" in line:
        return None
    end = recorded_text.indent_of(line) + stored.end(part)
    # A tensor as before, also in a sum: the script may call its methods further down.
    return Diff(location.file, location.line, [line], [f"{line[:end]}.detach(){line[end:]}"])


def _diff_of_a_sum(location: Location, line: str, tensors: set[str]) -> Diff | None:
    """The edit of a sum of what is computed from one of these, as of its share of a mean."""
    parsed = parsed_line.parse(line.strip())
    if parsed is None or not isinstance(parsed.statement, ast.AugAssign) or "#" in line:
        return None
    value, text = parsed.statement.value, parsed.text_of(parsed.statement.value)
    called = [parsed_line.name_of(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)]
    free = LENGTH.sub("", text)
    if not isinstance(value, ast.BinOp) or set(called) - {"len"} or not tensors.intersection(NAME.findall(free)):
        return None
    indent = line[: recorded_text.indent_of(line)]
    new = indent + parsed.with_parts({value: f"({text}).detach()"})
    return None if SIZES.search(free) else Diff(location.file, location.line, [line], [new])


def _counted(text: dict[int, str]) -> set[str]:
    """Names that some line gives a size of a tensor, which is a number and cannot be detached."""
    return set().union(*(names for names, value in _assignments(text) if SIZES.search(value)), set())


def _diff_of_several(
    location: Location, line: str, stored: re.Match[str], holding: set[str], counted: set[str]
) -> Diff | None:
    """The edit of an append of several names in brackets: those that hold a graph are detached."""
    value = stored["value"]
    if not stored["list"] or "#" in line or not SEVERAL.fullmatch(value) or counted.intersection(NAME.findall(value)):
        return None
    begin = recorded_text.indent_of(line) + stored.start("value")
    detached = re.sub(r"[A-Za-z_]\w*", lambda name: f"{name[0]}.detach()" if name[0] in holding else name[0], value)
    return Diff(location.file, location.line, [line], [f"{line[:begin]}{detached}{line[begin + len(value) :]}"])


def outputs(optimization: Optimization, stored: list[Kept]) -> str:
    """A sentence about whole outputs beside the loss, or in its place, in what an edit or an example stores: without a
    graph they are kept all the same. Empty where numbers alone are stored."""
    loss = optimization.backward_location
    match = edits.BACKWARD.match(loss.source) if loss is not None else None
    given = [found["value"] for one in stored if one.diff and (found := STORED.fullmatch(one.location.source))]
    names = [name for value in given if SEVERAL.fullmatch(value) for name in NAME.findall(value)]
    if match is None or set(names) <= {match["loss"]}:
        return displays.told(optimization.process, stored[0].location) if stored and not names else ""
    return " An output takes its own memory without a graph, too: keep numbers of it, or only the last few."
