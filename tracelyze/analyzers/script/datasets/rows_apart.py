"""What puts inputs beside targets of other samples: a line that takes one tensor of a batch by position, where others
are taken through a shuffled order; two loaders that shuffle apart; or two arrays that are shuffled one by one."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.datasets.targets import ordered_alone, shuffled_by_helper
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.datasets.targets.shuffled_by_helper import ByHelper
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_NEAR: Final = 6  # lines
_LOOP: Final = re.compile(r"^\s*(?:async\s+)?(?:for|while)\b")
_PART: Final = re.compile(  # what parts of a split are called: one of them has a pair of its own
    r"(?:^|_|\b)(train[a-z0-9]*|val[a-z0-9]*|test[a-z0-9]*|dev|eval[a-z0-9]*)(?:_|\b|$)", re.IGNORECASE
)
_NO_PAIR: Final = re.compile(  # what splits, and orders, are called, and two kinds of samples
    r"(?:^|_|\b)(?:idx\w*|ind\w*|ids?|order\w*|perm\w*|files?|paths?|names?|pos\w*|neg\w*|src|dst)(?:_|\b|$)",
    re.IGNORECASE,
)
_RESEEDED: Final = re.compile(r"seed|RandomState|default_rng|set_state|set_rng_state|\bfork_rng\b")
_RETURNS: Final = ("sklearn.utils.shuffle", "utils.shuffle", "skutils.shuffle")
_DRAWN: Final = re.compile(r"^\s*(\w+)\s*=[^=].*\b(?:randperm|permutation)\s*\(|\bshuffle\s*\(\s*(\w+)\s*\)")


@dataclass(frozen=True)
class Apart:
    """`named`: what is taken by position; `through`: by what the others are."""

    place: Location
    named: str
    through: str
    diff: Diff | None
    fix: str = ""
    example: str = ""

    def said(self) -> str:
        """What the script's text shows, and what of it is not known."""
        return (
            f" Line {self.place.line} takes {self.named} by position, and what else is in a batch through "
            f"{self.through}: unless it was put into that order before, it belongs to other samples."
        )


@dataclass(frozen=True)
class LoadedApart:
    """Two loaders that each draw an order of their own. `place`: what makes that of the targets."""

    place: Location
    inputs: Location
    example: str
    diff: Diff | None = None
    fix: str = "Take inputs and targets from one dataset, through one loader."

    def said(self) -> str:
        """Which lines make them."""
        return (
            f" Inputs come from the loader of line {self.inputs.line}, targets from that of line {self.place.line}, "
            "and each shuffles in an order of its own: targets belong to other samples."
        )


@dataclass(frozen=True)
class ShuffledApart:
    """Two arrays, each put into an order of its own. `place`: what shuffles the second, `named` its name."""

    place: Location
    named: str
    first: Location
    beside: str
    example: str
    diff: Diff | None = None

    @property
    def fix(self) -> str:
        """What to do, where the two are inputs and targets."""
        return f"Draw one order and put both {self.beside} and {self.named} into it, so that rows stay together."

    def said(self) -> str:
        """What the script's text shows, and what of it is not known."""
        both = f"{self.beside}, line {self.place.line} shuffles {self.named}"
        if self.first.line == self.place.line:
            both = f"{self.beside} and {self.named}"
        return (
            f" Line {self.first.line} shuffles {both}, each into an order of its own: if one holds the targets of the "
            "other, they belong to other samples."
        )


Unpaired = Apart | LoadedApart | ShuffledApart | ordered_alone.OrderedAlone


def of(process: Process) -> Unpaired | None:
    """What takes inputs and targets of other samples: a line that takes some by position, two loaders, two arrays that
    are shuffled one after the other, or one that is shuffled alone."""
    return _by_position(process) or _by_loaders(process) or _by_shuffles(process) or ordered_alone.of(process)


def _by_shuffles(process: Process) -> ShuffledApart | None:
    """The only two neighbouring statements of a function that shuffle whole arrays, of the same part of a split, by a
    generator that goes on from the first to the second."""
    functions: dict[tuple[tuple[str, str], str], list[_Shuffled]] = {}
    for place in {one.file_line: one for role in ("split", "shuffle") for one in process.locations(role)}.values():
        for one in _shuffled(process, place):
            functions.setdefault((place.file_function, one.part), []).append(one)
    for called in shuffled_by_helper.of(process):
        if not _NO_PAIR.search(called.named):
            one = _Shuffled(called.place, called.named, called.function, called.beside, called)
            functions.setdefault((called.place.file_function, one.part), []).append(one)
    pairs = []
    for found in functions.values():
        first, *others = sorted(found, key=lambda one: one.place.line)
        if len(others) == 1 and _go_together(process, first, others[0]):
            pairs.append((first, others[0]))
    if not pairs or len({first.place.file_function for first, _ in pairs}) > 1:
        return None
    first, second = min(pairs, key=lambda pair: pair[0].place.line)  # of several parts that of the training, mostly
    edit = shuffled_by_helper.in_one_statement(first.call, second.call) if first.call and second.call else None
    return ShuffledApart(second.place, second.named, first.place, first.named, _in_one_order(first, second), edit)


