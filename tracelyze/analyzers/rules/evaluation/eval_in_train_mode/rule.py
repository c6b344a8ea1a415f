"""eval-in-train-mode: validation ran with dropout active or BatchNorm computing (and updating) batch statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.evaluation.eval_in_train_mode import dropping
from tracelyze.analyzers.script.editing.remade import validating
from tracelyze.analyzers.signatures import restless_validation
from tracelyze.diagnosis import Chart, Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Mask

TORCHS = ("Norm", "Dropout", "LSTM", "GRU", "RNN", "MultiheadAttention", "RReLU")
DROPPING = ("Dropout", "dropout", "LSTM", "GRU", "RNN", "MultiheadAttention")


def check(process: Process, limits: Limits) -> Outcome:
    """Direct evidence from the modules' modes and the dropouts that ran, else the shape of the validation curve."""
    evals = process.evals
    if not evals.has("model_in_train"):
        return restless_validation.finding(process, RULE.id, validating.FIX, validating.CODE, limits)
    judged = validation.passes(process)
    if not judged.any():
        return Skipped(validation.NONE, "not-applicable")
    dropped = np.nan_to_num(evals["dropouts"]) > 0
    in_train = (np.nan_to_num(evals["modules_in_train"]) > 0) & _acts(process)
    sampled = validation.sampled(process, limits["sampled"])
    forgotten = judged & (evals["model_in_train"] == 1) & (in_train | dropped)
    in_eval = judged & (evals["model_in_train"] == 0) & dropped & ~in_train
    count = int(judged.sum())
    seen = judged & (dropped | (np.nan_to_num(evals["after_step"]) > 0))  # fused dropouts are watched from a step on
    for bad, among, has_switched in ((forgotten, judged, False), (in_eval, seen, True)):
        if (bad & ~sampled).any() and (bad & ~sampled).sum() >= limits["share"] * among.sum():
            return [_finding(process, among, bad, has_switched, limits)]
    if not (np.nan_to_num(evals["modules_sensitive"][judged]) > 0).any() and not dropped[judged].any():
        return Skipped("no module of the model depends on the mode", "not-applicable")
    said = f"{plural(count, 'validation pass')}, {(forgotten & ~sampled).sum()} with such a module in train mode"
    return Passed(said + "; dropout is sampled, with several forwards of each input" * int((judged & sampled).any()))


def _acts(process: Process) -> Mask:
    """Passes in which modules in train mode had an effect, shape [evals].

    torch's own are counted only if their rate is not 0; others, such as attention, if a dropout dropped values.
    """
    evals = process.evals
    own = np.array([not kinds or any(kind in kinds for kind in TORCHS) for kinds in evals.text("modules")], dtype=bool)
    return np.asarray(own | ~evals.known("dropouts") | (evals["dropouts"] > 0), dtype=bool)


