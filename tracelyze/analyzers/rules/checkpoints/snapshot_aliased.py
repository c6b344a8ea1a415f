"""snapshot-aliased: the weights that were kept as the best are the model's own tensors, and trained on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import edits
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold, missing
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """A model was given back its own tensors, which it had handed out some steps before."""
    if "state_loads" not in process.signals:
        return missing(process, "loads.own")
    loads = list(process.tables["loads"].records())
    if not loads:
        return Passed("no load_state_dict of a model was called")
    aliased = [row for row in loads if _is_aliased(row, limits)]
    if not aliased:
        return Passed(f"{plural(len(loads), 'call')} of load_state_dict copied other tensors into the models")
    by_line: dict[int | None, list[Row]] = {}
    for row in aliased:
        by_line.setdefault(row["site"], []).append(row)
    return [_finding(process, rows, limits) for rows in by_line.values()]


def _is_aliased(row: Row, limits: Limits) -> bool:
    if row["taken_at"] is None or row["missing"] or row["unexpected"]:
        return False
    return bool(row["own"] == row["expected"] > 0 and row["step"] - row["taken_at"] >= limits["steps"])


def _finding(process: Process, rows: list[Row], limits: Limits) -> Finding:
    row = rows[-1]
    lost = int(row["step"] - row["taken_at"])
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain",
        title=f"The weights saved at step {row['taken_at']:,} kept training: loading them changed nothing",
        summary=(
            f"state_dict() hands out the tensors of {row['name']} themselves. The optimizer went on changing them for "
            f"{plural(lost, 'step')}, so that load_state_dict copied each of the {row['own']} tensors onto itself: the "
            "model still has its latest weights, not the best ones. What was evaluated, saved or reported after "
            f"that line belongs to step {row['step']:,}; the weights of step {row['taken_at']:,} are lost."
        ),
        fix="Copy the tensors when you keep them, or save them to a file at once.",
        fix_code="best = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}\n"
        "# or: best = copy.deepcopy(model.state_dict())",
        first_step=int(row["taken_at"]),
        last_step=int(row["step"]),
        evidence=[
            Evidence("steps between keeping and loading", lost, "steps", limits["steps"], limits.source("steps")),
            Evidence("tensors that were the model's own", int(row["own"]), "tensors"),
            Evidence("loads like this", len(rows)),
        ],
        location=process.site(row["taken_site"]) or process.site(row["site"]),
        seen_at=process.site(row["site"]),
        diff=edits.copy_of_states(process, process.site(row["taken_site"])),
        false_alarm="A load that is meant to do nothing, after the weights were changed in place.",
    )


RULE = Rule(
    id="snapshot-aliased",
    family="checkpoints",
    severity="critical",
    title="Kept weights are the model's own",
    about="state_dict() holds references, not copies: weights kept for later in a variable train on with the model.",
    check=check,
    verify="Record the run again: load_state_dict copies tensors that are not the model's own.",
    excluded=("A copy: every loaded tensor lies in the model's own memory.",),
    thresholds=(Threshold("steps", 1, "steps", "one step of the optimizer changes what was to be kept"),),
    not_when="deepcopy, clone, weights saved to a file; averages with tensors of their own; a dictionary of which some "
    "tensors were replaced; weights that are averaged in place and loaded in the same step.",
    references=("https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",),
)
