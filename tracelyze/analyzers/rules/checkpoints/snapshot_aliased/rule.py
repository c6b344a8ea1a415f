"""snapshot-aliased: the weights that were kept as the best are the model's own tensors, and trained on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, missing
from tracelyze.analyzers.rules.checkpoints.snapshot_aliased import best_models, kept_copies, kept_states, own_states
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """A model was given its own tensors: those that it had handed out some steps before, or those of its twin. Or such
    tensors were saved, or given to another model."""
    if "state_loads" not in process.signals:
        return missing(process, "loads.own")
    loads = list(process.tables["loads"].records())
    kept = kept_states.uses(process, limits)
    best = best_models.lines(process)
    if not loads and not kept and not best:
        if process.events_of("kept-state") or process.locations("best"):
            return Passed("no state was kept over steps as the model's own tensors")
        return Skipped("no state was loaded or kept", "not-applicable")
    aliased = _by_line(row for row in loads if _is_aliased(row, limits))
    shared = [rows for rows in _by_line(row for row in loads if _is_shared(row, limits)) if _repeats(rows, limits)]
    itself = [rows for rows in _by_line(own_states.loads(process, loads, limits)) if _repeats(rows, limits)]
    if not aliased and not shared and not itself and not kept and not best:
        own = sum(row["own"] == row["expected"] > 0 for row in loads)
        more = own_states.assigned(process, loads)
        return Passed(
            f"{plural(len(loads), 'call')} of load_state_dict, {own} of them with the model's own tensors{more}"
        )
    findings = [_finding(process, rows, limits) for rows in aliased]
    findings += [_shared(process, rows, limits) for rows in shared]
    findings += [best_models.finding(process, best, RULE.id)] if best else []
    lines = {rows[-1]["taken_site"] for rows in aliased}
    findings += [kept_states.finding(process, one, RULE.id, limits) for one in kept if one["taken_site"] not in lines]
    return findings + [own_states.finding(process, rows, RULE.id, limits) for rows in itself]


def _by_line(loads: Iterable[Row]) -> list[list[Row]]:
    lines: dict[int | None, list[Row]] = {}
    for row in loads:
        lines.setdefault(row["site"], []).append(row)
    return list(lines.values())


def _is_shared(row: Row, limits: Limits) -> bool:
    """Whether a model was given the tensors of another one, during training, and has the same ones."""
    complete = not row["missing"] and not row["unexpected"] and row["own"] == row["expected"] > 0
    return bool(row["from_other"] and complete and row["step"] >= limits["steps"])


def _repeats(rows: list[Row], limits: Limits) -> bool:
    return len({row["step"] for row in rows}) >= limits["loads"]


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
        title=f"The weights kept at step {row['taken_at']:,} went on training: loading them changed nothing",
        summary=(
            f"state_dict() hands out the tensors of {row['name']} themselves. The optimizer kept changing them for "
            f"another {plural(lost, 'step')}, so load_state_dict copied the {row['own']} tensors onto themselves. The "
            f"model has the weights of step {row['step']:,}; those of step {row['taken_at']:,} are lost."
            + kept_copies.why(process, process.site(row["taken_site"]))
        ),
        fix="Copy the tensors when you keep them, or save them to a file at once.",
        fix_code="best = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}\n"
        "# or: best = copy.deepcopy(model.state_dict())",
        first_step=int(row["taken_at"]),
        last_step=int(row["step"]),
        evidence=[
            Evidence("steps between keeping and loading", lost, "steps", *limits.against("steps")),
            Evidence("tensors that were the model's own", int(row["own"]), "tensors"),
            Evidence("loads like this", len(rows)),
        ],
        location=process.site(row["taken_site"]) or process.site(row["site"]),
        seen_at=process.site(row["site"]),
        diff=kept_copies.edit(process, process.site(row["taken_site"])),
        false_alarm="A load that is meant to change nothing, after an in-place change of the weights.",
    )


def _shared(process: Process, rows: list[Row], limits: Limits) -> Finding:
    row, steps = rows[-1], sorted({int(row["step"]) for row in rows})
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"{row['name']} shares the weights it should copy: {plural(len(rows), 'load')} changed nothing",
        summary=(
            f"Between step {steps[0]:,} and step {steps[-1]:,} load_state_dict was given the weights of another "
            f"{row['name']}, but all {row['own']} tensors were already its own. The two share one set of weights: a "
            "target network, an old policy or an average set up like this moves with every optimizer step."
        ),
        fix="Make the second model with copy.deepcopy, or build a new one, and load without assign=True.",
        fix_code="target = copy.deepcopy(model)  # copy.copy(model) has the model's own layers\n"
        "target.load_state_dict(model.state_dict())  # without assign=True",
        first_step=steps[0],
        last_step=steps[-1],
        evidence=[
            Evidence("loads during training that changed nothing", len(steps), "loads", *limits.against("loads")),
            Evidence("tensors that both models share", int(row["own"]), "tensors"),
        ],
        location=process.site(row["site"]),
        false_alarm="Two models that are meant to share their weights.",
    )


RULE = Rule(
    id="snapshot-aliased",
    family="checkpoints",
    severity="critical",
    title="Kept weights are the model's own tensors",
    about="state_dict() and copy.copy() hold references, not copies: weights kept this way go on training.",
    check=check,
    verify="Record the run again: load_state_dict is given tensors that are not the model's own.",
    excluded=("A real copy: every loaded tensor lies in the model's own memory.",),
    thresholds=(
        Threshold("steps", 1, "steps", "one optimizer step changes the weights that should have been kept"),
        Threshold("loads", 2, "loads", "derived: loading again only makes sense if the weights have moved apart"),
    ),
    not_when="deepcopy, clone, weights saved to a file; averages and targets with their own tensors; a dictionary "
    "with some tensors replaced; weights averaged in place and loaded in the same step; a single load; a state taken "
    "once, or used once each time.",
    references=("https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",),
)
