"""no-checkpoint: a long training saves nothing, or nothing to go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script.editing import own_saves, trainer_examples
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

MOST_ROWS = 100  # of a process
BY_TRAINER = {
    "train": 'TrainingArguments(output_dir, save_strategy="steps", save_steps=500)  # beside what it is given today',
    "fit": "Trainer(enable_checkpointing=True)  # beside what it is given today",
}
STATE = {"optimizer": "optimizer.state_dict()"}


def check(process: Process, limits: Limits) -> Outcome:
    """Files that any rank wrote, and weights that any module handed out by name: all libraries save through that."""
    if process.facts.get("source"):
        return Skipped("a log of another program does not say what was saved")
    rows = gather(process)
    others = sum(len(peer.gathered.get(RULE.id, ())) for peer in process.peers)
    seconds = float(np.nansum(process.steps["seconds"])) if len(process.steps) else 0.0
    if not rows and not others:
        if seconds < limits["worth"]:
            return Passed(f"nothing was saved, and {duration(seconds)} of training are quickly repeated")
        return [_nothing(process, seconds, limits)]
    files = [row for row in rows if row["action"] == "save"]
    going_on = [row for row in files if row["progress"] and row["tensors"] and not _is_handed_on(process, row)]
    if going_on and not any(row["optimizer"] for row in files) and _keeps_state(process):
        row = going_on[-1]
        keys = f" (keys: {', '.join(row['keys'].split())})" if row["keys"] else ""
        return [
            Finding(
                rule=RULE.id,
                severity="warning" if seconds >= limits["long"] else "info",
                confidence="likely",
                title="Checkpoints record the training's progress but not the optimizer state",
                summary=(
                    f"{row['file'] or 'The file'} holds weights and training progress{keys}, but no optimizer state "
                    "was seen in any file. A run resumed from it starts with empty optimizer state."
                ),
                fix="Save the optimizer's state_dict next to the weights, and those of the scheduler and the scaler "
                "if there are any.",
                fix_code=own_saves.with_state(process, process.site(row["site"]), STATE, own_saves.TO_GO_ON),
                first_step=int(going_on[0]["step"] or 0) or None,
                evidence=[Evidence("saves looked at, none with optimizer state", len(going_on), "saves")],
                location=process.site(row["site"]),
                verify="Record the run again: files that are written while it trains hold the optimizer's state.",
                false_alarm="Files meant for inference that only note their epoch.",
            )
        ]
    if not files:  # libraries write them in formats of their own, and some programs only keep them in memory
        return Passed("state_dict() was called, but what became of the weights was not seen")
    return Passed(f"torch.save was called {plural(len(files), 'time')} with weights")


def gather(process: Process) -> list[dict[str, Any]]:
    """What a process wrote, as far as rows were kept of it."""
    return [row for row in process.tables["checkpoints"].records() if row["action"] != "load"][:MOST_ROWS]


def _is_handed_on(process: Process, row: dict[str, Any]) -> bool:
    """Whether a model of another class is given the weights of the file, and no optimizer its state: what a pretraining
    hands to a fine-tuning is not there to be resumed from."""
    read = [
        one["time"]
        for one in process.tables["checkpoints"].records()
        if one["action"] == "load" and one["file"] == row["file"] and one["model_restored"]
        if not one["optimizer_restored"] and one["time"] >= row["time"]
    ]
    links, loads = (table.records() if (table := process.tables.get(name)) else () for name in ("links", "loads"))
    given = {one["name"] for one in loads if read and one["time"] >= min(read)}
    held = {one["model"] for one in links if one["step"] <= row["step"]}
    trained = {one["name"] for one in process.models.records() if one["model"] in held}
    return bool(given and trained) and trained.isdisjoint(given)


def _keeps_state(process: Process) -> bool:
    return any("Adam" in str(row["name"]) for row in process.optimizers.records())


def _nothing(process: Process, seconds: float, limits: Limits) -> Finding:
    return Finding(
        rule=RULE.id,
        severity="warning" if seconds >= limits["long"] else "info",
        confidence="likely",
        title=f"Nothing was saved in {duration(seconds)} of training",
        summary=(
            f"In {duration(seconds)} and {plural(len(process.steps), 'step')} no weights file was written and no "
            "module handed out its weights by name. A crash or a pre-emption loses all of it, and so does a normal "
            "exit."
        ),
        fix="Save model, optimizer and scheduler at regular intervals, and at the end.",
        fix_code=BY_TRAINER.get(
            trainer_examples.trainer_of(process)[1],
            "if step % 1000 == 0:\n"
            '    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)',
        ),
        evidence=[Evidence("training time", seconds, "s", *limits.against("worth"))],
        location=process.longest.step_location if process.optimizations else None,
        false_alarm="Experiments whose result is a number, not a model.",
    )


RULE = Rule(
    id="no-checkpoint",
    family="checkpoints",
    severity="warning",
    title="There is no checkpoint to resume from",
    about="A long training should save what it needs to resume: weights, and optimizer and scheduler state.",
    check=check,
    gather=gather,
    verify="Record the run again: files are written while it trains.",
    needs=(("steps.seconds",),),
    whole_process=True,
    thresholds=(
        Threshold("worth", 600, "s", "derived: losing ten minutes hurts; demos and tests are shorter"),
        Threshold(
            "long", 3600, "s", "jobs of an hour and more: a third of them fail in the Philly trace (Jeon et al., 2019)"
        ),
    ),
    not_when="Short runs, weights saved for inference only, weights that another rank or library saves.",
    references=("https://arxiv.org/abs/1901.05758",),
)