def _finding(process: Process, judged: Mask, bad: Mask, in_eval: bool, limits: Limits) -> Finding:
    evals = process.evals
    rows, count, begin = np.flatnonzero(bad), int(judged.sum()), int(np.nan_to_num(evals["after_step"][bad][0]))
    kinds = next((kind for kind in (evals.text("modules")[i] for i in rows) if kind), "")
    if not any(kind in kinds for kind in TORCHS):  # a module that asks its mode for a function of torch
        kinds = f"dropout in {kinds}" if kinds else "dropout functions"
    measured = np.isfinite(evals["loader"][rows]) | (np.nan_to_num(evals["losses"][rows]) > 0)
    share, site = len(rows) / count, float(evals["site"][rows[0]])
    in_train, how = int(np.nan_to_num(evals["modules_in_train"][rows]).max()), "in train mode"
    drops, seen_at = int(np.nan_to_num(evals["dropouts"][rows]).sum()), validation.place(process, int(rows[0]))
    begins, drops_by = validation.begins_at(process, site), dropping.of(process) if in_eval else None
    mode = validating.mode(process, int(rows[0]), seen_at, begins, judged)
    begins = mode.place or begins
    if drops_by is not None:
        how, title, begins = "with active dropout", drops_by.title, drops_by.place
        passes = f"{len(rows)} of {plural(count, 'validation pass')}, the first one after step {begin:,}"
        cause = f"Dropout dropped values although the model was in eval mode, in {passes}.{drops_by.said}"
    else:
        title = f"{len(rows)} of {plural(count, 'validation pass')} ran in train mode, with {kinds} active"
        cause = f"The model was in train mode, first in the validation after step {begin:,}: {_effect(kinds)}."
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain" if measured.mean() >= limits["measured"] and not in_eval else "likely",
        title=title,
        summary=(
            f"{cause} Do not trust these validation numbers, nor what was chosen by them (early stopping, best "
            "checkpoint)."
        ),
        fix=(drops_by or mode).fix,
        fix_code=(drops_by or mode).code,
        diff=(drops_by or mode).diff,
        first_step=begin,
        last_step=int(np.nan_to_num(evals["after_step"][rows[-1]])),
        first_second=float(evals["time_start"][rows[0]]) if evals.known("time_start")[rows[0]] else None,
        evidence=[
            Evidence(f"validation passes {how}", share, "share", *limits.against("share")),
            *([Evidence("modules in train mode in such a pass", in_train, "modules", 0, "in eval mode there is none")]
              * (not in_eval)),
            *([Evidence("dropouts that dropped values", drops, "calls", 0, "in eval mode there is none")][:drops]),
            Evidence("kinds", kinds),
        ],
        location=begins or seen_at,
        seen_at=seen_at,
        charts=_charts(process, begin),
        false_alarm="Sampling with dropout on purpose (Monte Carlo dropout), or batch statistics by design "
        "(meta-learning).",
    )  # fmt: skip


def _effect(kinds: str) -> str:
    """What modules of these kinds do to a validation in train mode."""
    norms = [kind.partition(" x")[0] for kind in kinds.split(", ") if "Norm" in kind]
    does = ["values are dropped at random"] if any(kind in kinds for kind in DROPPING) else []
    does += [f"{norms[0]} uses each batch's own statistics, and validation data change what it stores"] if norms else []
    return "; ".join(does) or f"{kinds} behave as in training"


def _charts(process: Process, begin: int) -> list[Chart]:
    if not process.optimizations:
        return []
    optimization = process.longest
    marks = [Mark(float(begin), "validation in train mode")]
    return pictures.loss(optimization, marks) or pictures.over_steps(
        optimization, "Modules in train mode at training steps", "modules", {"in train mode": "modules_in_train"}, marks
    )


RULE = Rule(
    id="eval-in-train-mode",
    family="evaluation",
    severity="critical",
    title="Validation runs in train mode",
    about="Dropout and BatchNorm behave differently in train mode. Validation without model.eval() measures noise.",
    check=check,
    verify="Record the run again: validation passes run in eval mode and repeat their loss on the same weights.",
    excluded=(
        "Models without dropout or BatchNorm: modules in train mode were counted in these passes.",
        "Teachers, generators and rollouts: the passes compute a loss or read from a loader.",
    ),
    absent="The run has no validation pass.",
    needs=(("evals.model_in_train", "evals.trained"), ("evals.loss",)),
    thresholds=(
        Threshold("share", 0.5, "share", "a habit, not one odd pass: most validation passes"),
        Threshold("measured", 0.5, "share", "most of these passes compute a loss or read a loader: no sampling"),
        Threshold("sampled", 2 / 3, "share", "derived: three forwards an input; two give a loss and an accuracy apart"),
        Threshold("relative", 0.1, "share of level", "curves alone: simulated noise of 3% exceeds 5% in 2%; doubled"),
        Threshold("ratio", 6, "", "curves alone: simulation, 150 runs per cell"),
    ),
    not_when="No mode-sensitive modules; Monte Carlo dropout, which repeats its input; generators, teachers, rollouts.",
)
