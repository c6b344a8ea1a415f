"""train-override-bypassed: a model freezes parts of itself in its own `train()`, which nobody has called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_LOOP = re.compile(r"\s*(?:async\s+)?(?:for|while)\b")

EVALUATED = (
    " model.eval() called it, with mode=False. What puts each module back to its mode after that, as Lightning's fit() "
    "does, calls no train()."
)

BY_EVAL = (
    " Then model.eval() called it, which froze parameters, so training changed midway. The modes that it sets hold "
    "only where it is called for training."
)


def check(process: Process, limits: Limits) -> Outcome:
    """Events of modules whose own `train` had not run when they first trained."""
    missed = process.events_of("train-not-called")
    if not missed:
        return Skipped(
            "no module that freezes parts in its own train() trained before that was called", "not-applicable"
        )
    row = missed[0]
    later = next((one for one in process.events_of("train-called") if one["name"] == row["name"]), None)
    begin = int(row["step"] or 0)  # another model may have trained before
    until = int(later["step"]) if later else sum(len(one.steps) for one in process.optimizations)
    if until - begin < limits["steps"]:
        return Passed(f"train() of {row['name']} was called after {until - begin} of its steps")
    return [_finding(process, row, begin, until, later, limits)]


def _loop(process: Process, begin: int) -> Location | None:
    """Where the only loop of the training begins that went on after `begin` steps of the process: the one over epochs,
    else the one over batches; of a framework the call that trains. Above it train() is to be called."""
    backwards = process.locations("backward")
    backward = backwards[0] if backwards else None
    if len({one.file_line for one in backwards}) != 1:
        optimization, _ = timing.training_from(process, begin)
        backward = optimization.backward_location if optimization is not None else None
    if backward is None:
        return None
    for role in ("epochs", "loop", "loader"):
        heads = {one.line: one for one in process.locations(role) if one.file_function == backward.file_function}
        above = [heads[line] for line in sorted(heads) if line <= backward.line]
        if len(above) == 1:
            return above[0]
    return None


def _finding(
    process: Process, row: dict[str, Any], begin: int, until: int, later: dict[str, Any] | None, limits: Limits
) -> Finding:
    optimization, begun = timing.training_from(process, begin)
    training = timing.training_of(optimization) if optimization is not None else ""
    name, by_eval = row["name"], bool(later and later.get("value"))
    evaluated, statistics, modes = (bool(int(row["value"] or 0) & bit) for bit in (1, 2, 4))
    what = (
        "its frozen layers normalised by batches, and their running statistics went on changing"
        if statistics
        else "all its parts were in train mode, and nothing was frozen"
        if modes
        else "nothing in it was frozen: all its parameters were trainable"
    )
    override = Location(row["file"], int(row["line"]), "train", row["source"] or "") if row["file"] else None
    when = (
        f"for its first {until - begin:,} steps"
        if later
        else f"in the whole {'training' if len(process.trainings) > 1 else 'run'}"
    )
    titled = when if later or not training else "for training"  # which is named behind it
    place = _loop(process, begin) or override
    called = place is not None and place is not override and not _LOOP.match(place.source)
    above = "above that line" if called else "before the loop"
    fix = "Call model.train() before the first step, and at the start of each epoch."
    if called and place is not None:
        fix = f"Call model.train() above line {place.line}: what is called there trains without it."
    elif evaluated or by_eval:
        fix += " With Lightning, call it before trainer.fit()."
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"The train() of {name} freezes parts, and "
        + (f"only eval() calls it, after {until - begin:,} steps" if by_eval else f"is not called {titled}"),
        summary=(
            f"{name} overrides train() to freeze parts or put them in eval mode. It was not called for training before "
            f"the first step, and {when} {what}. A new module is in train mode without any call of "
            f"train().{EVALUATED if evaluated else ''}"
            + (BY_EVAL if by_eval else " From then on it took effect, so training changed midway." if later else "")
        ),
        fix=fix,
        fix_code=f"model.train()  # {above}: a new model has not called it",
        first_step=begun + 1,
        first_second=optimization.ended(begun + 1) if optimization is not None else None,
        last_step=begun + until - begin,
        trainings=[training] if training else [],
        evidence=[
            Evidence("steps before the first call of train()", until - begin, "steps", *limits.against("steps")),
        ],
        location=place,
        seen_at=override,
        false_alarm="A train() that prepares for a later phase of training.",
    )


RULE = Rule(
    id="train-override-bypassed",
    family="evaluation",
    severity="warning",
    title="A model's own train() is never called",
    about="Parts that an override of train() should freeze keep training until train() is called.",
    check=check,
    verify="Record the run again: train() is called before the first step.",
    needs=(("events.kind", "steps.loss"),),
    thresholds=(Threshold("steps", 5, "steps", "a call that comes with the first epoch is in time"),),
    not_when="Overrides that only delegate, parts that the constructor froze, a call before the first step.",
)
