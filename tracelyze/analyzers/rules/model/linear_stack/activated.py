"""What stands, or should stand, between two layers in the script's own words: an Identity that an activation takes the
place of, an activation that is added under a condition alone, and the statement that makes a row of layers with one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Location
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_ACTIVATIONS: Final = (
    "CELU", "ELU", "GELU", "Hardswish", "Hardtanh", "LeakyReLU", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU",
    "SiLU", "Sigmoid", "Softplus", "Tanh",
)  # fmt: skip
_NAMED_SO: Final = ("act", "nonlin")  # how a script's own name for one begins


class Between(NamedTuple):
    """What a summary and a fix say about it, the line to change, and an example."""

    said: str
    fix: str
    place: Location | None
    code: str


class _Layers(NamedTuple):
    """A statement that puts layers into a list, and the name of the list as it is written."""

    own: OwnStatement
    held_by: str
    made: list[ast.expr]


def in_row(process: Process, redundant: Mapping[str, str]) -> Between | None:
    """Where one statement of the script makes every layer that feeds another: `redundant`, by each layer the one before
    it. None where several do, or where it is not known as a whole."""
    places = [process.module_location(one) for one in redundant.values()]
    statements = [own_statement.at(process, one) for one in places]
    place, own = places[0], statements[0]
    if place is None or own is None or any(one is None or one.line != own.line for one in statements):
        return None
    layers = _appended(own)
    if layers is not None:
        return _conditional(process, layers, place) or Between(
            "", "", place, _one_more(process, layers, redundant, place)
        )
    code = _in_sequential(own, redundant)
    return Between("", "", place, code) if code else None


def _appended(own: OwnStatement) -> _Layers | None:
    """`layers.append(nn.Linear(a, b))`, `layers.extend([...])` and `layers += [...]`."""
    statement = own.parsed.statement
    if isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.List):
        return _Layers(own, own.parsed.text_of(statement.target), statement.value.elts)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
        return None
    if call.func.attr not in ("append", "extend"):
        return None
    given = call.args[0]
    made = given.elts if isinstance(given, ast.List) else [given]
    return _Layers(own, own.parsed.text_of(call.func.value), made)


def _conditional(process: Process, layers: _Layers, place: Location) -> Between | None:
    """An activation that the only condition below the statement, in the same block, adds to the same list."""
    own, lines = layers.own, recorded_text.of_function(process, place)
    found = [(head, at) for head, at in _under_conditions(lines, own) if _activation(lines[at], layers.held_by)]
    if len(found) != 1:
        return None
    head, at = found[0]
    condition = lines[head].strip()
    activation = _activation(lines[at], layers.held_by)
    code = f"{own.dedented(own.text)}\n{layers.held_by}.append({activation})  # here, and no longer on line {at}"
    return Between(
        f" Line {at} adds an activation, but only if line {head} holds: `{condition}`",
        f"Add the activation of line {at} whether or not line {head} holds.",
        place.at(head, condition),
        code,
    )


def _under_conditions(lines: Mapping[int, str], own: OwnStatement) -> Iterator[tuple[int, int]]:
    """The lines that stand directly under an `if` below a statement, in the same block, each after that `if`."""
    depth, head = len(own.indent), 0
    at = own.line + own.text.count("\n") + 1
    while at in lines and (not lines[at].strip() or recorded_text.indent_of(lines[at]) >= depth):
        text = lines[at].strip()
        if text and not text.startswith("#"):
            if recorded_text.indent_of(lines[at]) == depth:
                head = at if text.startswith("if ") and text.endswith(":") else 0
            elif head:
                yield head, at
        at += 1


def _activation(line: str, held_by: str) -> str:
    """The activation that a line adds to the list of this name, as it is made there; empty where it adds none."""
    parsed = parsed_line.parse(line.strip())
    own = own_statement.OwnStatement("", 0, "", parsed) if parsed is not None else None
    layers = _appended(own) if own is not None else None
    if parsed is None or layers is None or layers.held_by != held_by:
        return ""
    calls = [one for one in layers.made if isinstance(one, ast.Call) and _is_activation(name_of(one.func))]
    return parsed.text_of(calls[0]) if len(calls) == 1 else ""


def _is_activation(name: str) -> bool:
    return name in _ACTIVATIONS or name.lower().startswith(_NAMED_SO)


def _one_more(process: Process, layers: _Layers, redundant: Mapping[str, str], place: Location) -> str:
    """The statement, and one below it that adds an activation. Where it makes the last layer too, in a loop, that one's
    is taken off behind the loop; empty where that is not known to be right."""
    rows = process.tables["modules"].records()
    made = {str(row["module"]) for row in rows if row["kind"] != "Identity" and process.site(row["made_at"]) == place}
    own = layers.own
    kinds = [name_of(one.func) if isinstance(one, ast.Call) else "" for one in layers.made]
    if "" in kinds or sum("Linear" in kind or "Conv" in kind for kind in kinds) > 1:
        return ""
    both = f"{own.dedented(own.text)}\n{layers.held_by}.append(nn.GELU())"
    if made <= set(redundant.values()):
        return both
    lines = recorded_text.of_function(process, place)
    head, after = own.line - 1, own.line + own.text.count("\n") + 1
    while after in lines and not lines[after].strip():
        after += 1
    while head in lines and (not lines[head].strip() or recorded_text.indent_of(lines[head]) >= len(own.indent)):
        head -= 1
    ends = after in lines and recorded_text.indent_of(lines[after]) < len(own.indent)
    if not ends or not lines.get(head, "").strip().startswith("for "):
        return ""
    inside = "\n".join(f"    {line}" for line in both.split("\n"))
    return (
        f"{lines[head].strip()}\n{inside}\n{layers.held_by}.pop()  # behind the loop: the last layer gives the output"
    )


def _in_sequential(own: OwnStatement, redundant: Mapping[str, str]) -> str:
    """The script's own Sequential with an activation behind each layer that feeds the next one."""
    call, numbers = own.only_call("Sequential"), [one.rpartition(".")[2] for one in redundant.values()]
    if call is None or not own.is_whole or not all(one.isdigit() for one in numbers):
        return ""
    if any(isinstance(one, ast.Starred) for one in call.args) or max(map(int, numbers)) >= len(call.args):
        return ""
    layers = [call.args[int(one)] for one in numbers]
    return own.dedented(own.parsed.with_parts({one: f"{own.parsed.text_of(one)}, nn.GELU()" for one in layers}))


