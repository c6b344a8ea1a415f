"""Lines by their loop: what a dataset keeps in it, and what is around a line."""

from __future__ import annotations

import pytest

from tests.collectors.conftest import codes
from tracelyze.collectors.program.lines import script_text
from tracelyze.collectors.program.lines.growing import kept
from tracelyze.collectors.program.lines.loops import extents


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("self.cache[index] = item", True),
        ("self.seen.append(item)", True),
        ("self.names.setdefault(index, []).append(item)", True),
        ("item[index] = self.items[index]", False),
        ("rows.append(self.items[index])", False),
        ("self.last = item", False),
    ],
)
def test_what_a_dataset_keeps_while_it_reads(text: str, found: bool) -> None:
    *_, function = codes(f"def f(self, index, item, rows):\n    item = index + 1\n    {text}")
    assert kept.kept(function) == [3] * found


def test_the_loop_around_a_line_and_what_makes_its_batches() -> None:
    source = """
        def batches(x):
            for start in range(9):
                yield x[start]
        def main(x):
            for epoch in range(3):
                for one in batches(x):
                    one.backward()
                print(epoch)
            x.backward()
    """
    functions = list(codes(source))
    (main,) = (code for code in functions if code.co_name == "main")
    assert extents.loop_around(main, 8) == 7
    assert extents.loop_around(main, 9) == 6
    assert extents.loop_around(main, 10) is None
    assert [code.co_name for code in script_text.batches_of(main, functions)] == ["batches"]