@dataclass(frozen=True)
class _Shuffled:
    """A statement that leaves an array in another order under the same name. `holder`: of the function that draws, or
    that function where it returns what it shuffles; `generator`: what that is given to draw by; `call`: of a function
    of the script that does it."""

    place: Location
    named: str
    holder: str
    generator: str = ""
    call: ByHelper | None = None

    @property
    def part(self) -> str:
        """Of a split, by its name."""
        return " ".join(sorted(_PART.findall(self.named)))


def _shuffled(process: Process, place: Location) -> list[_Shuffled]:
    """`x = rng.permutation(x)`, `x = x[torch.randperm(len(x))]`, `rng.shuffle(x)`, or two of them in one statement."""
    own = own_statement.at(process, place)
    statement = own.parsed.statement if own is not None else None
    found: list[_Shuffled | None] = []
    if isinstance(statement, ast.Expr):
        found.append(_of_value(place, None, statement.value))
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            found += [_of_value(place, *both) for both in zip(target.elts, value.elts, strict=False)]
        else:
            found.append(_of_value(place, target, value))
    return [one for one in found if one is not None]


def _of_value(place: Location, target: ast.expr | None, value: ast.expr) -> _Shuffled | None:
    """An expression that shuffles what the target names, or its only argument where there is no target."""
    call = value.slice if isinstance(value, ast.Subscript) else value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    holder, draws, given = call.func.value, call.func.attr, [one for one in call.keywords if one.arg == "generator"]
    by_name = all(isinstance(one, ast.Name | ast.Attribute) for one in (holder, *(one.value for one in given)))
    if not by_name or len(call.keywords) > len(given) or draws not in ("permutation", "randperm", "shuffle"):
        return None  # a generator that is made here, or a seed that is given, may draw the same order twice
    arguments = [ast.unparse(one) for one in call.args]
    if target is None:
        named = arguments[0] if draws == "shuffle" and value is call and len(arguments) == 1 else ""
    else:
        named = ast.unparse(target)
        through = isinstance(value, ast.Subscript) and ast.unparse(value.value) == named
        named = named if through or (value is call and arguments == [named]) else ""
    returned = target is not None and draws == "shuffle"  # as scikit-learn's does; one of the script's own may seed
    known = not returned or ast.unparse(call.func) in _RETURNS
    if not known or not re.fullmatch(r"[A-Za-z_][\w.]*", named) or _NO_PAIR.search(named):
        return None
    by = ast.unparse(call.func if returned else holder)
    return _Shuffled(place, named, by, "".join(ast.unparse(one.value) for one in given))


def _go_together(process: Process, first: _Shuffled, second: _Shuffled) -> bool:
    """Whether the two draw one after the other from the same generator, which nothing puts back in between."""
    between = range(first.place.line, second.place.line + 1)
    text = recorded_text.of_function(process, first.place)
    known = all(number in text for number in between) and len(between) <= _NEAR
    apart = first.named != second.named and (first.holder, first.generator) == (second.holder, second.generator)
    return known and apart and not any(_RESEEDED.search(text[number]) for number in between)


def _in_one_order(first: _Shuffled, second: _Shuffled) -> str:
    """Both arrays in one order, drawn as the script draws."""
    one, other, holder = first.named, second.named, first.holder
    if first.call is not None:
        return f"order = {first.call.order}\n{one}, {other} = {one}[order], {other}[order]"
    if holder in _RETURNS:  # scikit-learn's, which takes several
        return f"{one}, {other} = {holder}({one}, {other})"
    if holder == "random":
        lists = f"[{one}[i] for i in order], [{other}[i] for i in order]"
        return f"order = random.sample(range(len({one})), len({one}))\n{one}, {other} = {lists}"
    drawn = "randperm" if holder == "torch" else "permutation"
    by = f", generator={first.generator}" if first.generator else ""
    return f"order = {holder}.{drawn}(len({one}){by})\n{one}, {other} = {one}[order], {other}[order]"


