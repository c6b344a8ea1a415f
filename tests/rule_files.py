"""Where the rules lie: `rules/<family>/<rule>.py`, or `rules/<family>/<rule>/rule.py` beside what it alone uses."""

from __future__ import annotations

from pathlib import Path

from tracelyze.analyzers import rules

FOLDER = Path(rules.__file__).parent
RULE_FILES = sorted([*FOLDER.glob("*/[!_]*.py"), *FOLDER.glob("*/*/rule.py")])
PARTS = sorted({*FOLDER.glob("*/*/**/*.py")} - {*RULE_FILES})


def name_of(path: Path) -> str:
    """The module's name of the rule, which is its id with underscores."""
    return path.parent.name if path.stem == "rule" else path.stem
