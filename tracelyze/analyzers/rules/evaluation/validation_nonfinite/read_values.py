"""Validation losses that the script writes out: seen where it reads them back, and no number in some passes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rules.evaluation.validation_nonfinite import beside_validation, masked_softmaxes
from tracelyze.analyzers.script.datasets import batch_of_one
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

LOSS: Final = re.compile(r"loss|nll|elbo|mse|mae|err|cost|energy|kl\b|perplexity|\btot(al)?\b|running", re.IGNORECASE)
"""In the line that reads: what is read is a loss. Metrics may have no value for some sets."""

_FIX: Final = (
    "Look at what goes into that line for the first batch at which it is not finite; guard the logarithm or the "
    "division as in training."
)
_CODE: Final = (
    "ratio = error / (target + 1e-6)\nlog = torch.log(target.clamp_min(1e-6))\nassert torch.isfinite(loss), batch_index"
)
ONE: Final = "a deviation within the last batch, which holds a single sample (its variance is 0 / 0), "


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
    before = beside_validation.losses(optimization, max(begin, 1)).before  # the first loss, where none came before
    training = beside_validation.losses(optimization, begin)
    if not (nan or speaks) or not len(before) or not np.isfinite(before[-1]):
        return None
    count, of, kind = len(rows), int(judged.sum()), "NaN" if nan else "Inf"
    called = process.site(evals["site"][rows[0]]) if _is_of_framework(process, place) else None
    read = f"What line {place.line} reads back"
    if called is not None:  # a callback, or a scheduler, reads what the method at that line has logged
        read = f"What the training reads back of the validation at line {called.line}"
    single = batch_of_one.ending(process, rows[0]) if nan else None
    masked = masked_softmaxes.behind(process, place) if nan and single is None else None
    behind = (
        f"Behind it may be {ONE if single else ''}a logarithm of 0, a division by 0 or a mean over nothing in what the "
        "script computes for validation."
    )
    return Finding(
        rule=rule,
        severity="critical" if speaks else "warning",
        confidence="likely",
        title=f"{count} of {plural(of, 'validation pass')} {'computes' if count == 1 else 'compute'} {kind}"
        + training.in_title,
        summary=(
            f"{read} is {kind}, first in the validation after step {begin:,}. "
            f"{training.told}{' ' if training.told else ''}{masked.said if masked else behind}"
        ),
        fix=single.fix if single else masked_softmaxes.FIX if masked else _FIX,
        fix_code=single.code if single else masked.code if masked else _CODE,
        first_step=begin,
        last_step=int(evals["after_step"][rows[-1]]),
        evidence=[
            Evidence("validation passes that read no number", count, "passes", 0, "a loss is a number"),
            Evidence("training loss there", float(before[-1])),
        ],
        location=(single.line if single else masked.place if masked else None) or called or place,
        diff=single.diff if single else None,
        seen_at=place,
        charts=pictures.loss(optimization, [Mark(float(begin), "validation is not finite")]),
        false_alarm="A metric that is undefined for some validation sets by design.",
    )


def _is_of_framework(process: Process, place: Location) -> bool:
    """Whether a line runs the whole training: backward and validation are called under it."""
    within = process.location("backward")
    alone = within is not None and ".backward(" not in within.source
    return alone and within is not None and within.file_line == place.file_line
