"""Compares the diagnoses of the sample traces with those in sample_traces/golden; exit status 1 if one differs.

`python scripts/golden.py` prints the differences, line by line, to be reviewed by eye; `--update` writes the diagnoses
of this checkout in place of the stored ones. What depends on the clock of the machine that judges is left out.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_traces"
GOLDEN = SAMPLES / "golden"
LONGEST = 12  # numbers of a chart that are shown one by one: its other lines are there to be looked at, not compared


def names() -> list[str]:
    """The recorded samples."""
    return sorted(path.parent.name for path in SAMPLES.glob("*/run.json"))


def diagnosis(name: str) -> str:
    """The JSON diagnosis of a sample, one value a line; the sample itself is left as it is."""
    import tracelyze
    from tracelyze.reports import render

    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / name
        shutil.copytree(SAMPLES / name, copy)
        document = json.loads(render(tracelyze.diagnose(copy), "json"))
    return json.dumps(normalized(document, place), indent=1, ensure_ascii=False) + "\n"


def normalized(value: Any, place: str) -> Any:
    """The document without the folder it was judged in, and without the version that judged it."""
    if isinstance(value, dict):
        return {key: normalized(one, place) for key, one in value.items() if key != "tracelyze_version"}
    if (
        isinstance(value, list)
        and len(value) > LONGEST
        and all(isinstance(one, (int, float, type(None))) for one in value)
    ):
        return f"{len(value)} values"
    if isinstance(value, list):
        return [normalized(one, place) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")  # the last digits of a sum depend on the processor
    if isinstance(value, str):
        return re.sub(re.escape(place) + r"/?", "", value)
    return value


def difference(name: str) -> list[str]:
    """Lines of a unified difference between the stored diagnosis and the one of this checkout; none if equal."""
    stored = GOLDEN / f"{name}.json"
    before = stored.read_text(encoding="utf-8") if stored.exists() else ""
    after = diagnosis(name)
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), f"golden/{name}", "this checkout", n=2))


def main(arguments: list[str]) -> int:
    if arguments == ["--update"]:
        GOLDEN.mkdir(exist_ok=True)
        for name in names():
            (GOLDEN / f"{name}.json").write_text(diagnosis(name), encoding="utf-8")
        return 0
    if arguments:
        print("usage: python scripts/golden.py [--update]")
        return 2
    different = [lines for name in names() if (lines := difference(name))]
    print("\n".join("\n".join(lines) for lines in different) or "no difference")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
