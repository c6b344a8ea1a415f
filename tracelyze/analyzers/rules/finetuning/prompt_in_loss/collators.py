"""The line that has a collator make new labels of the inputs, where the script had made labels of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_MAKES: Final = re.compile(r"\bDataCollatorForLanguageModeling\(")
_LABELS: Final = re.compile(r"label|target", re.IGNORECASE)
_KEEPS: Final = "DataCollatorForSeq2Seq({tokenizer})"
_GIVEN: Final = re.compile(r"DataCollatorForLanguageModeling\(\s*(?:tokenizer\s*=\s*)?(?P<tokenizer>[\w.]+)")


def line(process: Process) -> Location | None:
    """The only line that makes such a collator, in a script that sets labels to -100 itself; else None."""
    ignored = [one for one in process.locations("ignored") if _LABELS.search(one.source)]
    ignored = [one for one in ignored if "ignore_index" not in one.source]
    made = {one.file_line: one for one in process.locations("collator") if _MAKES.search(one.source)}
    return next(iter(made.values())) if ignored and len(made) == 1 else None


def remedy(process: Process, place: Location) -> tuple[str, str]:
    """What to do about it, and a collator that keeps labels."""
    lost = script_lines.only_of([one for one in process.locations("ignored") if _LABELS.search(one.source)])
    whose = f"those that line {lost.line} masks" if lost is not None else "those of the script"
    given = _GIVEN.search(place.source)
    tokenizer = given["tokenizer"] if given is not None else "tokenizer"
    fix = (
        f"The collator of line {place.line} makes labels of input_ids and throws {whose} away. Take one that keeps "
        "them, and fills them up with -100."
    )
    return fix, f"data_collator={_KEEPS.format(tokenizer=tokenizer)},  # of transformers; in place of line {place.line}"
