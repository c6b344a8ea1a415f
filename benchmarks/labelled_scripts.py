"""Scripts of anybody that say in a comment what is wrong with them, and the idioms that a script is written in.

    # tracelyze: roots=missing-zero-grad consequences=gradient-spikes,loss-divergence
    # tracelyze: lines=loss.backward();optimizer.step() exit=0
    # tracelyze: healthy

`roots`: the faults, separated by commas; names that are equally right are separated by `|`. `consequences` and `extras`
may be found as well. `lines`: parts of the lines that may be pointed at, separated by semicolons, without blanks.
`args`: arguments of the script, separated by commas.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.trainings.manifest import Training

MARK = re.compile(r"^#\s*tracelyze:\s*(.+)$", re.MULTILINE)
KEYS = ("roots", "consequences", "extras", "lines", "args", "exit")
IDIOMS = {
    "transformers": r"^\s*(from|import) transformers",
    "lightning": r"^\s*(from|import) (pytorch_)?lightning",
    "accelerate": r"^\s*(from|import) accelerate",
    "several ranks": r"init_process_group",
    "compiled": r"torch\.compile\(",
    "reinforcement": r"log_prob|advantage",
    "Trainer class": r"^class \w*(Trainer|Runner|Experiment|Learner)\b",
    "closure": r"def closure\(",
    "DataLoader": r"DataLoader\(",
}
"""Told from the text of a script; the first that fits is its idiom, and "plain loop" if none does."""


def read(folder: Path) -> list[Training]:
    """The labelled scripts below a folder; ValueError for a label that cannot be read, or a folder without any."""
    found = [training for path in sorted(folder.rglob("*.py")) if (training := labelled(path)) is not None]
    if not found:
        raise ValueError(f"{folder}: no script with a line like `# tracelyze: roots=missing-zero-grad`")
    return found


def labelled(path: Path) -> Training | None:
    """The script with what its comments say; None without a comment of this kind."""
    said = " ".join(MARK.findall(path.read_text(encoding="utf-8"))).split()
    if not said:
        return None
    values: dict[str, str] = {}
    for word in said:
        key, equals, value = word.partition("=")
        if word != "healthy" and not (equals and key in KEYS):
            raise ValueError(f"{path}: {word!r} is neither `healthy` nor one of {', '.join(KEYS)} with a value")
        values[key] = value
    if ("healthy" in values) == bool(values.get("roots")):
        raise ValueError(f"{path}: say either `healthy` or `roots=...`")

    def several(key: str, separator: str = ",") -> tuple[str, ...]:
        return tuple(part for part in values.get(key, "").split(separator) if part)

    return Training(
        str(path.resolve()),
        several("args"),
        several("roots"),
        several("consequences"),
        several("extras"),
        several("lines", ";"),
        int(values.get("exit") or 0),
    )


def idiom(script: Path) -> str:
    """How the script is written."""
    text = script.read_text(encoding="utf-8")
    return next((name for name, sign in IDIOMS.items() if re.search(sign, text, re.MULTILINE)), "plain loop")
