"""nonfinite-input: a batch with NaN or Inf in it was trained on, and the loss broke on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold, combine
from tracelyze.analyzers.rules.nonfinite.nonfinite_input import given_up_batches
from tracelyze.analyzers.script.candidates import preparing
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Table


def check(process: Process, limits: Limits) -> Outcome:
    """The first loss of each training that is not finite, if a batch of just then is not finite either."""
    batches = process.tables["batches"]
    seen = int(batches.known("nonfinite").sum())
    bad = [row for row in batches.records() if row["nonfinite"] == 1]
    unmasked = [row for row in bad if not _is_mask(row, batches)]
    given_up = given_up_batches.with_nan(process, unmasked, limits)
    if given_up is not None:
        return [given_up_batches.finding(process, given_up, RULE.id, limits)]
    rows = [row for row in unmasked if row["trained"] != 0]
    if not rows and any(row["trained"] != 0 for row in bad):
        return Passed("the only values that are not finite are the -inf of attention masks")
    if not rows:
        all_of = f"all values were finite in the {plural(seen - len(bad), 'field')} of batches that were looked at"
        return Passed(f"{all_of}, but for {len(bad):,} that no backward followed" if bad else all_of)
    return combine(_check(optimization, rows, limits) for optimization in process.optimizations)


def _is_mask(row: dict[str, Any], batches: Table) -> bool:
    """Whether a field is 0 where attention may look, and -inf where it may not.

    Beside batches of a loader the model's other inputs are looked at only as the loss breaks: it is not known that such
    a field was harmless before, so that there a bias that holds -inf is taken for a mask, too.
    """
    if row["loader"] is not None or row["min"] != -np.inf:
        return False
    return bool(np.isfinite(row["max"]) if batches.known("loader").any() else row["max"] == 0.0)


def _check(optimization: Optimization, rows: list[dict[str, Any]], limits: Limits) -> Finding | Passed:
    steps = optimization.steps
    broken = steps.known("loss") & ~np.isfinite(steps["loss"])
    if not broken.any():
        return Passed(f"{plural(len(rows), 'field')} of batches held NaN or Inf, the loss did not: the script copes")
    first = int(np.argmax(broken))
    # A batch arrives before the step that uses it ends; loaders that look ahead hand it out a few steps earlier.
    used = [int(np.searchsorted(steps["time"], row["time"])) for row in rows]
    if min(used) < first - limits["ahead"]:
        return Passed("batches with NaN or Inf were trained on before the loss broke, without harm: the script copes")
    at = [row for row, step in zip(rows, used, strict=True) if step <= first]
    if not at:
        return Passed("the batches with NaN or Inf came after the loss had broken")
    return _finding(optimization, first, at, int(broken.sum()))


def _finding(optimization: Optimization, first: int, rows: list[dict[str, Any]], broken: int) -> Finding:
    begin = timing.step_at(optimization, first)
    row = rows[-1]
    rows = [one for one in rows if one["loader"] == row["loader"]]
    fields = ", ".join(sorted({f"{one['field']} ({one['dtype']}, {one['shape']})" for one in rows}))
    which = (
        f"batch {row['batch'] + 1:,} of pass {row['epoch'] + 1}" if row["loader"] is not None else "the model's input"
    )
    finite = np.isfinite(losses := optimization.steps["loss"])
    # The weights may have survived the first batches: a step between two finite losses is not lost.
    lost = (optimization.steps.known("loss") & ~finite) | (np.arange(len(losses)) > np.flatnonzero([True, *finite])[-1])
    process, loader = optimization.process, given_up_batches.loader_of(optimization.process, row)
    made = _made_by_script(process, row)
    divided = preparing.line(process) if given_up_batches.without_dataset(process, loader) else None
    seen = process.site((loader or {}).get("site")) or process.location("loader") or optimization.loss_location
    place = divided or (given_up_batches.prepared_at(process, loader) if loader else None)
    fix, code = given_up_batches.FIX_DATA, given_up_batches.left_out(process, seen, row)
    zero = preparing.logarithm(process, rows) or preparing.spread(process, rows) if loader else None
    if zero is not None:
        fix, code, place = zero.fix, zero.code or code, zero.line
    elif made or divided is not None:
        fix, code = preparing.remedy(process, place)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely" if made else "certain",
        title=f"The script turned a finite batch into NaN or Inf and fed it to the model at step {begin:,}"
        if made
        else f"A batch with NaN or Inf reached the model at step {begin:,}",
        summary=(
            f"Field {fields} of {which} held NaN or Inf as it was handed to the "
            f"{'model, though those of its batch were finite' if made else 'script'}, and the loss"
            f"{timing.name_of(optimization)} of step {begin:,} was not finite."
            + (f" {zero.told}" if zero and zero.told else "")
            + " The losses before were." * bool(optimization.steps.known("loss")[:first].any())
            + (f" {broken:,} losses have not been finite since, this one included." if broken > 1 else "")
        ),
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("field of the batch", fields),
            Evidence("which batch", which),
            Evidence("steps without a finite loss since", broken, "steps"),
        ],
        cost=timing.cost_of(optimization, lost),
        location=place or seen,
        seen_at=seen,
        charts=pictures.loss(optimization, [Mark(float(begin), "batch with NaN or Inf", "not-finite")]),
        false_alarm="Missing values that the model masks, if the loss broke at the same step for another reason.",
    )


def _made_by_script(process: Process, row: dict[str, Any]) -> bool:
    """Whether the model's input is not finite while all that was looked at of its batch is: the script computed it."""
    if row["loader"] is not None:
        return False
    at = [one for one in process.tables["batches"].records() if one["loader"] is not None and one["trained"] != 0]
    at = [one for one in at if one["step"] == row["step"]]
    return bool(at) and not any(one["nonfinite"] for one in at)


RULE = Rule(
    id="nonfinite-input",
    family="loss",
    severity="critical",
    title="NaN or Inf in the input",
    about="A single NaN in the input makes the loss, every gradient and then every weight NaN.",
    check=check,
    verify="Record the run again: no batch holds NaN or Inf.",
    excluded=("Missing values that the script fills or masks: the loss broke at that step.",),
    absent="The batches hold no floating-point field.",
    needs=(("batches.nonfinite", "steps.loss"),),
    thresholds=(
        Threshold("ahead", 3, "steps", "loaders that move batches to the device early are 1 or 2 ahead"),
        Threshold("most", 0.5, "share", "derived: of the batches that are given up; else there is another cause"),
        Threshold("batches", 3, "batches", "derived: of each kind, so that it is no coincidence which ones hold NaN"),
        Threshold("regular", 0.8, "share", "of the intervals: an evaluation comes after as many steps each time"),
        Threshold("lost", 0.05, "share", "derived: one batch in twenty costs as much time; fewer are stray samples"),
    ),
    not_when="Missing values that the script fills or masks: the loss stays finite.",
)
