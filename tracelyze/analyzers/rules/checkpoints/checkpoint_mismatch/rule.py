"""checkpoint-mismatch: what is saved as the model is not the model that was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.checkpoints.checkpoint_mismatch import (
    adapter_files,
    early_copies,
    left_out_of_files,
    named_parameters,
)
from tracelyze.analyzers.script.editing import own_saves
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
        return Skipped("no weights file was written once training had begun", "not-applicable")
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
        evaluated = left_out_of_files.unset_by_a_load(process, without[0])
        resumed = [row for row in without if row["optimizer"]]
        if (resumed and len(resumed) == len(whole)) or evaluated is not None:
            return [_without_statistics(process, resumed or without, evaluated)]
    adapters = adapter_files.finding(process, saves, RULE.id)
    return [adapters] if adapters else Passed(f"{plural(len(saves), 'file')} checked: the trained weights are there")


def _untouched(process: Process, stale: list[Row], limits: Limits) -> Finding:
    row, files = stale[-1], len({one["file"] for one in stale})  # one may be written again and again
    site, share = process.site(row["site"]), row["untouched"] / row["compared"]
    early = early_copies.of(process, site, row.get("keys"))
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Saved weights are those from before training, in {plural(files, 'file')}",
        summary=(
            f"{row['file'] or 'The file'}, written after step {int(row['step']):,}, holds {row['untouched']} of "
            f"{row['compared']} tensors with their values from before the first step, although the trained tensors "
            f"have moved. {early.said} What was learned is lost when the program ends."
        ),
        fix="Save the state_dict of the model that the optimizer updates, taken at the time of saving.",
        fix_code=own_saves.of_model(process, site, keys=row.get("keys")),
        first_step=int(stale[0]["step"]),
        last_step=int(row["step"]),
        evidence=[
            Evidence("tensors unchanged since before the first step", share, "share", *limits.against("share")),
            Evidence("saves like this", len(stale), "times"),
        ],
        location=early.place,
        seen_at=site,
        false_alarm="Initial weights saved on purpose, to restart from them.",
    )


def _missing(process: Process, short: list[Row]) -> Finding:
    row = short[-1]
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Checkpoints lack {plural(int(row['missing']), 'tensor')} that the training changes",
        summary=(
            f"{row['file'] or 'The file'} is a checkpoint to resume from, but holds only "
            f"{int(row['held']) - int(row['missing'])} of the {row['held']} tensors that the optimizer has changed. "
            f"Among those missing: {row['names']}. A run resumed from it starts these from fresh values."
        ),
        fix="Save every module that is trained. Put layers from plain lists into nn.ModuleList and make plain tensor "
        "attributes nn.Parameter, so that state_dict includes them. Restore what you add where the file is loaded.",
        fix_code=own_saves.with_a_part(process, process.site(row["site"])),
        first_step=int(short[0]["step"]),
        last_step=int(row["step"]),
        evidence=[
            Evidence("trained tensors missing", int(row["missing"]), "tensors"),
            Evidence("trained tensors", int(row["held"]), "tensors"),
        ],
        location=process.site(row["site"]),
        false_alarm="Parts that another library or another rank saves.",
    )


def _without_statistics(process: Process, rows: list[Row], evaluated: int | None) -> Finding:
    row = rows[-1]
    missing, site = int(row["statistics_missing"]), process.site(row["site"])
    shown = own_saves.of_model(process, site, own_saves.shown(bool(row["optimizer"])), row.get("keys"))
    saved = named_parameters.saved(process, site, shown)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Checkpoints lack BatchNorm's running statistics, {plural(missing, 'tensor')}",
        summary=(
            f"{row['file'] or 'The file'} holds every parameter of the model, but none of the running means and "
            f"variances gathered in training ({plural(missing, 'buffer')}). {left_out_of_files.without(evaluated)} "
            "named_parameters() leaves buffers out."
        ),
        fix="Save model.state_dict(), which includes the buffers, and load it with strict=True.",
        fix_code=saved.code,
        diff=saved.diff,
        first_step=int(rows[0]["step"]),
        last_step=int(row["step"]),
        evidence=[
            Evidence("running statistics missing", missing, "tensors"),
            Evidence("running statistics that training changed", int(row["statistics"]), "tensors"),
        ],
        location=saved.line,
        seen_at=site,
        false_alarm="Statistics that are re-estimated after loading, before anything is evaluated.",
    )


RULE = Rule(
    id="checkpoint-mismatch",
    family="checkpoints",
    severity="critical",
    title="A checkpoint does not hold what was trained",
    about="Compares a few elements of every saved tensor with the trained weights and with those from before training.",
    check=check,
    verify="Record the run again: files hold the trained tensors, with their current values.",
    absent="The run saves no weights while it trains.",
    needs=(("checkpoints.action",),),
    whole_process=True,
    thresholds=(
        Threshold("steps", 5, "steps", "derived: files from the first steps may hold the initial weights on purpose"),
        Threshold("share", 1.0, "share", "all of them: frozen parts do not count, and tensors that moved must differ"),
    ),
    not_when="Averaged or best weights, other dtypes, prefixes, exports of a part without an optimizer's state, files "
    "beside one that holds what was trained, averages without running statistics, bare adapters.",
)
