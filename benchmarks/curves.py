"""How often diagnoses from curves alone are right, on recordings that other people labelled or made.

    python benchmarks/curves.py FOLDER [--part reporting|setting|all] [--list]

FOLDER holds the recordings and an INDEX.md with tables of: file, ..., expect, allow, known, sure. Within each label the
recordings, in the order of the CRC-32 of their names, go by turns to the part that is reported and to the part on which
thresholds may be set; nobody looks at the first one to set a threshold. `expect`: any of these rules is right;
`allow`: these may fire, too. Findings of severity info are no alarms, but count as found.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import tracelyze
from tracelyze.errors import InputError

PARTS = ("reporting", "setting")


@dataclass(frozen=True)
class Labelled:
    """One recording with what is known of it. `healthy`: nothing may fire; `unsure`: nobody knows."""

    name: str
    label: str
    expect: frozenset[str]
    allow: frozenset[str]

    @property
    def healthy(self) -> bool:
        return "healthy" in self.expect

    @property
    def unsure(self) -> bool:
        return not self.expect - {"-", "unsure"}


def read_index(folder: Path) -> list[Labelled]:
    """The labelled recordings of the tables in INDEX.md whose columns bear these names."""
    found: list[Labelled] = []
    columns: list[str] = []
    for line in (folder / "INDEX.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if {"file", "expect", "allow"} <= set(cells):
            columns = cells
        elif not cells:
            columns = []
        elif columns and len(cells) == len(columns) and "/" in cells[0]:
            row = dict(zip(columns, cells, strict=True))
            expect, allow = (frozenset(part.strip() for part in row[key].split(",")) for key in ("expect", "allow"))
            found.append(Labelled(row["file"], row.get("label", row["expect"]), expect, allow))
    return found


def split(recordings: list[Labelled]) -> dict[str, list[Labelled]]:
    """The recordings by part, in the order of the index."""
    by_label: dict[str, list[Labelled]] = defaultdict(list)
    for one in recordings:
        by_label[one.label].append(one)
    part_of = {
        one.name: PARTS[place % 2]
        for members in by_label.values()
        for place, one in enumerate(sorted(members, key=lambda one: zlib.crc32(one.name.encode())))
    }
    return {part: [one for one in recordings if part_of[one.name] == part] for part in PARTS} | {"all": recordings}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=(*PARTS, "all"), default="reporting")
    parser.add_argument("--list", action="store_true", help="a line per recording")
    options = parser.parse_args()
    right, wrong, expected = Counter[str](), Counter[str](), Counter[str]()
    healthy = quiet = faulty = hits = 0
    for one in split(read_index(options.folder))[options.part]:
        found: dict[str, str] = {}
        refused = ""
        try:
            found = {f.rule: f.severity for f in tracelyze.diagnose(options.folder / one.name).findings}
        except InputError as error:
            refused = str(error)
        alarms = {rule for rule, severity in found.items() if severity != "info"} - one.expect - one.allow
        hit = bool(found.keys() & one.expect)
        if not one.unsure:
            right.update(found.keys() & one.expect)
            expected.update(one.expect - {"healthy"} if not one.healthy else ())
            healthy, quiet = healthy + one.healthy, quiet + (one.healthy and not alarms)
            faulty, hits = faulty + (not one.healthy), hits + (hit and not one.healthy)
            wrong.update(alarms)
        if options.list:
            state = "unsure" if one.unsure else "ALARM" if alarms else "ok" if one.healthy or hit else "MISSED"
            told = ", ".join(f"{rule} ({severity})" for rule, severity in found.items()) or refused[:80] or "-"
            sys.stdout.write(f"{state:8} {one.name:50.50} {one.label:30.30} {told}\n")
    sys.stdout.write(
        f"{options.part}: {hits} of {faulty} faulty found, {quiet} of {healthy} healthy without an alarm\n"
    )
    for rule in sorted(right.keys() | wrong.keys()):
        sys.stdout.write(
            f"  {rule:26} right {right[rule]:3} (of {expected[rule]:3} where it may be)  wrong {wrong[rule]}\n"
        )


if __name__ == "__main__":
    main()
