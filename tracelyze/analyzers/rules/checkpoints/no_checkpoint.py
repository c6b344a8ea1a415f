"""no-checkpoint: a long training saves nothing, or nothing to go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence.editing import own_saves
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

MOST_ROWS = 100  # of a process
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
            return Passed(f"nothing was saved, and {duration(seconds)} of training are soon done again")
        return [_nothing(process, seconds, limits)]
    files = [row for row in rows if row["action"] == "save"]
    going_on = [row for row in files if row["progress"] and row["tensors"]]
    if going_on and not any(row["optimizer"] for row in files) and _keeps_state(process):
        row = going_on[-1]
        return [
            Finding(
                rule=RULE.id,
                severity="warning" if seconds >= limits["long"] else "info",
                confidence="likely",
                title="Checkpoints say how far the training is, and lack the optimizer's state",
                summary=(
                    f"{row['file'] or 'The file'} holds weights and {row['keys'] or 'an epoch'}, and no optimizer "
                    "state was seen in any file. Who goes on from it begins with moments of zero."
                ),
                fix="Save the optimizer's state, and those of scheduler and scaler, beside the weights.",
                fix_code=own_saves.with_state(process, process.site(row["site"]), STATE, own_saves.TO_GO_ON),
                first_step=int(row["step"] or 0),
                evidence=[Evidence("files without it", len(going_on), "files")],
                location=process.site(row["site"]),
                false_alarm="Files that are meant for inference, and say by which epoch they are.",
            )
        ]
    if not files:  # libraries write them in formats of their own, and some programs only keep them in memory
        return Passed("modules handed out their weights by name: what became of them was not seen")
    return Passed(f"weights were saved: {plural(len(files), 'file')} by torch.save")


def gather(process: Process) -> list[dict[str, Any]]:
    """What a process wrote, as far as rows were kept of it."""
    return [row for row in process.tables["checkpoints"].records() if row["action"] != "load"][:MOST_ROWS]


def _keeps_state(process: Process) -> bool:
    return any("Adam" in str(row["name"]) for row in process.optimizers.records())


def _nothing(process: Process, seconds: float, limits: Limits) -> Finding:
    return Finding(
        rule=RULE.id,
        severity="warning" if seconds >= limits["long"] else "info",
        confidence="likely",
        title=f"Nothing was saved in {duration(seconds)} of training",
        summary=(
            f"In {duration(seconds)} and {plural(len(process.steps), 'step')} no file of weights was written and no "
            "module handed out its weights by name. A crash, a full disk or a pre-emption costs all of it, and so does "
            "the end of the program."
        ),
        fix="Save model, optimizer and scheduler every so often, and at the end.",
        fix_code=(
            "if step % 1000 == 0:\n"
            '    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)'
        ),
        evidence=[Evidence("training time", seconds, "s", limits["worth"], limits.source("worth"))],
        location=process.longest.step_location if process.optimizations else None,
        false_alarm="Measurements whose result is a number and not a model.",
    )


RULE = Rule(
    id="no-checkpoint",
    family="checkpoints",
    severity="warning",
    title="Nothing is saved to resume from",
    about="A long training should save what is needed to go on: weights, and the state of optimizer and scheduler.",
    check=check,
    gather=gather,
    verify="Record the run again: files are written while it trains.",
    needs=(("steps.seconds",),),
    whole_process=True,
    thresholds=(
        Threshold("worth", 600, "s", "derived: ten minutes are a loss that is noticed; demos and tests are shorter"),
        Threshold(
            "long", 3600, "s", "jobs of an hour and more: Philly's trace (Jeon et al., 2019) has a third failing"
        ),
    ),
    not_when="Short runs, bare weights for inference, weights that another rank or library saves.",
    references=("https://arxiv.org/abs/1901.05758",),
)
