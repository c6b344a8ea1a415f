"""The vendored library is the one that its VERSION file names, with its licence."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

FOLDER = files("tracelyze.reports") / "assets" / "vendor" / "plotly"
SCRIPT = Path(__file__).parents[2] / "scripts" / "vendor_plotly.py"


def test_library_matches_its_version_file() -> None:
    facts = dict(line.split(": ", 1) for line in (FOLDER / "VERSION").read_text(encoding="utf-8").splitlines())
    library = gzip.decompress((FOLDER / "plotly-basic.min.js.gz").read_bytes())
    assert hashlib.sha256(library).hexdigest() == facts["sha256"]
    assert len(library) == int(facts["bytes"])
    assert f"v{facts['version']}".encode() in library[:400]


def test_licence_is_there() -> None:
    assert "MIT License" in (FOLDER / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.starts_programs
def test_script_finds_the_folder_as_vendored() -> None:
    subprocess.run([sys.executable, str(SCRIPT), "--check"], check=True, capture_output=True)
