"""A loop that was to empty what grows, and gives its own variable another value instead."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.memory.host_memory_leak import left_full
from tracelyze.collectors.program.lines.assigned.rebinding import left_alone

GROWS = "self.kept[part].append(reading)"


def code_of(text: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(text, "train.py", "exec"), space)
    return space["f"].__code__


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("for name, values in x.items():\n  values = []", [3]),
        ("for values in x:\n  values = values[-3:]", [3]),
        ("for i, (a, b) in enumerate(x):\n  if i:\n   b = {}", [4]),
        ("for values in x:\n  values = values[-3:]\n  print(values)", []),  # it is read
        ("for name in x:\n  x[name] = []", []),
        ("for one in x:\n  one = one + 1\n  yield one", []),
        ("values = []\n for one in x:\n  values = values + [one]\n return values", []),
    ],
)
def test_lines_that_leave_what_the_loop_goes_over_alone(body: str, lines: list[int]) -> None:
    assert left_alone(code_of(f"def f(x):\n {body}")) == lines


@pytest.mark.parametrize(
    ("head", "line", "edited"),
    [
        ("for part, readings in self.kept.items():", "readings = []", "readings.clear()"),
        ("for readings in self.kept.values():", "readings = readings[-50:]", "readings[:] = readings[-50:]"),
        ("for part, readings in other.items():", "readings = []", None),
        ("for part, readings in self.kept_too.items():", "readings = []", None),
        ("for readings in self.kept.values():", "readings = total + readings", None),
    ],
)
@pytest.mark.parametrize("more", [False, True])
def test_the_line_that_was_to_empty_what_grows(make: Any, head: str, line: str, edited: str | None, more: bool) -> None:
    text = [f"        {head}", f"            {line}"]
    place = {"site": 1, "role": "left-alone", "line": 21, "function": "begin", "source": line, "excerpt_line": 20}
    grows = {"site": 2, "role": "grows", "line": 30, "function": "add", "source": GROWS, "excerpt_line": 30}
    sites = [place | {"excerpt": "\n".join(text)}, grows | {"excerpt": f"        {GROWS}"}]
    if more:  # another such line: which of them it was is not known
        sites.append(sites[0] | {"site": 3, "line": 41, "excerpt_line": 40, "function": "reset"})
    process = make.process(sites=[one | {"file": "train.py"} for one in sites])
    found = left_full.of(process, process.location("grows"))
    assert (found is not None) == (edited is not None and not more)
    if found is not None:
        assert found.place.line == 21
        assert found.diff.added == [f"            {edited}"]
        assert "Line 21 gives the name `readings` another value" in found.said
