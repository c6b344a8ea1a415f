"""augmented-validation: validation samples are changed by chance, so that each pass measures other data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import draws, validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.data.augmented_validation import changed_fields, one_dataset
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.draws import Part
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """Loaders that only validation passes read: whether loading draws, and content differs from pass to pass."""
    feeding = {int(index) for index in validation.training_loaders(process)}
    evaluated = process.evals["loader"][validation.passes(process)]
    own = {int(index) for index in evaluated if index == index} - feeding
    parts = draws.parts(process)
    validating = [part for part in parts if part.loader in own]
    if not validating or not feeding:
        return Skipped("no validation pass over a dataset with an index was seen", "not-applicable")
    drawing = [part for part in validating if part.start]
    if not drawing:
        return Passed("loading the validation samples draws no random numbers")
    by_field = changed_fields.of(process, own)
    if changed_fields.are_of_the_task(by_field, limits):
        return Passed("inputs come with targets of their shape: noise that is drawn for them is part of the task")
    if changed_fields.are_other_samples(process, own, by_field, limits):
        return Passed("the labels at the same places of two passes differ, too: each pass makes samples of its own")
    if _repeated(process, own):
        return Passed("each validation goes over its data several times: augmentation at test time")
    augmented = {name for part in parts if part.loader in feeding for name in part.start}
    if not augmented.intersection(name for part in drawing for name in part.start):
        return Passed("only validation draws random numbers: they are no augmentation meant for training")
    compared = sum(len(one.changed) for one in by_field.values())
    share = sum(sum(one.changed) for one in by_field.values()) / max(1, compared)
    sources = {part.source for part in parts if part.loader in feeding and part.source is not None}
    shared = any(part.source in sources for part in drawing)
    if compared >= limits["batches"]:
        if share < limits["share"]:
            return Passed(f"{compared:,} validation batches were the same in the pass before")
    elif not shared:
        return Skipped("too few validation batches were seen twice, at the same place of two passes")
    return [_finding(process, drawing, share if compared else None, compared, shared, limits)]


def _repeated(process: Process, own: set[int]) -> bool:
    """Whether the same loader is read more than once between two steps, whenever it is read."""
    places = [(row["loader"], row["after_step"]) for row in process.evals.records() if row["loader"] in own]
    return bool(places) and all(places.count(place) > 1 for place in places)


def _finding(
    process: Process, drawing: list[Part], share: float | None, compared: int, shared: bool, limits: Limits
) -> Finding:
    loader = next(row for row in process.loaders.records() if row["loader"] == drawing[0].loader)
    made = process.loader_location(loader)
    names = draws.names(sorted({name for part in drawing for name in part.start}))
    detail = (
        f" At the same place of two passes, {share_of(share, plural(compared, 'batch', 'batches'))} differed."
        if share is not None and compared
        else ""
    )
    own = None if shared else script_lines.validation_set(process, loader["dataset"])
    switched = one_dataset.switched_on(process, loader["dataset"], own)
    why = switched.said if switched else ""
    if shared:
        why = " Training and validation share one dataset object, with its transforms."
    evidence = [Evidence("generator", names), Evidence("one dataset object for both", shared)]
    if share is not None and compared:
        evidence.insert(0, Evidence("batches that changed", share, "share", *limits.against("share")))
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Validation samples of {loader['dataset']} are augmented at random",
        summary=(
            f"Loading validation samples draws from {names}, as it does for training.{detail}{why} Each pass measures "
            "different, harder data: the numbers are too pessimistic and noisy, and the best epoch is partly luck."
        ),
        fix=one_dataset.FIX if shared else switched.fix if switched else one_dataset.OWN_FIX,
        fix_code=one_dataset.example(process, loader["dataset"], made) if shared else one_dataset.OWN_EXAMPLE,
        diff=switched.diff if switched else None,
        first_step=drawing[0].step,
        evidence=evidence,
        location=(one_dataset.split(process) or one_dataset.given(process, made) if shared else own) or made,
        seen_at=made,
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="Augmentation at test time, and tasks whose noise is drawn with the sample.",
    )


RULE = Rule(
    id="augmented-validation",
    family="data",
    severity="warning",
    title="Validation data are augmented",
    about="Random transforms belong in training. If a split shares the dataset object, validation gets them too.",
    check=check,
    verify="Record the run again: loading validation samples draws no random numbers.",
    absent="The run validates on no dataset with an index.",
    needs=(("fetches.moved",),),
    thresholds=(
        Threshold("share", 0.5, "share", "transforms that are applied to half of the samples change every batch"),
        Threshold(
            "alike", 0.25, "spreads", "derived: two views of a picture hold the same numbers, a mask holds others"
        ),
        Threshold("batches", 2, "batches", "derived: one that differs may be a short last one"),
    ),
    not_when="Test-time augmentation, noisy inputs of clean targets, views of a picture, integers (masked at random), "
    "samples that are made anew, labels and all.",
)
