"""Compares the wheel and the source distribution in a folder with this checkout; exit status 1 if anything differs.

`python -m build && python scripts/check_packages.py dist`. The wheel holds the package, its licenses and its entry
point, and nothing else; a wheel built from the source distribution would be the same.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def in_tree() -> set[str]:
    """Files of the package, relative to the root of the checkout."""
    files = (path for path in (ROOT / "tracelyze").rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}


def wrong_with_wheel(wheel: Path) -> list[str]:
    """What is missing in the wheel, and what should not be there."""
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        points = [archive.read(name).decode() for name in held if name.endswith("/entry_points.txt")]
    information = {name for name in held if re.match(r"tracelyze-[^/]+\.dist-info/", name)}
    licenses = 1 + len(list(ROOT.glob("tracelyze/reports/assets/vendor/*/LICENSE")))
    problems = differences(wheel.name, held - information, in_tree())
    if len([name for name in information if "/licenses/" in name]) != licenses:
        problems.append(f"{wheel.name}: not all licenses are in it")
    if "tracelyze/py.typed" not in held:
        problems.append(f"{wheel.name}: py.typed is not in it, its types would not be seen")
    if not any("tracelyze = tracelyze.cli:main" in text for text in points):
        problems.append(f"{wheel.name}: it installs no command")
    return problems


def wrong_with_sources(sources: Path) -> list[str]:
    """What the source distribution lacks of the package."""
    with tarfile.open(sources) as archive:
        held = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    held = {name for name in held if name.startswith("tracelyze/")}
    return differences(sources.name, held, in_tree())


def differences(name: str, held: set[str], expected: set[str]) -> list[str]:
    """One line per file that is in one of both only."""
    return [
        *(f"{name}: {path} is missing" for path in sorted(expected - held)),
        *(f"{name}: {path} should not be in it" for path in sorted(held - expected)),
    ]


def main(folder: Path) -> int:
    wheels, sources = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sources) != 1:
        print(f"{folder}: {len(wheels)} wheels and {len(sources)} source distributions, one of each is expected")
        return 1
    problems = [*wrong_with_wheel(wheels[0]), *wrong_with_sources(sources[0])]
    print("\n".join(problems) or f"{wheels[0].name}, {sources[0].name}: as in this checkout")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))
