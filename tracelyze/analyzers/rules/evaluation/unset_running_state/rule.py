"""unset-running-state: BatchNorm or spectral_norm evaluates with state that no batch and no checkpoint has ever set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed import normalisation_layers as layers
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.rules.evaluation.unset_running_state import begun_unset, unset_calls, unset_causes
from tracelyze.analyzers.script import called
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """What running statistics were when models were called in eval mode, and what came of these calls."""
    rows = list(process.tables["unset"].records())
    unset = [row for row in rows if row["modules"] or row["spectral"]]
    if not unset:
        return Passed(f"running state was set in {plural(len(rows), 'call')} of models in eval mode")
    trained_so = {row["model"] for row in unset if row["training"]}  # it evaluates as it is trained
    apart = trained_so | {row["model"] for row in unset if _serves(process, row["model"], unset)}
    late = [row for row in unset if row["model"] not in apart and _matters(process, row, limits)]
    # A sanity check before the first step is common beside BatchNorm, and harmless; beside spectral_norm it is rare.
    early = [row for row in unset if unset_calls.before_training(process, row)]
    told = [row for row in unset if row not in early or not len(process.steps) or row["spectral"]]
    first = [row for row in early if row["model"] not in apart]
    chosen = late or [row for row in first if begun_unset.of(process, row) is not None] or told
    if not chosen:
        return Passed("running statistics were unset in passes before the first step only, as in a sanity check")
    row = unset_calls.first_to_train(process, chosen[0], unset)
    return [unset_calls.of_its_training(_finding(process, row, len(chosen), bool(late)), process, row)]


def _matters(process: Process, row: Row, limits: Limits) -> bool:
    """Whether the call belongs to a measurement after training had begun: a sanity pass does not."""
    if unset_calls.before_training(process, row):
        return False
    evals = process.evals
    same = evals["after_step"] == row["step"]  # a pass may hold calls of several models, and names one of them
    measured = (np.nan_to_num(evals["losses"]) > 0) | (np.nan_to_num(evals["forwards"]) >= limits["forwards"])
    whole = validation.rare_copies(process) & (evals["model"] == row["model"])  # one call that holds the whole set
    whole &= (evals["grad_mode"] != validation.GRAD) & (evals["after_step"] >= limits["steps"])
    return bool((same & measured).any() or ((same & whole).any() and whole.sum() >= limits["passes"]))


def _serves(process: Process, model: int, unset: list[Row]) -> bool:
    """Whether no optimizer holds the model, and steps of the training call it one after the other: a frozen network for
    features or a perceptual loss, a teacher. What is called now and then is measured."""
    links = process.tables.get("links")
    held = {row["model"] for row in (links.records() if links is not None else ()) if row["model"] is not None}
    steps = sorted({row["step"] for row in unset if row["model"] == model})
    often = len(steps) > 1 and (steps[-1] - steps[0]) < validation.RARE * (len(steps) - 1)
    return bool(held) and model not in held and often


def _called(row: Row, trains: bool) -> str:
    """A training step may keep only the layers in eval mode, as functions do that a model applies."""
    where = "in training steps " if trains else ""
    return f"{where}with its normalisation in eval mode" if row["training"] else "in eval mode"


def _finding(process: Process, row: Row, calls: int, late: bool) -> Finding:
    name = called.model(process, row["model"]) or "A model"
    at = np.flatnonzero(process.evals["after_step"] == row["step"])
    site = process.site(float(process.evals["site"][at[0]])) if len(at) else None
    same_model = [one for one in process.tables["unset"].records() if one["model"] == row["model"]]
    serves = _serves(process, row["model"], same_model)
    trained_so = any(one["training"] and (one["modules"] or one["spectral"]) for one in same_model)
    trains = unset_calls.trains(process, row)
    what, state = unset_calls.unset_state(row)
    told = unset_causes.measured(process, row) if late else unset_causes.unmeasured(process, row, serves, trained_so)
    return Finding(
        rule=RULE.id,
        severity="critical" if late else "warning" if trained_so or serves or told.begins else "info",
        confidence="certain",
        title=f"{name[:40]} {'serves training' if serves else 'trains' if trains else 'evaluates'} with {what} that "
        "nothing has set",
        summary=f"{unset_calls.when_called(process, row)} {name} was called {_called(row, trains)}, and {state} "
        f"{told.said}",
        fix=told.remedy.fix,
        fix_code=told.remedy.code,
        diff=told.remedy.diff,
        first_step=int(row["step"]) + trains,
        evidence=[
            Evidence(
                "normalisation layers without their state" if row["modules"] else "weights without their spectral norm",
                int(row["modules"] or row["spectral"]),
                "modules" if row["modules"] else "weights",
                0,
                "all are set by training",
            ),
            Evidence("such calls, of those checked", calls, "calls", role="basis"),
            *(
                [Evidence("a target network", "training learns from its answers", role="message")]
                if told.is_target
                else []
            ),
        ],
        traits=frozenset({"of-targets"} if told.is_target else ()),
        location=told.remedy.place or site or layers.normalisation(process, row["model"]),
        seen_at=site,
        false_alarm="A network that is random on purpose.",
    )


RULE = Rule(
    id="unset-running-state",
    family="evaluation",
    severity="critical",
    title="Evaluation with running statistics that were never set",
    about="BatchNorm starts with mean 0 and variance 1. In eval mode it uses them as if they were the data's.",
    check=check,
    verify="Record the run again: every normalisation layer in eval mode has seen a batch or was loaded.",
    excluded=(
        "State that was loaded: mean and variance are still exactly 0 and 1.",
        "A sanity pass before the first step.",
        "Models that training uses in the same mode: a warning only, as training and evaluation agree.",
    ),
    absent="No model with batch or spectral normalisation was called in eval mode.",
    needs=(("unset.modules",),),
    thresholds=(
        Threshold("steps", 1, "steps", "before the first step nothing can have been learned"),
        Threshold("forwards", 2, "forwards", "a single call may only ask for a shape"),
        Threshold("passes", 3, "passes", "derived: a copy of the model that is asked again and again is measured"),
    ),
    not_when="track_running_stats=False, statistics that were loaded, sanity passes before training.",
)
