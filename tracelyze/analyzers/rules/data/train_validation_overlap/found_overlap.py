"""What is said of validation samples that are trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rules.data.train_validation_overlap import redrawn, split_twice
from tracelyze.analyzers.script import script_lines
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
    counted = found.doubled >= limits["share"]  # equal samples are met more often: how many more there are is not known
    share = min(found.share, found.hits / found.looked) if counted else found.share
    part = "All" if percent(share) == percent(1.0) else f"{'At least' if counted else 'About'} {percent(share)} of the"
    split = script_lines.split(process)
    anew = redrawn.at(process, split, process.site(loader.get("site")) if loader else None)
    twice = split_twice.at(process, split) if anew is None else None
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"{part} validation samples{' checked' * counted} are also in the training data",
        summary=(
            f"{plural(found.hits, 'sample')} of the {found.looked:,} checked in validation were also seen "
            f"{found.where}: {part.lower()} validation data{' checked' * counted} are training data. On these, "
            "validation measures memorisation, so its numbers are too good."
        ),
        fix=anew.fix
        if anew is not None
        else twice.fix
        if twice is not None
        else "Split once, by sample or by a key that copies of a sample share, before making copies or augmentations.",
        fix_code=""
        if anew is not None
        else twice.code
        if twice is not None
        else (
            "# once\n"
            "generator = torch.Generator().manual_seed(0)\n"
            "train, val = torch.utils.data.random_split(originals, [0.8, 0.2], generator=generator)\n"
            "assert not set(train.indices) & set(val.indices)"
        ),
        first_step=first.step,
        evidence=[
            Evidence("validation samples met in training", found.hits, "samples", *limits.against("hits")),
            Evidence("share trained on", share, "share", *limits.against("share")),
            *[Evidence("standard error of that share", (share / found.expected) ** 0.5, "share", role="basis")]
            * (not counted),
            Evidence("equal samples in one pass, by chance", found.chance, "share"),
        ],
        diff=anew.edit if anew is not None else twice.edit if twice is not None else None,
        location=split or (process.loader_location(loader) if loader else None),
        seen_at=process.loader_location(loader) if loader else None,
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="A loader meant to measure the training error, in a run without real validation.",
    )  # fmt: skip
