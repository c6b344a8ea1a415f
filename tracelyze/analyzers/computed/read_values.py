"""Validation losses that the script writes out: seen where it reads them back, and no number in some passes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

LOSS: Final = re.compile(r"loss|nll|elbo|mse|mae|err|cost|energy|kl\b|perplexity|\btot(al)?\b|running", re.IGNORECASE)
"""In the line that reads: what is read is a loss. Metrics may have no value for some sets."""
_NEAR: Final = 10  # training losses up to the pass of which the last one counts


ONE: Final = "a deviation within the last batch, which holds a single sample (its variance is 0 / 0), "
OF_ONE: Final = (
    "Look at what is computed within a batch: the last one holds one sample. Take a deviation that was computed once, "
    "of the training data, or one without Bessel's correction; or have the loader leave that batch out."
)
CODE_OF_ONE: Final = (
    "spread = target.std(dim=0, unbiased=False).clamp_min(1e-3)  # 0 of one sample, and no NaN\n"
    "val_loader = DataLoader(val_set, batch_size=32, drop_last=True)  # or this, in place of it"
)


def finite(process: Process) -> int:
    """Validation passes in which the script read numbers back, all of them finite."""
    evals = process.evals
    return int((validation.passes(process) & np.isfinite(evals["read_sum"])).sum()) if evals.has("read_sum") else 0


def finding(process: Process, rule: str) -> Finding | None:
    """Passes in which the script read a value that is no number, while the training loss was one.

    Infinity alone may be meant (a signal-to-noise ratio of equal pictures): it counts where the line speaks of a loss.
    """
    evals = process.evals
    if not evals.has("read_sum") or not process.optimizations:
        return None
    judged = validation.passes(process) & (np.nan_to_num(evals["reads"]) > 0)
    rows = [int(row) for row in np.flatnonzero(judged & evals.known("read_sum") & ~np.isfinite(evals["read_sum"]))]
    place = process.site(evals["read_site"][rows[0]]) if rows else None
    if place is None:
        return None
    speaks = LOSS.search(place.source) is not None
    nan = bool(np.isnan(evals["read_sum"][rows]).any())
    begin, optimization = int(evals["after_step"][rows[0]]), process.longest
    measured = optimization.steps.known("loss")[: max(begin, 1)]  # NaN, too
    before = optimization.steps["loss"][: max(begin, 1)][measured][-_NEAR:]
    if not (nan or speaks) or not len(before) or not np.isfinite(before[-1]):
        return None
    count, of, kind = len(rows), int(judged.sum()), "NaN" if nan else "Inf"
    called = process.site(evals["site"][rows[0]]) if _is_of_framework(process, place) else None
    read = f"What line {place.line} reads back"
    if called is not None:  # a callback, or a scheduler, reads what the method at that line has logged
        read = f"What the training reads back of the validation at line {called.line}"
    single = nan and _ends_with_one(process, rows[0])
    return Finding(
        rule=rule,
        severity="critical" if speaks else "warning",
        confidence="likely",
        title=f"{count} of {plural(of, 'validation pass')} {'computes' if count == 1 else 'compute'} {kind}, but "
        "training losses are finite",
        summary=(
            f"{read} is {kind}, first in the validation after step {begin}. The training loss was finite there, so the "
            f"weights are not broken as such: {ONE if single else ''}a logarithm of 0, a division by 0 or a mean over "
            "nothing in what the script computes for validation is behind it."
        ),
        fix=OF_ONE
        if single
        else "Look at what goes into that line for the first batch at which it is not finite; guard the logarithm or "
        "the division as in training.",
        fix_code=CODE_OF_ONE
        if single
        else "ratio = error / (target + 1e-6)\nlog = torch.log(target.clamp_min(1e-6))\n"
        "assert torch.isfinite(loss), batch_index",
        first_step=begin,
        last_step=int(evals["after_step"][rows[-1]]),
        evidence=[
            Evidence("validation passes that read no number", count, "passes", 0, "a loss is a number"),
            Evidence("training loss there", float(before[-1])),
        ],
        location=called or place,
        seen_at=place,
        charts=pictures.loss(optimization, [Mark(float(begin), "validation is not finite")]),
        false_alarm="A metric that is undefined for some validation sets by design.",
    )


def _is_of_framework(process: Process, place: Location) -> bool:
    """Whether a line runs the whole training: backward and validation are called under it."""
    within = process.location("backward")
    alone = within is not None and ".backward(" not in within.source
    return alone and within is not None and (within.file, within.line) == (place.file, place.line)


def _ends_with_one(process: Process, row: int) -> bool:
    """Whether the last batch of a pass over a loader holds one sample, and others more."""
    evals = process.evals
    loader, samples, forwards = (evals[name][row] for name in ("loader", "samples", "forwards"))
    sizes = [one["batch_size"] for one in process.loaders.records() if one["loader"] == loader]
    size = sizes[0] if sizes else None
    return bool(size and size > 1 and samples == size * (forwards - 1) + 1)
