"""Lines that move a bias by hand are read off the bytecode."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.lines.moved_biases import moves


class Balanced:
    def __init__(self) -> None:
        self.select_bias: Any = 0.0
        self.bias: Any = 0.0
        self.total: Any = 0.0

    def forward(self, load: Any, rate: Any) -> Any:
        shown = load + self.bias
        self.select_bias += rate * (load - load.mean())
        self.bias = self.bias - rate * load
        self.bias.data.add_(rate)
        self.total += shown
        bias = self.bias
        return bias + shown


def test_lines_that_move_a_bias() -> None:
    code = Balanced.forward.__code__
    assert [line - code.co_firstlineno for line in moves(code)] == [2, 3, 4], "not those that add it to something"
    assert moves(Balanced.__init__.__code__) == []
