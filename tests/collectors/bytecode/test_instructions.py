"""Instructions of functions are read once for all readers that ask for them in a row."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

import pytest

from tracelyze.collectors.program.lines import instructions, named_calls


def compiled(statements: int) -> CodeType:
    return compile("".join(f"a{at % 7} = b / {at}\n" for at in range(statements)), "train.py", "exec")


def lines(code: CodeType) -> list[tuple[int, str]]:
    return [(line, one.opname) for line, one in instructions.by_line(code)]


def test_instructions_are_those_of_python_3_11_in_any_version() -> None:
    """Each on one local variable, constants and subscripts by one name, however a version calls or combines them."""
    source = "def f(a, b):\n    c = d = b\n    a = {'x': c, 'y': a[0]['z']}\n    b = d; c = b\n    return a, c, 7\n"
    (code,) = (one for one in compile(source, "train.py", "exec").co_consts if isinstance(one, CodeType))
    found = [one for _, one in instructions.by_line(code)]
    on_variables = [(one.opname, one.argval) for one in found if "FAST" in one.opname]
    assert on_variables == [
        ("LOAD_FAST", "b"), ("STORE_FAST", "c"), ("STORE_FAST", "d"),
        ("LOAD_FAST", "c"), ("LOAD_FAST", "a"), ("STORE_FAST", "a"),
        ("LOAD_FAST", "d"), ("STORE_FAST", "b"), ("LOAD_FAST", "b"), ("STORE_FAST", "c"),
        ("LOAD_FAST", "a"), ("LOAD_FAST", "c"),
    ]  # fmt: skip
    assert [one.opname for one in found].count("BINARY_SUBSCR") == 2
    assert [one.argval for one in found if one.opname == "LOAD_CONST" and type(one.argval) is int] == [0, 7]


def later(opname: str, argval: Any, argrepr: str = "") -> dis.Instruction:
    """An instruction as a later version has it."""
    (first, *_) = dis.get_instructions(compiled(1))
    return first._replace(opname=opname, argval=argval, argrepr=argrepr)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (later("LOAD_FAST_CHECK", "x"), [("LOAD_FAST", "x")]),
        (later("LOAD_FAST_AND_CLEAR", "x"), [("LOAD_FAST_AND_CLEAR", "x")]),
        (later("LOAD_FAST_LOAD_FAST", ("x", "y")), [("LOAD_FAST", "x"), ("LOAD_FAST", "y")]),
        (later("STORE_FAST_LOAD_FAST", ("x", "y")), [("STORE_FAST", "x"), ("LOAD_FAST", "y")]),
        (later("STORE_FAST_STORE_FAST", ("x", "y")), [("STORE_FAST", "x"), ("STORE_FAST", "y")]),
        (later("LOAD_FAST_BORROW", "x"), [("LOAD_FAST", "x")]),
        (later("LOAD_FAST_BORROW_LOAD_FAST_BORROW", ("x", "y")), [("LOAD_FAST", "x"), ("LOAD_FAST", "y")]),
        (later("LOAD_SMALL_INT", 7), [("LOAD_CONST", 7)]),
        (later("LOAD_SUPER_ATTR", "train", "NULL|self + train"), [("LOAD_METHOD", "train")]),
        (later("RETURN_CONST", 7), [("LOAD_CONST", 7), ("RETURN_VALUE", None)]),
        (later("BINARY_OP", 26, "[]"), [("BINARY_SUBSCR", 26)]),
        (later("BINARY_OP", 0, "+"), [("BINARY_OP", 0)]),
    ],
)
def test_instructions_of_later_versions(
    one: dis.Instruction, expected: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = compiled(2)
    monkeypatch.setattr(dis, "get_instructions", lambda _: iter([one]))
    assert [(single.opname, single.argval) for _, single in instructions.by_line(code)] == expected


def test_readers_in_a_row_and_in_turns_see_all_of_a_function() -> None:
    one, other = compiled(3), compiled(50)
    expected = {code: lines(code) for code in (one, other)}
    assert [line for line, opname in expected[one] if opname == "BINARY_OP"] == [1, 2, 3]
    for code in (one, one, other, one, other, other):
        assert lines(code) == expected[code]
    begun = instructions.by_line(one)
    first = next(begun)
    assert lines(other) == expected[other]
    assert [(line, instruction.opname) for line, instruction in (first, *begun)] == expected[one], "read in between"


def test_a_function_is_disassembled_once_for_readers_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[CodeType] = []
    original = dis.get_instructions

    def counted(code: CodeType) -> Any:
        asked.append(code)
        return original(code)

    monkeypatch.setattr(dis, "get_instructions", counted)
    short, long = compiled(20), compiled(instructions.KEPT)
    for _ in range(3):
        lines(short)
    assert asked == [short]
    for _ in range(2):
        assert lines(long)
    assert asked == [short, long, long], "too many instructions to keep"
    lines(short)
    assert len(asked) == 3, "what is read as it comes displaces nothing"
    assert not lines(compiled(instructions.LONGEST // 4)), "nobody reads that much"


def test_a_method_of_super_is_a_method() -> None:
    source = "class A(B):\n    def train(self, mode=True):\n        super().train()\n        return self\n"
    (kind,) = (one for one in compile(source, "train.py", "exec").co_consts if isinstance(one, CodeType))
    (method,) = (one for one in kind.co_consts if isinstance(one, CodeType))
    assert named_calls.methods(method, "train") == [3]
