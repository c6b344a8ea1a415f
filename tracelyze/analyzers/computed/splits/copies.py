"""Samples on both sides of a split because the data held copies of them before: oversampled, repeated, augmented.

Copies are met more often than others, so that the share of the validation data which is trained on cannot be estimated
from the part that was looked at. What was met is known.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import recorded_text, script_lines
from tracelyze.diagnosis import Location
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.splits.overlap import Overlap
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Finding

_COPIES: Final = re.compile(
    r"=.*(?:\b\w*(?:over_?sampl|re_?sampl|up_?sampl|duplicat|replicat|repeat|augment|rebalanc|smote|tile\b)\w*)\s*\(",
    re.IGNORECASE,
)


def told(finding: Finding, found: Overlap, process: Process) -> Finding:
    """The finding of shared samples, where many samples have an equal one in the same pass."""
    met = percent(found.hits / found.looked)
    copied = _made_above(process, finding.location)
    return replace(
        finding,
        title=f"{met} of the validation samples checked are also in the training data",
        summary=(
            f"{found.hits:,} of the {found.looked:,} distinct samples checked in validation were also seen in "
            f"training. {percent(found.doubled)} of the samples in a pass over them occur twice or more: the data held "
            "copies before the split. On these, validation measures memorisation, so its numbers are too good."
        ),
        fix="Split first, and copy or oversample the training part alone.",
        evidence=[
            replace(one, value=found.hits / found.looked) if one.name == "share trained on" else one
            for one in finding.evidence
            if one.name != "standard error of that share"
        ],
        location=copied or finding.location,
        seen_at=finding.location if copied is not None else finding.seen_at,
        false_alarm="Recordings of different things that are equal.",
    )


def _made_above(process: Process, split: Location | None) -> Location | None:
    """The only line above the split, in its function, that assigns what a function named after copies returns."""
    lines = recorded_text.of_function(process, split) if split is not None else {}
    found = [
        Location(split.file, number, split.function, text.strip())
        for number, text in lines.items()
        if split is not None and number < split.line and _COPIES.search(text.split("#")[0])
    ]
    return script_lines.only_of(found)
