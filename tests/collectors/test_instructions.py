"""Instructions of functions are read once for all readers that ask for them in a row."""

from __future__ import annotations

import dis
from types import CodeType
from typing import TYPE_CHECKING, Any

from tracelyze.collectors.program.lines import instructions

if TYPE_CHECKING:
    import pytest


def compiled(statements: int) -> CodeType:
    return compile("".join(f"a{at % 7} = b / {at}\n" for at in range(statements)), "train.py", "exec")


def lines(code: CodeType) -> list[tuple[int, str]]:
    return [(line, one.opname) for line, one in instructions.by_line(code)]


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
