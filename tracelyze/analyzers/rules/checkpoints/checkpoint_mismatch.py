"""checkpoint-mismatch: what is saved as the model is not the model that was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed import batch_statistics
from tracelyze.analyzers.evidence.editing import own_saves
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """Values and names in the files that were written, beside those of the tensors that moved in training."""
    saves = [row for row in process.tables["checkpoints"].records() if row["action"] == "save" and row["held"]]
    saves = [row for row in saves if int(row["step"] or 0) >= limits["steps"]]
    if not saves:
        return Skipped("no file of weights was written after the training had begun", "not-applicable")
    compared = [row for row in saves if row["compared"]]
    stale = [row for row in compared if row["untouched"] >= limits["share"] * row["compared"]]
    if stale and len(stale) == len(compared):
        return [_untouched(process, stale, limits)]
    # Files to go on from hold the optimizer's state. An encoder that is exported often comes with the step's number.
    whole = [row for row in saves if row["optimizer"]]
    short = [row for row in whole if row["missing"] and row["compared"]]
    if short and len(short) == len(whole):
        return [_missing(process, short)]
    without = [row for row in saves if row.get("statistics_missing")]
    if without and all(row.get("statistics_missing") for row in saves if row.get("statistics")):
        evaluated = batch_statistics.unset_by_a_load(process, without[0])
        resumed = [row for row in without if row["optimizer"]]
        if (resumed and len(resumed) == len(whole)) or evaluated is not None:
            return [_without_statistics(process, resumed or without, evaluated)]
    return Passed(f"{plural(len(saves), 'file')} of weights hold the weights that were trained")


def _untouched(process: Process, stale: list[Row], limits: Limits) -> Finding:
    row, files = stale[-1], len({one["file"] for one in stale})  # one may be written again and again
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"What is saved is the model as it was before training, in {plural(files, 'file')}",
        summary=(
            f"{row['file'] or 'The file'}, written after step {int(row['step']):,}, holds {row['untouched']} of "
            f"{row['compared']} tensors with the values that they had before the first step, while the tensors that "
            "are trained have moved. So it is another object that is saved: a copy made early, a model that was built "
            "again, or one that the optimizer does not hold. What was learned is lost when the program ends."
        ),
        fix="Save the state of the model that the optimizer steps, taken at that time.",
        fix_code=own_saves.of_model(process, process.site(row["site"]), keys=row.get("keys")),
        first_step=int(stale[0]["step"]),
        last_step=int(row["step"]),
        evidence=[
            Evidence(
                "tensors as before the first step",
                row["untouched"] / row["compared"],
                "share",
                limits["share"],
                limits.source("share"),
            ),
            Evidence("times that it was saved so", len(stale), "times"),
        ],
        location=process.site(row["site"]),
        false_alarm="Initial weights that are kept on purpose, to begin anew from them.",
    )


def _missing(process: Process, short: list[Row]) -> Finding:
    row = short[-1]
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Checkpoints lack {plural(int(row['missing']), 'tensor')} that the training changes",
        summary=(
            f"{row['file'] or 'The file'} is one to go on from, and holds {int(row['held']) - int(row['missing'])} of "
            f"the {row['held']} tensors that the optimizer has changed. Missing are {row['names']}, among others. Who "
            "loads it continues with fresh values for these."
        ),
        fix="Save every module whose parameters are trained; register layers that are kept in plain lists "
        "(nn.ModuleList) and parameters that are plain attributes (nn.Parameter), so that state_dict knows them. Read "
        "what is added back where the file is read.",
        fix_code=own_saves.with_a_part(process, process.site(row["site"])),
        first_step=int(short[0]["step"]),
        last_step=int(row["step"]),
        evidence=[
            Evidence("trained tensors missing", int(row["missing"]), "tensors"),
            Evidence("trained tensors", int(row["held"]), "tensors"),
        ],
        location=process.site(row["site"]),
        false_alarm="Parts that are saved elsewhere, by another library or another rank.",
    )


def _without_statistics(process: Process, rows: list[Row], evaluated: int | None) -> Finding:
    row = rows[-1]
    came = "Who loads it evaluates with mean 0 and variance 1, or with those of another training."
    if evaluated is not None:
        came = f"A model that loaded it evaluates with mean 0 and variance 1 after step {evaluated:,}."
    missing = int(row["statistics_missing"])
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Checkpoints lack BatchNorm's running statistics, {plural(missing, 'tensor')}",
        summary=(
            f"{row['file'] or 'The file'} holds every parameter of the model, and none of the means and variances that "
            f"its normalisations have gathered in training: {missing} buffers. {came} "
            "named_parameters() leaves buffers out."
        ),
        fix="Save model.state_dict(), which holds the buffers as well, and load it with strict=True.",
        fix_code=own_saves.of_model(
            process, process.site(row["site"]), own_saves.shown(bool(row["optimizer"])), row.get("keys")
        ),
        first_step=int(rows[0]["step"]),
        last_step=int(row["step"]),
        evidence=[
            Evidence("running statistics missing", missing, "tensors"),
            Evidence("running statistics that training changed", int(row["statistics"]), "tensors"),
        ],
        location=process.site(row["site"]),
        false_alarm="Statistics that are estimated anew after loading, before anything is evaluated.",
    )


RULE = Rule(
    id="checkpoint-mismatch",
    family="checkpoints",
    severity="critical",
    title="A checkpoint does not hold what was trained",
    about="A few elements of every tensor in a saved file are set beside the trained ones and those before training.",
    check=check,
    verify="Record the run again: files hold the trained tensors, with values that moved.",
    absent="The run writes no file of weights with torch.save while it trains.",
    needs=(("checkpoints.action",),),
    whole_process=True,
    thresholds=(
        Threshold("steps", 5, "steps", "derived: files of the first steps may hold the start on purpose"),
        Threshold("share", 1.0, "share", "all of them: frozen parts are not counted, what moved must not be equal"),
    ),
    not_when="Averaged or best weights, other dtypes, prefixes, exports of a part without an optimizer's state, files "
    "beside one that holds what was trained, averages without running statistics, adapters.",
)
