"""What is said of validation samples that are trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import pictures, script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.splits.overlap import Overlap, Seen
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits


def finding(
    process: Process, rule: str, loader: dict[str, Any], found: Overlap, first: Seen, limits: Limits
) -> Finding:
    """The finding of a validation set, read by `loader` (its row, empty without one), and its first pass."""
    part = "All" if percent(found.share) == percent(1.0) else f"About {percent(found.share)} of the"
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"{part} validation samples are also in the training data",
        summary=(
            f"{plural(found.hits, 'sample')} of the {found.looked:,} that were looked at in validation were also met "
            f"{found.where}: {part.lower()} validation data are training data. On them validation measures what was "
            "memorised, so its numbers are too good."
        ),
        fix="Split once, by sample or by what copies of a sample share, before copies or augmentations are made.",
        fix_code=(
            "train, val = random_split(originals, [0.8, 0.2], generator=torch.Generator().manual_seed(0))  # once\n"
            "assert not set(train.indices) & set(val.indices)"
        ),
        first_step=first.step,
        evidence=[
            Evidence("validation samples met in training", found.hits, "samples", limits["hits"],
                     limits.source("hits")),
            Evidence("share trained on", found.share, "share", limits["share"], limits.source("share")),
            Evidence("standard error of that share", (found.share / found.expected) ** 0.5, "share", role="basis"),
            Evidence("equal samples in one pass, by chance", found.chance, "share"),
        ],
        location=script_lines.split(process) or (process.loader_location(loader) if loader else None),
        seen_at=process.loader_location(loader) if loader else None,
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="A loader that is to measure the training error, with no validation beside it.",
    )  # fmt: skip
