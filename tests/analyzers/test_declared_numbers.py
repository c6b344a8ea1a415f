"""Every number that a diagnosis compares with is declared, with its source.

A rule compares with a `Threshold`, so that the report shows the number and the configuration can change it; a signature
takes those of the rule that calls it. A measure that several rules share compares with a constant of its module, with a
comment that says where the number comes from.

Allowed everywhere are 0, 1, -1 and 2 that stand alone or are added: empty or not, the sign, one or several, the last
index. In a rule half of something is a judgement like any other, so 2 is allowed as a factor of a threshold, or to find
the middle of something; in a measure halves and doubles are midpoints and widths, and allowed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.rule_files import PARTS, RULE_FILES
from tracelyze import analyzers

FOLDER = Path(analyzers.__file__).parent
COUNTS = {0, 1, -1, 2}
FACTORS = {0, 1, -1}
DECLARE = ("kineto/rules", "kineto/rule.py")
"""What says by itself that a run is at fault, as the rules of runs do (`RULE_FILES`): numbers are thresholds."""
MEASURE = (
    "signatures",
    "computed",
    "statistics",
    "kineto/attribution",
    "evidence",
    "script",
    "comparing",
    "recorded",
    "causality.py",
    "consequences",
)
"""What measures for it: numbers are constants with their source."""
SAME_IN_A_CALL = {"abs", "min", "max", "minimum", "maximum", "float", "int", "sqrt", "log"}


def files(parts: tuple[str, ...]) -> list[Path]:
    """The modules of these rooms, and the rules, or what only they use."""
    roots = [FOLDER / part for part in parts]
    of_rules = RULE_FILES if parts is DECLARE else PARTS
    return sorted([*of_rules, *(path for root in roots for path in ([root] if root.suffix else root.rglob("*.py")))])


def number(node: ast.expr) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = number(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)
    return None


def numbers(side: ast.expr, constants: dict[str, float] | None, factor: bool = False) -> Iterator[float]:
    """The numbers that one side of a comparison is made of; those of `constants` count like literals (a rule's).

    Without `constants` the side is one of a measure, which may halve and double.
    """
    value = (constants or {}).get(side.id) if isinstance(side, ast.Name) else number(side)
    if value is not None:
        if value not in (FACTORS if factor else COUNTS):
            yield value
    elif isinstance(side, ast.BinOp):
        scales = constants is not None and not isinstance(side.op, ast.Add | ast.Sub) and not _may_halve(side)
        for part in (side.left, side.right):
            yield from numbers(part, constants, scales)
    elif isinstance(side, ast.UnaryOp):
        yield from numbers(side.operand, constants, factor)
    elif isinstance(side, ast.IfExp):
        yield from numbers(side.body, constants, factor)
        yield from numbers(side.orelse, constants, factor)
    elif isinstance(side, ast.Call):
        name = side.func.attr if isinstance(side.func, ast.Attribute) else getattr(side.func, "id", "")
        for argument in side.args if name in SAME_IN_A_CALL else ():
            yield from numbers(argument, constants, factor)


def _may_halve(side: ast.BinOp) -> bool:
    """Whether a rule scales one of its thresholds, or halves a length to find the middle."""
    said = [ast.unparse(part) for part in (side.left, side.right)]
    return any("limits[" in part for part in said) or (said[0].startswith("len(") and said[1] == "2")


def assigned(node: ast.stmt) -> str:
    """The name that a statement of a module gives to a value; empty for any other statement."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


def constants_of(tree: ast.Module) -> dict[str, float]:
    """Numbers that the module names at its top."""
    named = {
        assigned(node): number(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value
    }
    return {name: value for name, value in named.items() if name and value is not None}


def undeclared(text: str, with_constants: bool) -> list[tuple[int, float]]:
    """Line and value of every number that is compared with and is not declared."""
    tree = ast.parse(text)
    constants = constants_of(tree) if with_constants else None
    return sorted(
        {
            (node.lineno, value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare)
            for side in (node.left, *node.comparators)
            for value in numbers(side, constants)
        }
    )


def found_in(parts: tuple[str, ...], with_constants: bool) -> list[str]:
    return [
        f"{path.relative_to(FOLDER)}:{line}: {value:g}"
        for path in files(parts)
        for line, value in undeclared(path.read_text(encoding="utf-8"), with_constants)
    ]


def test_a_rule_compares_with_thresholds() -> None:
    found = found_in(DECLARE, with_constants=True)
    assert not found, f"declare each as a Threshold, with its source, and compare with limits[...]: {found}"


def test_a_shared_measure_compares_with_named_constants() -> None:
    found = found_in(MEASURE, with_constants=False)
    assert not found, f"name each at the top of its module, with a comment that says where it comes from: {found}"


def test_a_constant_that_is_compared_with_says_where_it_comes_from() -> None:
    bare = []
    for path in files(MEASURE):
        text = path.read_text(encoding="utf-8")
        lines, tree = text.splitlines(), ast.parse(text)
        compared = {
            name.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Compare)
            for side in (node.left, *node.comparators)
            for name in ast.walk(side)
            if isinstance(name, ast.Name)
        }
        for place, node in enumerate(tree.body):
            if assigned(node) in compared & constants_of(tree).keys():
                after = tree.body[place + 1] if place + 1 < len(tree.body) else None
                documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                if "#" not in lines[node.lineno - 1] and not lines[node.lineno - 2].startswith("#") and not documented:
                    bare.append(f"{path.relative_to(FOLDER)}:{node.lineno}: {assigned(node)}")
    assert not bare


def test_the_search_finds_what_it_must() -> None:
    text = """\
FEW = 3
a > 0
len(a) >= 2
b[i] < len(b) - 1
a > 0.5
a > 2 * b
a > 2 * limits["a"]
b[len(b) // 2] > a > len(b) / 2
a < max(3, 0.1 * b)
c < FEW
d > np.median(x[:9])
"""
    assert undeclared(text, with_constants=True) == [(5, 0.5), (6, 2), (9, 0.1), (9, 3), (10, 3)]
    assert undeclared(text, with_constants=False) == [(5, 0.5), (9, 0.1), (9, 3)]
