"""ema-not-updated: the copy of the model that is validated never changes, or hardly, while the model is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.evaluation.ema_not_updated import averages, hook_names, put_in
from tracelyze.analyzers.rules.evaluation.ema_not_updated import copies as copies_of_the_model
from tracelyze.diagnosis import Evidence, Finding, Mark, Setting
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracelyze.analyzers.recorded.run import Process

    Indices = npt.NDArray[np.intp]
    Level = copies_of_the_model.Standing | tuple[float, float] | None


def check(process: Process, limits: Limits) -> Outcome:
    """Weights or losses of an untrained copy of the trained model, pass by pass; the model itself is not validated."""
    evals = process.evals
    standing = copies_of_the_model.judged_by_weights(process, limits)
    standing = put_in.judged(process, limits) if standing is None else standing
    if isinstance(standing, copies_of_the_model.Standing):
        return [_finding(process, standing.rows, standing, limits)]
    measured = validation.passes(process) & np.isfinite(evals["loss"])
    copies = measured & (evals["trained"] == 0)
    if standing is not None and not copies.any():
        return Passed(f"the weights that are evaluated move, by {percent(standing)} of what the model's do")
    if not copies.any():
        return Skipped("no copy of the trained model is validated", "not-applicable")
    if (measured & (evals["trained"] == 1)).any():
        return Passed("the trained model is validated as well: a copy beside it may be a baseline")
    models = np.unique(evals["model"][copies])
    rows = np.flatnonzero(copies)
    if len(models) > 1 or len(rows) < limits["passes"]:
        return Skipped(f"{plural(len(rows), 'validation')} of {plural(len(models), 'copy')}: too few of one to compare")
    losses, after = evals["loss"][rows], evals["after_step"][rows]
    if len(np.unique(evals["samples"][rows])) > 1:
        return Skipped("the copy is validated on sets of different sizes, whose losses cannot be compared")
    if float(np.ptp(losses)) > limits["equal"] * abs(float(losses[0])):
        level = copies_of_the_model.level_of_the_start(process, losses, limits)
        if level is None or after[-1] - after[0] < limits["steps"]:
            return Passed(
                f"the copy that is validated changes: its loss goes from {number(losses[0])} to {number(losses[-1])}"
            )
        return [_finding(process, rows, level, limits)]
    if after[-1] - after[0] < limits["steps"]:
        return Skipped(f"only {after[-1] - after[0]:.0f} steps lie between the validations of the copy")
    return [_finding(process, rows, None, limits)]


def _finding(process: Process, rows: Indices, level: Level, limits: Limits) -> Finding:
    evals, optimization, advice = process.evals, process.longest, None
    losses, validated = evals["loss"][rows], process.site(evals["site"][rows[0]])
    first, last, updated = int(evals["after_step"][rows[0]]), int(evals["after_step"][rows[-1]]), ""
    what = "a copy of the model that no optimizer holds"
    if isinstance(level, copies_of_the_model.Standing):
        first, last, updated = int(level.steps[0]), int(level.steps[-1]), level.pace
        advice = averages.advice(process, level.per_step, last)
        what = "weights that are put into the model for it and taken out again" if level.put_in else what
    average = advice.place if advice else averages.place(process, bool(updated))
    made = f"from step {first:,} to step {last:,}, uses {what}"
    count = Evidence("validations of the copy", len(rows), "passes", *limits.against("passes"))
    if isinstance(level, copies_of_the_model.Standing):
        title, seen = averages.words(level, advice)
        moves, held = (
            "distance moved by the copy over that of the model",
            "share of the weights it began with still in it",
        )
        evidence = [
            Evidence(moves, level.moved, "share", *limits.against("follows"), role="most")
            if level.moved <= limits["follows"]
            else Evidence(held, level.of_the_start, "share", *limits.against("start")),
            Evidence("samples of its weights", len(level.steps), "samples", *limits.against("passes")),
        ]  # fmt: skip
    elif level is None:
        title = f"The copy of the model that is validated has not changed in {plural(last - first, 'step')}"
        seen = (
            f"each gives the same loss, {number(losses[0])}. The average of the weights is never updated{averages.SLOW}"
        )
        evidence = [count, Evidence("their loss", float(losses[0]), role="basis")]
    else:
        start, end = level
        title = f"The averaged copy has barely moved after {plural(last, 'step')}: its decay is too slow"
        seen = (
            f"their loss only went from {number(losses[0])} to {number(losses[-1])}, while the training loss fell from "
            f"{number(start)} to {number(end)}. The average of the weights is hardly updated{averages.SLOW}"
        )
        share = float(np.ptp(losses)) / (start - end)
        evidence = [
            Evidence("fall of the copy's loss over that of the training loss", share, "share",
                     *limits.against("follows"), role="most"),
            Evidence("training loss at its end and start", end / start, "share", *limits.against("falls"), role="most"),
            count,
        ]  # fmt: skip
    fix, code = advice[2:] if advice else copies_of_the_model.remedy(process, average, bool(updated))
    hook = None if updated or advice else hook_names.misspelt(process, average)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=title,
        summary=f"Each evaluation looked at, {made}, and {seen} where it began: {averages.HARM}",
        fix=hook.fix if hook else fix,
        fix_code=code,
        diff=hook.diff if hook else None if updated else copies_of_the_model.written_into(process, average),
        first_step=first,
        last_step=last,
        evidence=[*evidence, Evidence("steps between the first and the last", last - first, "steps",
                                       *limits.against("steps"))],
        # Its decay, or the share of the model in it, if it looks back on more steps than there were.
        setting=Setting((), (), ranges=((1 - 1 / max(last, 2), 0.9999999), (1e-9, 1 / max(last, 2)))),
        location=(hook.place if hook else average) or validated or optimization.step_location,
        seen_at=validated,
        charts=pictures.loss(optimization, [Mark(float(first), "first evaluation of the copy")]),
        false_alarm="A copy kept as a baseline on purpose, in a run that never validates the model itself.",
    )  # fmt: skip


RULE = Rule(
    id="ema-not-updated",
    family="evaluation",
    severity="warning",
    title="The averaged copy never changes",
    about="A weight average that is validated in place of the model has to follow it.",
    check=check,
    verify="Record the run again: the weights of the copy follow those of the model.",
    absent="No copy of the model is validated.",
    needs=(("evals.trained", "evals.loss"), ("evals.trained", "copies.moved"), ("evals.trained", "put_in.moved")),
    thresholds=(
        Threshold("passes", 3, "passes", "two equal losses may be a pass that was made twice"),
        Threshold("steps", 50, "steps", "an average may begin late"),
        Threshold("falls", 0.5, "share", "derived: a model that learned, and whose average has to show it"),
        Threshold("fell", 0.2, "share", "of the loss at the start: what learns its task loses more"),
        Threshold("near", 0.1, "share", "of the loss at the start: that of a model which was not trained"),
        Threshold("follows", 0.1, "share", "derived: of a quadratic loss, by an average that looks back on ten runs"),
        Threshold(
            "start", 0.5, "share", "derived: most of what is evaluated is what it began with, not what it learned"
        ),
        Threshold(
            "behind", 0.9, "share", "derived: of the model's way; 0.71 where an average follows one that wanders"
        ),
        Threshold("parts", 1.5, "times", "derived: a model keeps its distance from an average that follows it"),
        Threshold("ends", 5, "steps", "the median of five is not moved by a batch"),
        Threshold("equal", 1e-6, "share", "the resolution of a float32 loss: any update shows"),
    ),
    not_when="Copies whose loss changes, baselines validated alongside the model, frozen teachers.",
    references=("https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema",),
)
