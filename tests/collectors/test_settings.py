"""Lines at which a script gives a framework a setting by name."""

from __future__ import annotations

import linecache
from pathlib import Path

from tracelyze.analyzers.rules import RULES
from tracelyze.collectors.program.lines.settings import named_arguments

SCRIPT = """\
def main(args):
    other = dict(
        rate=1.0, learning_rate=args.rate)
    trainer = Trainer(
        model,
        max_steps=30,
        learning_rate=args.learning_rate
        if args.learning_rate
        else 3e-4,
        # detect_anomaly=True would be slow
        fp16=args.fp16,
    )
    learning_rate = args.learning_rate
    print("learning_rate =", learning_rate, ("fp16", "packing"))
"""


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    linecache.checkcache()
    names: dict[str, object] = {}
    exec(compile(SCRIPT, str(path), "exec"), names)
    assert named_arguments.lines(names["main"].__code__) == [3, 7, 11]  # type: ignore[attr-defined]


def test_what_rules_ask_for_is_looked_for() -> None:
    asked = {name for rule in RULES for name in rule.settings}
    assert asked == named_arguments.NAMES
