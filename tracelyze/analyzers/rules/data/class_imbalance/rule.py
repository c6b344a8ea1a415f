"""class-imbalance: one class makes up nearly all targets, so that always answering it looks like success."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.data.class_imbalance import class_shares, one_answer, rare_classes
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """The targets of the batches that were trained on, class by class."""
    counts = class_shares.classes(process, limits["targets"])
    total = sum(counts.values())
    if total < limits["targets"]:
        if (seen := class_shares.at_the_loss(process, int(limits["pure"]))) and seen.targets >= limits["targets"]:
            if seen.share >= limits["share"]:
                return [_finding(process, seen.name, seen.share, Counter({seen.name: seen.targets}), limits)]
            return Passed(f"of the targets of the loss, no class was seen to make up {percent(limits['share'])}")
        told = "no field of the batches holds" if not total else f"{plural(total, 'target')} were seen of"
        return Skipped(f"{told} one class for each sample, and the loss does not show enough: how they spread is open")
    if len(counts) < 2:
        return Skipped(
            "all targets that were seen are of one class: they may be something else than classes", "not-applicable"
        )
    most, number = counts.most_common(1)[0]
    share = number / total
    if share < limits["share"]:
        return Passed(f"the most frequent of {len(counts)} classes makes up {percent(share)} of the targets")
    if not class_shares.are_mixed(process, most, limits["without"]):
        return Skipped(
            f"whole batches hold none of class {most}, the most frequent one: shares are open in such an order"
        )
    return [_finding(process, most, share, counts, limits)]


def _finding(process: Process, most: str, share: float, counts: Counter[str], limits: Limits) -> Finding:
    optimization = process.longest
    least, fewest = counts.most_common()[-1]
    exact = least != most  # else only what the most frequent makes up is known, and that from the loss
    rare = f", and only {fewest:,} of class {least}" if exact else ""
    part = percent(share) if exact else f"at least {percent(share)}"
    always = one_answer.always(process, most, share, limits)
    remedy = rare_classes.remedy(process, most, share, counts, limits)
    so = f" {always} it answered {most} for nearly every sample checked." if always else ""
    two = exact and len(counts) == len((most, least))
    others, they = (f"class {least}", "it") if two else ("the other classes", "they")
    return Finding(
        rule=RULE.id,
        severity="warning" if always else "info",
        confidence="certain" if exact else "likely",
        title=f"{part[0].upper()}{part[1:]} of the targets are of one class"
        + (", which the model nearly always answers" if always else ""),
        summary=(
            f"Of {sum(counts.values()):,} targets checked, {part} are of class {most}{rare}. A model that always "
            f"answers {most} is right in {part} of the cases, so accuracy says little, and gradients come from "
            f"{others} so rarely that {they} may never be learned.{so}{remedy.why}"
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        diff=remedy.diff,
        first_step=timing.step_at(optimization, 0),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("targets of the most frequent class", share, "share", *limits.against("share")),
            *([Evidence("classes met", len(counts), "classes")] if exact else []),
            Evidence("targets looked at", sum(counts.values()), "targets", *limits.against("targets"), role="basis"),
        ],
        location=remedy.place,
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization),
        false_alarm="Rare classes that are weighted in the loss, or that do not matter.",
        verify=f"Judge the model by precision and recall of class {least}." if two else RULE.verify,
    )


RULE = Rule(
    id="class-imbalance",
    family="data",
    severity="info",
    title="One class makes up nearly all targets",
    about="If one class makes up nearly all of the data, always predicting it looks like success.",
    check=check,
    verify="Judge the model by precision and recall of the rare classes.",
    excluded=("Chance in a small sample: hundreds of targets were checked.",),
    needs=(("batches.trained",), ("loss_calls.target_varies",)),
    thresholds=(
        Threshold(
            "share", 0.9, "share", "derived: nine to one; a model that never answers the others is right as often"
        ),
        Threshold("pure", 3, "batches", "of one and the same class, and none of another: it is the frequent one"),
        Threshold("rare", 3, "samples", "a Poisson mean of 3 shows none in 5% of runs: rare targets in late batches"),
        Threshold("late", 1 / 3, "share", "derived: of the steps; before that much may still be learned"),
        Threshold("answered", 0.25, "share", "derived: of the rare targets; three of four are missed at least"),
        Threshold("fewer", 3, "times", "derived: as many others in validation; a third of a split is no chance"),
        Threshold("without", 8, "targets", "derived: at nine in ten of one class, none of it is there once in 1e8"),
        Threshold("targets", 200, "targets", "derived: of two classes alike, nine of ten are never met by chance"),
    ),
    not_when="Class shares within an order of magnitude, targets that are not classes, maps and sequences of targets.",
)
