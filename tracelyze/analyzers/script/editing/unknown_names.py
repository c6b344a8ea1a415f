"""Names in an example that the recorded lines around its place do not know: the example says that they are not the
script's own, so that nobody pastes it as if they were.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.names import names_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

NOTE: Final = "# your own names in place of: "
"""How the line begins that names them; tests read it."""
_NO_VARIABLES: Final = frozenset(dir(builtins)) | {
    "torch", "nn", "F", "np", "numpy", "math", "random", "os", "copy", "itertools", "dist", "tracelyze",
}  # fmt: skip
"""What an import names; a class, which has a capital, is imported as well."""
_WORD: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\b(?!=(?!=))")
_ASSIGNED: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*(?:=(?!=)|,)")
_KEYWORD: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)=(?!=)")
"""An argument of a call, as it is written by custom: no space around the sign."""
_STRING: Final = re.compile(r"""(?<![A-Za-z])(?P<kind>[rbfRBF]{0,2})(?:"[^"\n]*"|'[^'\n]*')""")
_FIELD: Final = re.compile(r"\{([^{}]*?)(?:![rsa])?(?::[^\[\](){}]*)?\}")
_DEFINED: Final = re.compile(r"(?:async def|def|class) (?P<name>\w+)")
_HEAD: Final = re.compile(r"\s*(?:async )?def \w+\(")
_DEFAULT: Final = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*(?::[^,=]*)?=(?!=)")  # a parameter, in a head
_ATTRIBUTE: Final = re.compile(r"(?<![\w.])self\.([A-Za-z_]\w*)")
_CALLED: Final = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)\(")
_COMPREHENDED: Final = re.compile(r"\bfor\s+\(?([\w\s,]+?)\)?\s+in\b")
_PLACED: Final = re.compile(r"#[^\n]*?\b(?:below|above|behind|in place of) line (\d+)\b")
_MOST: Final = 6  # more of them make an example a sketch, of which nobody expects the script's names


def noted(code: str, process: Process, location: Location | None, seen_at: Location | None = None) -> str:
    """The example, below a comment with the names that the script does not have there, as far as its lines tell; nor
    where the fault was seen, or the only optimizer is made, if the example makes the call that stands there; nor where
    a loader is made, if it assigns the same name."""
    if location is None or not any(row["excerpt"] for row in process.sites.records()):
        return code  # nothing is known of what the script calls things
    known = _known(process, location)
    made = process.locations("optimizer")
    loaders = [one for one in process.locations("dataloader") if _has_its_target(code, one.source)]
    for place in (seen_at, made[0] if len(made) == 1 else None, *loaders[:1]):
        if place is not None and make_one_call(code, place.source):
            known |= _known(process, place)
    for place in _of_comments(code, process, location):
        known |= _known(process, place)
    unknown = [name for name in foreign(code) if name not in known and not _is_self(name, code, process)]
    if not unknown:
        return code
    shown = ", ".join(unknown[:_MOST]) + (", ..." if len(unknown) > _MOST else "")
    return f"{NOTE}{shown}\n{code}"


def _of_comments(code: str, process: Process, location: Location) -> list[Location]:
    """The recorded lines that comments of the example name as the place of what follows: `# below line 96:`."""
    numbers = {int(number) for number in _PLACED.findall(code)}
    places = (process.site(row["site"]) for row in process.sites.shared_records() if row["line"] in numbers)
    return [one for one in places if one is not None and one.file == location.file]


def make_one_call(code: str, statement: str) -> bool:
    """Whether both call a function of the same name: then the example is likely to be that statement, changed."""
    return not set(_CALLED.findall(statement)).isdisjoint(_CALLED.findall(code))


def _has_its_target(code: str, statement: str) -> bool:
    """Whether a line of the example assigns what the statement does."""
    target = re.match(r"[\w.]+\s*=(?!=)", statement)
    return target is not None and any(line.startswith(target[0]) for line in code.split("\n"))


def foreign(code: str) -> list[str]:
    """Names that the example takes from its surroundings, or leaves to them, in the order in which they stand."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return []  # commands of a shell, or a part of a statement
    names = _Names()
    names.block(tree.body)
    left = [name for name in names.assigned if name not in names.read_inside]
    found = dict.fromkeys([*names.free, *left])
    return [name for name in found if name not in _NO_VARIABLES and not _is_class(name)]


def _is_class(name: str) -> bool:
    """By its spelling: `DataLoader`; and not `D`, as networks are called, or `PATH`."""
    return name[0].isupper() and any(letter.islower() for letter in name)


def comprehended(line: str) -> list[str]:
    """Variables of the comprehensions in a line, which nothing else on it or below it knows."""
    return [name for found in _COMPREHENDED.findall(line) for name in re.findall(r"\w+", found)]


@dataclass
class _Names:
    """What a block reads before it has assigned it, and what it assigns."""

    free: list[str] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    outer: set[str] = field(default_factory=set)
    """What is known from around the block, or imported in it."""
    read_inside: set[str] = field(default_factory=set)

    def block(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self._visit(node)

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            self._name(node.id, stored=isinstance(node.ctx, ast.Store))
        elif isinstance(node, ast.Assign):
            self.block([node.value, *node.targets])
        elif isinstance(node, ast.AugAssign):
            self.block([node.value, node.target])
            if isinstance(node.target, ast.Name) and node.target.id not in self.assigned[:-1]:
                self.free.append(node.target.id)
        elif isinstance(node, ast.For):
            self.block([node.iter, node.target])
            self.read_inside |= names_in(node.target)
            self.block(node.body)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            loops = [part for one in node.generators for part in (one.iter, one.target, *one.ifs)]
            self._inside([*loops, *([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])])
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            self._function(node)
        elif isinstance(node, ast.ExceptHandler):
            self.outer |= {node.name} if node.name else set()  # a name of the example's own
            self.block([node.type, *node.body])
        elif isinstance(node, ast.alias):
            self.outer.add((node.asname or node.name).split(".")[0])
        else:
            self.block(ast.iter_child_nodes(node))

    def _name(self, name: str, stored: bool) -> None:
        if stored:
            self.assigned.append(name)
        elif name in self.assigned or name in self.outer:
            self.read_inside.add(name)
        else:
            self.free.append(name)

    def _function(self, node: ast.FunctionDef | ast.Lambda) -> None:
        given = node.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        if isinstance(node, ast.FunctionDef):
            self.block(node.decorator_list)
            self.outer.add(node.name)
        self._inside(node.body if isinstance(node, ast.FunctionDef) else [node.body], {one.arg for one in every if one})

    def _inside(self, nodes: Iterable[ast.AST], own: set[str] | None = None) -> None:
        inner = _Names(outer=self.outer | set(self.assigned) | (own or set()))
        inner.block(nodes)
        self.free += inner.free
        self.read_inside |= inner.read_inside & set(self.assigned)


def _known(process: Process, location: Location) -> set[str]:
    """Names that stand in the recorded lines of the function, and those that lines of its module assign."""
    words = {word for line in recorded_text.of_function(process, location).values() for word in _words(line)}
    for row in process.sites.records():
        if row["file"] != location.file:
            continue
        for line in str(row["excerpt"] or row["source"] or "").split("\n"):
            defined = _DEFINED.match(line)
            if defined is not None:
                words.add(defined["name"])  # what it takes is known within it alone
            elif line[:1].strip():
                words |= _words(line)
    return words | _words(location.source)


def _is_self(name: str, code: str, process: Process) -> bool:
    """Whether the name is `self`, and stands before nothing but attributes that lines of the script take of theirs: the
    example is for the method that has them, wherever the finding is."""
    held = attributes_of_self(code)
    if name != "self" or not held:
        return False
    lines = "\n".join(recorded_text.everything(process))
    return held <= attributes_of_self(lines)


def attributes_of_self(code: str) -> set[str]:
    """The attributes that code takes of `self`, outside of strings."""
    return {found[1] for found in _ATTRIBUTE.finditer(_STRING.sub("''", code))}


def _words(line: str) -> set[str]:
    text = code_of(_STRING.sub(_fields, line))
    taken = _DEFAULT if _HEAD.match(text) else _ASSIGNED
    named = set(taken.findall(text if taken is _DEFAULT else text.split("(")[0]))
    if taken is _ASSIGNED and (text.rstrip().endswith(",") or text.count(")") > text.count("(")):
        named -= set(_KEYWORD.findall(text))  # within a call that began on a line above
    words = set(_WORD.findall(text)) | named
    return words if text.lstrip().startswith(("for ", "async for ")) else words - set(comprehended(text))


def _fields(string: re.Match[str]) -> str:
    """What a string computes: the fields of one that is formatted, and nothing of another."""
    return f"({' '.join(_FIELD.findall(string[0]))})" if "f" in string["kind"].lower() else "''"