def idle_between(process: Process, later: str, first: str) -> str:
    """The only Identity that the module of both layers holds beside them; in a row of numbered ones between them, or
    behind the last layer of a row that feeds one outside of it."""
    holder, number = first.rpartition(".")[0], _number(first)
    modules = [one for one in process.tables["modules"].records() if one["module"]]
    if later.rpartition(".")[0] != holder:
        row = {str(one["module"]): one["kind"] for one in modules if str(one["module"]).rpartition(".")[0] == holder}
        behind = [name for name in row if number is not None and (_number(name) or 0) > number]
        return behind[0] if len(behind) == 1 and holder and row[behind[0]] == "Identity" else ""
    idle = [str(one["module"]) for one in modules if one["kind"] == "Identity"]
    beside = sorted({name for name in idle if name.rpartition(".")[0] == holder})
    ends = [_number(one) for one in (first, later)]
    if None not in ends and all(_number(one) is not None for one in beside):
        beside = [one for one in beside if (ends[0] or 0) < (_number(one) or 0) < (ends[1] or 0)]
    return beside[0] if len(beside) == 1 else ""


def _number(module: str) -> int | None:
    """The place of a module in a row of numbered ones."""
    name = module.rpartition(".")[2]
    return int(name) if name.isdigit() else None


def all_idle(process: Process, redundant: Mapping[str, str]) -> list[str]:
    """The Identities of all places where one stands between two layers, or beside them."""
    return list(dict.fromkeys(one for pair in redundant.items() if (one := idle_between(process, *pair))))


def idle_told(process: Process, idle: list[str]) -> str:
    """Sentences on Identities, and on the line that makes one of a name which it does not find."""
    own = _maker(process, idle[0])
    found = _with_fallback(own) if own is not None else None
    if _in_a_row(idle):
        said = f" {_called(idle).capitalize()}, between them, are Identities and change nothing."
    else:
        where = "between them" if idle[0].isdigit() else "in the same module"
        name = f"Module {idle[0]}" if idle[0].isdigit() else idle[0]
        said = f" {name}, {where}, is an Identity and changes nothing."
    if own is None or found is None:
        return said
    name = own.parsed.text_of(found[1])
    return f"{said} Line {own.line} gives one for each name that it does not find: look at `{name}`."


def idle_remedy(process: Process, idle: list[str], others: str) -> str:
    """What to do about it; `others`: words for more of them."""
    own = _maker(process, idle[0])
    if own is not None and _with_fallback(own) is not None:
        return f"Give line {own.line} a name that it finds, and let an unknown one raise an error."
    if _in_a_row(idle):
        return f"Make {_called(idle)} activations, or replace the layers by one."
    return f"Make {_called(idle)} an activation{others}, or replace the layers by one."


