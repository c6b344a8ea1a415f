"""What each diagnosis said of a training with its fault, and what to change: for `tracelyze rules ID`.

`examples.json` is written by `python scripts/make_docs.py`, from what `scripts/rule_examples.py` recorded.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("examples.json")
SHOWN: Final = ("title", "fix", "fix_code", "removed", "added", "verify")
"""Fields of an example that are kept in the package."""


def lines(rule: str, width: int) -> list[str]:
    """What to change, as an example says it; empty for a rule without one, such as one of an own package."""
    known = json.loads(FILE.read_text(encoding="utf-8")).get(rule)
    if known is None:
        return []
    edit = [*(f"-{line}" for line in known["removed"]), *(f"+{line}" for line in known["added"])]
    code = edit or known["fix_code"].splitlines()
    said = ["", "Example of what it says:", *_wrapped(known["title"], width)]
    said += ["", "What to change:", *_wrapped(known["fix"], width), *([""] if code else [])]
    said += [f"    {line}".rstrip() for line in code]
    return said + (["", "To verify:", *_wrapped(known["verify"], width)] if known["verify"] else [])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
