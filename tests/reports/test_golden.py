"""The reports of one diagnosis, kept as files: a change of theirs is seen as a change of words.

UPDATE_GOLDEN=1 python -m pytest tests/reports/test_golden.py    # accept the reports as they are now
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tracelyze.reports import FORMATS, render

from . import examples

GOLDEN = Path(__file__).parent / "golden"


def scrubbed(report: str) -> str:
    """The page without its style, scripts, data and library, one element a line."""
    report = re.sub(r"(<(style|script)[^>]*>).*?(</\2>)", r"\1…\3", report, flags=re.DOTALL)
    report = re.sub(r"'sha256-[^']+'|&#39;sha256-[\w+/=]+&#39;", "(hash)", report)
    return re.sub(r"(?<=>)(?=<(?!/))", "\n", report)


@pytest.mark.parametrize("suffix", [".html", ".md", ".txt"])
def test_reports_have_not_changed(suffix: str) -> None:
    report = render(examples.chain(), FORMATS[suffix])
    report = scrubbed(report) if suffix == ".html" else report
    kept = GOLDEN / f"chain{suffix}"
    if os.environ.get("UPDATE_GOLDEN"):
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(report, encoding="utf-8")
    assert report.splitlines() == kept.read_text(encoding="utf-8").splitlines()