def _in_a_row(idle: list[str]) -> bool:
    """Whether several of them have numbers in the same row."""
    one_row = len({one.rpartition(".")[0] for one in idle}) == 1
    return len(idle) > 1 and one_row and all(_number(one) is not None for one in idle)


def _called(idle: list[str]) -> str:
    if _in_a_row(idle):
        return f"modules {listed(idle, most=4)}"
    return f"module {idle[0]}" if idle[0].isdigit() else idle[0]


def _maker(process: Process, idle: str) -> OwnStatement | None:
    """The statement that makes an Identity: of one that calls a name, as `act()`, the only one above it that gives the
    name what it falls back to."""
    place = process.module_location(idle)
    own = own_statement.at(process, place)
    if own is None or place is None or _with_fallback(own) is not None:
        return own
    calls = (one.func for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Call))
    called = {one.id for one in calls if isinstance(one, ast.Name)}
    found = []
    for at, line in recorded_text.of_function(process, place).items():
        name, sign, _ = line.partition("=")
        if not sign or name.strip() not in called:
            continue
        above = own_statement.at(process, place.at(at, line))
        found.append(above if at < own.line and above is not None and _with_fallback(above) is not None else None)
    return found[0] if len(found) == 1 and found[0] is not None else own


def _with_fallback(own: OwnStatement) -> tuple[ast.Call, ast.expr, str] | None:
    """`TABLE.get(name, nn.Identity)` or `getattr(nn, name, nn.Identity)`: the only such call of a statement, the name,
    and the call without what it falls back to."""
    found = []
    for call in own.parsed.calls("get", "getattr"):
        *given, last = call.args or [ast.Constant(None)]
        makes = last.func if isinstance(last, ast.Call) else last
        if call.keywords or name_of(makes) != "Identity":
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr == "get" and len(given) == 1:
            table, key = own.parsed.operand(call.func.value), own.parsed.text_of(given[0])
            found.append((call, given[0], f"{table}[{key}]"))
        elif isinstance(call.func, ast.Name) and len(given) == 2:  # of what, and which
            of, key = map(own.parsed.text_of, given)
            found.append((call, given[1], f"getattr({of}, {key})"))
    return found[0] if len(found) == 1 else None


def in_place_of(process: Process, idle: str) -> str:
    """The script's statement that makes the Identity, with an activation in its place."""
    own = _maker(process, idle) if idle else None
    call = own.only_call("Identity") if own is not None else None
    if own is None or not own.is_whole:
        return ""
    found = _with_fallback(own)
    if found is not None:
        return own.dedented(own.parsed.with_parts({found[0]: found[2]})) + "  # raises an error for an unknown name"
    if call is not None:
        return own.dedented(own.parsed.with_parts({call: own.parsed.text_of(call).replace("Identity", "GELU")}))
    said = own.parsed.statement  # self.act = act_layer(), of a class that turned out to be Identity
    made = said.value if isinstance(said, ast.Assign) and isinstance(said.value, ast.Call) else None
    alone = made is not None and not made.args and not made.keywords
    return own.dedented(own.parsed.with_parts({made: "nn.GELU()"})) if made is not None and alone else ""


def in_forward(process: Process, redundant: Mapping[str, str]) -> str:
    """An activation behind each layer that feeds the next one as it is, by their own names; between those of a row
    where the names are numbers. `redundant`: by each layer, the one before it. Empty where the whole model is a row,
    which has no forward of its own."""
    whole = any(row["module"] == "" and row["kind"] == "Sequential" for row in process.tables["modules"].records())
    if whole and all("." not in one for pair in redundant.items() for one in pair):
        return ""
    firsts = list(dict.fromkeys(one.rpartition(".")[2] for one in redundant.values()))  # once for modules of a class
    ends = list(dict.fromkeys(one.rpartition(".")[2] for one in redundant if one not in redundant.values()))
    if all(one.isidentifier() for one in [*firsts, *ends]):
        return "\n".join([f"x = torch.relu(self.{one}(x))" for one in firsts] + [f"x = self.{one}(x)" for one in ends])
    holder = next(iter(redundant.values())).rpartition(".")[0]
    row = holder.rpartition(".")[2]
    layers = f"self.{row}" if row.isidentifier() and row not in ("module", "model") else "layers"
    outside = [one for one in redundant if one not in redundant.values() and one.rpartition(".")[0] != holder]
    if outside and ends[0].isidentifier():  # what the whole row feeds, such as a head
        return f"for layer in {layers}:\n    x = torch.relu(layer(x))\nx = self.{ends[0]}(x)"
    return f"for layer in {layers}[:-1]:\n    x = torch.relu(layer(x))\nx = {layers}[-1](x)"