def _by_loaders(process: Process) -> LoadedApart | None:
    """The only two shuffled loaders of a loop, one of numbers and one of classes, which it asks in turn."""
    rows = [row for row in process.tables["loaders"].records() if row["sampler"] == "RandomSampler"]
    fields: dict[int, set[tuple[str, str]]] = {row["loader"]: set() for row in rows}
    for row in process.tables["batches"].records():
        if row["loader"] in fields:
            fields[row["loader"]].add((str(row["field"]), "classes" if row["classes"] else str(row["dtype"])))
    kinds = {next(iter(found))[1]: loader for loader, found in fields.items() if len(found) == 1}
    one, other = (kinds.get(kind) for kind in ("float32", "classes")) if len(fields) == 2 else (None, None)
    pair = [row for loader in (one, other) for row in rows if row["loader"] == loader]
    if len(pair) != 2 or any(pair[0][name] != pair[1][name] for name in ("site", "length", "batch_size")):
        return None
    inputs, targets = (process.site(row["made_at"]) for row in pair)
    if inputs is None or targets is None or inputs.file_line == targets.file_line:
        return None
    text = [line for place in (inputs, targets) for line in recorded_text.of_function(process, place).values()]
    if not text or any("generator" in line for line in text):  # two of one seed draw the same order
        return None
    return LoadedApart(targets, inputs, _as_one(process, inputs, targets))


def _as_one(process: Process, inputs: Location, targets: Location) -> str:
    """The loader of the inputs with both datasets in it; empty where their lines do not say what they load."""
    own = [own_statement.at(process, place) for place in (inputs, targets)]
    calls = [(one, one.only_call("DataLoader")) for one in own if one is not None]
    given = [(one, call.args[0]) for one, call in calls if call is not None and call.args]
    if len(given) != 2:
        return ""
    (loads, first), (also, second) = given
    both = f"torch.utils.data.StackDataset({loads.parsed.text_of(first)}, {also.parsed.text_of(second)})"
    line = loads.dedented(loads.parsed.with_parts({first: both}))
    return f"{line}\n# hands out pairs: iterate it alone, without the loader of line {targets.line}"


def _by_position(process: Process) -> Apart | None:
    """The only such line of a function that hands out batches, or calls the model on them. That it is wrong is known
    only beside evidence that nothing is learned."""
    functions: dict[tuple[str, str], Location] = {}
    for one in [*process.locations("yields"), *process.locations("training-call")]:
        functions.setdefault(one.file_function, one)
    found = [apart for one in functions.values() for apart in _in_function(process, one)]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class _Taken:
    """A slice that a statement takes of something. `index`: by what it stands, where that is a shuffled order."""

    own: OwnStatement
    node: ast.Subscript
    index: str = ""

    @property
    def key(self) -> str:
        return ast.unparse(self.node.slice)


def _in_function(process: Process, inside: Location) -> list[Apart]:
    lines = recorded_text.of_function(process, inside)
    orders = {match[1] or match[2] for line in lines.values() if (match := _DRAWN.search(line))}
    loops = [number for number, line in lines.items() if _LOOP.match(line)]
    taken = [one for number in sorted(lines) for one in _taken(process, inside, number, lines[number], orders)]
    ordered = [one for one in taken if one.index]
    found = []
    for one in (one for one in taken if not one.index):
        beside = [other for other in ordered if other.key == one.key and _together(one, other, loops)]
        if len({other.index for other in beside}) == 1:
            found.append((one, beside[0].index))
    if len(found) != 1:
        return []
    (one, index), own = found[0], found[0][0].own
    named = ast.unparse(one.node.value)
    changed = own.changed(own.parsed.with_parts({one.node: f"{named}[{index}]"}))
    place = inside.at(own.line, own.text)
    return [Apart(place, f"{named}[{one.key}]", index, changed)]


def _taken(process: Process, inside: Location, number: int, line: str, orders: set[str]) -> list[_Taken]:
    own = own_statement.at(process, inside.at(number, line))
    if own is None or own.line != number:
        return []
    found = []
    for node in (one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Subscript)):
        if isinstance(node.slice, ast.Slice) and isinstance(node.value, ast.Name | ast.Attribute):
            text = own.parsed.text_of(node)
            found.append(_Taken(own, node, (_assigned(own, node) or text) if ast.unparse(node.value) in orders else ""))
    return found


def _together(one: _Taken, other: _Taken, loops: list[int]) -> bool:
    """Whether two statements stand in the same loop, as near as those that make a batch do."""
    first, last = sorted((one.own.line, other.own.line))
    return last - first <= _NEAR and not any(first < number <= last for number in loops)


def _assigned(own: OwnStatement, node: ast.Subscript) -> str:
    """The name that is given to this part of an order, where the statement does nothing else."""
    statement = own.parsed.statement
    if isinstance(statement, ast.Assign) and statement.value is node and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return ""
