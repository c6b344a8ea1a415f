"""What a handler of an OS signal raises while a line of the collector runs goes on to the program: a time limit that a
script sets with `signal.alarm` must end the step, wherever it strikes."""

from __future__ import annotations

import ast
import signal
from pathlib import Path
from typing import Any

import pytest

import tracelyze.collectors
from tracelyze.collectors.system import program_signals

COLLECTOR = Path(tracelyze.collectors.__file__).parent
# Each of these asks whose error it is itself.
ASKS = ("raised_by_a_signal_handler", "switch_off(", "self.fail(", "self._control.fail(", "self._reading_failed(")
ELSEWHERE = {
    "launching/inject/sitecustomize.py": "before the program begins",
    "recording/ending.py": "when the program has ended",
    "recording/ledger.py": "before the first step",
    "recording/sampling.py": "on a thread, where no handler runs",
    "script.py": "before the program begins, and when it has ended",
    "storage/writer.py": "on a thread mostly; a file that was left half written ends the recording",
}


def swallowing(source: str) -> list[int]:
    """Lines that catch every error, without asking whether it is the program's."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler) and node.type is not None and ast.unparse(node.type) == "Exception":
            raises = any(isinstance(one, ast.Raise) for one in node.body)
            if not raises and not any(name in ast.unparse(node) for name in ASKS):
                found.append(node.lineno)
        elif isinstance(node, ast.Call) and ast.unparse(node) == "contextlib.suppress(Exception)":
            found.append(node.lineno)
    return found


def test_no_line_of_the_collector_swallows_what_a_handler_raises() -> None:
    paths = {path.relative_to(COLLECTOR).as_posix(): path for path in COLLECTOR.rglob("*.py")}
    found = {name for name, path in paths.items() if swallowing(path.read_text(encoding="utf-8"))}
    assert found == set(ELSEWHERE)


def test_the_search_finds_what_swallows() -> None:
    caught = "try:\n    f()\nexcept Exception as error:\n    {}"
    assert swallowing(caught.format("self.error = error")) == [3]
    assert swallowing("with contextlib.suppress(Exception):\n    f()") == [1]
    assert swallowing(caught.format("self.off = True\n    raise")) == []
    assert swallowing(caught.format("if raised_by_a_signal_handler(error):\n        raise")) == []


def test_own_errors_are_dropped_and_those_of_handlers_are_not() -> None:
    class Late(Exception):
        pass

    def handler(*_: Any) -> None:
        raise Late

    with program_signals.own_errors_dropped:
        raise ValueError("of ours")
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Late), program_signals.own_errors_dropped:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
