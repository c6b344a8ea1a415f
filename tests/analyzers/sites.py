"""Recorded lines of a script that is given as text, and an edit that a finding proposes applied to that text."""

from __future__ import annotations

from typing import Any

from tracelyze.diagnosis import Diff


def sites_of(source: str, **roles: str) -> list[dict[str, Any]]:
    """The rows that the collector would record for lines that contain these texts."""
    lines = source.splitlines()
    rows: list[dict[str, Any]] = []
    for role, text in roles.items():
        at = next(number for number, line in enumerate(lines, 1) if text in line)
        first = max(1, at - 3)
        rows.append(
            {
                "site": len(rows) + 1,
                "role": role,
                "file": "train.py",
                "line": at,
                "function": "train",
                "source": lines[at - 1].strip(),
                "excerpt": "\n".join(lines[first - 1 : at + 3]),
                "excerpt_line": first,
            }
        )
    return rows


def lines_of(text: str, **roles: str) -> list[dict[str, Any]]:
    """Sites of a script: for each role the line that holds its words."""
    lines = text.split("\n")
    at = {role: next(number for number, line in enumerate(lines) if word in line) for role, word in roles.items()}
    shared = {"file": "t.py", "function": "main", "excerpt_line": 1, "excerpt": text}
    return [
        shared | {"site": number, "role": role, "line": number + 1, "source": lines[number].strip()}
        for role, number in at.items()
    ]


def placed(make: Any, source: str, role: str, text: str, **more: Any) -> tuple[Any, Any]:
    """A run of which the lines around this text are known, and the place of it."""
    process = make.process(sites=sites_of(source, **{role: text}), **more)
    return process, process.site(1)


def applied(source: str, diff: Diff | None) -> str:
    """The program after the edit; what it removes has to stand there."""
    assert diff is not None
    lines = source.splitlines()
    at = diff.line - 1
    assert lines[at : at + len(diff.removed)] == diff.removed
    return "\n".join([*lines[:at], *diff.added, *lines[at + len(diff.removed) :]]) + "\n"
