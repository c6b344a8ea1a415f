"""narrow-timesteps: a denoising model is trained on the first few steps of its schedule of noise alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.model.narrow_timesteps import drawn_timesteps
from tracelyze.analyzers.script import line_edits
from tracelyze.diagnosis import Evidence, Finding, Setting
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
BESIDE = "schedule beside the model"  # the script draws timesteps, of which the model gets something else

NUMBER = "number"  # no schedule is held, but a whole number that is named after timesteps


def check(process: Process, limits: Limits) -> Outcome:
    """Timesteps of all measurements, against the length of the schedule."""
    rows = list(process.tables["timesteps"].records())
    if not rows:
        return Skipped(
            "no model is given integer timesteps beside a schedule or an embedding of them, and no script draws them",
            "not-applicable",
        )
    last = rows[-1]
    if len(rows) < limits["looks"] or last["values"] < limits["values"]:
        return Skipped(f"{last['values']} timesteps were looked at, in {len(rows)} steps")
    covered = f"timesteps {last['lowest']:.0f} to {last['highest']:.0f} of {last['range']:,} occur"
    if last["highest"] + 1 - last["lowest"] > limits["share"] * last["range"]:
        return Passed(covered)
    if last["lowest"] > limits["start"] * last["range"]:
        return Passed(f"{covered}: a part that was chosen, as by few-step distillation and by experts for much noise")
    if last["distinct"] < limits["distinct"]:
        return Passed(f"{covered}, {last['distinct']:.0f} different ones: few-step distillation")
    if _moves(rows, limits):
        return Passed(f"{covered}, and the part that is trained moves")
    beyond = drawn_timesteps.evaluated_beyond(process, last)
    if last["source"] == NUMBER and beyond is None:
        return Passed(f"{covered}, by a number that may be one of something else")
    return [_finding(process, last, beyond, limits)]


def _moves(rows: list[Row], limits: Limits) -> bool:
    """Whether the range of the latest measurements is another one than that of the earliest: a curriculum."""
    highs = np.array([row["high"] for row in rows])
    third = max(1, len(rows) // 3)
    early, late = highs[:third].max(), highs[-third:].max()
    return bool(abs(late - early) > limits["moves"] * max(early, late, 1.0))


def _ends(highest: float) -> tuple[int, ...]:
    """Where the range may end from which all timesteps were drawn up to this one."""
    return tuple(range(int(highest) + 1, int((highest + 1) / drawn_timesteps.REACHED) + 1))


def _finding(process: Process, row: Row, beyond: Row | None, limits: Limits) -> Finding:
    optimization = process.longest if process.optimizations else None
    steps, schedule = int(row["highest"]) + 1, row["source"] not in ("embedding", NUMBER)
    sure = schedule or beyond is not None
    samples = "Sampling starts at the other end, where the model was never trained, so samples are made of noise."
    if beyond is not None:
        samples = (
            f"After step {beyond['step']:,} the model was evaluated at timestep {beyond['max']:.0f}, where it has "
            "never been trained: such samples are made of noise."
        )
    whose = f"variable {row['argument']}" if row["source"] == BESIDE else f"argument {row['argument']} of the model"
    share = steps / row["range"]
    drawn = drawn_timesteps.line(process, row["highest"])
    end, known = drawn_timesteps.end_for_the_whole(process, drawn, int(row["range"]))
    seen = optimization.step_location if optimization is not None else None
    whole = f"schedule of {row['range']:,} steps" if schedule else f"embedding of {row['range']:,} timesteps"
    whole = f"number of timesteps, {row['range']:,}" if row["source"] == NUMBER else whole
    return Finding(
        rule=RULE.id,
        severity="warning" if sure else "info",
        confidence="likely" if sure else "possible",
        title=f"Only the first {steps:,} of {row['range']:,} timesteps are trained",
        summary=(
            f"The {whose} never exceeded {row['highest']:.0f} in {row['values']:,} "
            f"values, beside its {whole}: {percent(share)} of it, those with the least noise. "
            + (f"Line {drawn.line} draws them. " if drawn is not None else "")
            + samples
            + ("" if sure else " Perhaps the embedding is just larger than it needs to be.")
        ),
        fix="Draw timesteps from the whole schedule.",
        diff=line_edits.drawn_below(process, drawn, end) if sure and known else None,
        fix_code=line_edits.example_drawn_below(process, drawn, str(row["argument"]), end),
        first_step=1,  # to the end, as far as is known: the last look was at an earlier step
        evidence=[
            Evidence("share of the timesteps", share, "share", *limits.against("share"), role="most"),
            Evidence("largest timestep", row["highest"]),
            Evidence("timesteps there are", row["range"]),
            Evidence("values looked at", row["values"], "", *limits.against("values"), role="basis"),
        ],
        setting=Setting(("high",), _ends(row["highest"]), str(row["range"]) if sure else "")
        if drawn_timesteps.ends_of_its_own(process, drawn)
        else None,
        location=drawn or seen,
        seen_at=seen,
        charts=pictures.loss(optimization) if optimization is not None else [],
        false_alarm="A refiner, which gets nearly noise-free samples from another model; a first stage.",
    )


RULE = Rule(
    id="narrow-timesteps",
    family="fine-tuning",
    severity="warning",
    title="Training timesteps cover only a small part of the noise schedule",
    about="A denoising model must be trained on every noise level that sampling will show it.",
    check=check,
    verify="Record the run again: timesteps cover the schedule.",
    needs=(("timesteps.highest",),),
    absent="No model is given integer timesteps, and the script draws none beside a schedule.",
    thresholds=(
        Threshold("share", 0.25, "share", "refiners that are published take the last fifth of the noise on purpose"),
        Threshold("start", 0.02, "share", "a range that begins elsewhere was written down: both its ends were chosen"),
        Threshold("distinct", 10, "", "few-step distillation trains one to eight timesteps"),
        Threshold(
            "moves", 0.2, "share", "of its end: 50 values reach to 0.94 of a range that stands still, 19 of 20 times"
        ),
        Threshold("values", 200, "", "all would lie in a quarter of the range by chance once in 10^120"),
        Threshold("looks", 9, "steps", "three at the beginning and three at the end show a curriculum"),
    ),
    not_when="Few-step distillation, progressive curricula, class labels, ids of tokens, ranges that begin elsewhere.",
    references=("https://arxiv.org/abs/2006.11239",),
)
