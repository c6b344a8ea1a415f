"""no-shuffle: training data in the order of their labels, batch after batch of one class, or ever the same batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.data.no_shuffle import (
    by_label,
    first_batches,
    kept_in_order,
    label_order,
    reading_order,
    sorted_streams,
)
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Finding

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """Labels of the batches of loaders that read a map-style dataset in order, at the loss and at the loader."""
    if drawn := label_order.drawn_class_by_class(process, limits):
        return [by_label.finding(process, RULE.id, {}, drawn, 0.0, limits)]
    if cut := kept_in_order.slices(process, limits):
        if kept_in_order.are_sorted(cut, limits):
            return [kept_in_order.finding(process, RULE.id, cut, limits)]
        return Passed("batches are cut one behind the other out of tensors, in which the labels are mixed")
    if not len(process.loaders):
        return Skipped("the run uses no DataLoader", "not-applicable")
    ordered = {row["loader"]: row for row in process.loaders.records() if reading_order.keeps_it(row)}
    for row in process.loaders.records():
        if row["loader"] not in ordered and (found := _in_an_order_of_its_own(process, row, limits)):
            return [found]
    calls = [row for row in process.tables["loss_calls"].records() if row["training"] and row["loader"] in ordered]
    labelled = [row for row in calls if row["target_lowest"] is not None]
    if not ordered:
        return Passed("no loader that feeds the training reads a dataset in its own order")
    outcome = _by_labels(process, ordered, labelled, calls, limits)
    if not isinstance(outcome, list):
        again = [row for index, row in ordered.items() if _passes(process, index) >= limits["passes"]]
        once = [one for row in again if (one := first_batches.finding(process, RULE.id, row, limits)) is not None]
        several = [row for row in again if row["length"] != 1]  # one batch has no order
        drawn = [row for row in several if row["ignores_index"]]
        if drawn and len(drawn) == len(several) and not once:
            said = f"a loader reads in order, but {drawn[0]['dataset']} does not read the index that it is given"
            return Passed(f"{said}: another order would change nothing")
        if once or not (several := [row for row in several if row not in drawn]):
            return once or outcome
        count = _passes(process, several[0]["loader"])
        if (same := reading_order.comes_again(process, several[0]["loader"], limits["again"])) is False:
            return Passed(f"a loader reads in order, but in {plural(count, 'pass')} its dataset gave other samples")
        return [reading_order.finding(process, RULE.id, several[0], count, same, limits)]
    return outcome


def _in_an_order_of_its_own(process: Process, loader: Row, limits: Limits) -> Finding | None:
    """The finding about a loader whose order is that of the script's own sampler, or of an iterable dataset."""
    if not loader["iterable"]:
        drawn = label_order.in_blocks(process, loader["loader"], limits)
        return by_label.finding(process, RULE.id, loader, drawn, 0.0, limits) if drawn else None
    stream = sorted_streams.find(process, loader, limits)
    return sorted_streams.finding(process, RULE.id, loader, stream, limits) if stream else None


def _passes(process: Process, loader: int) -> int:
    """How often the training went through a loader."""
    steps = process.steps
    return int(((steps["loader"] == loader) & (steps["loader_first"] == 1)).sum())


def _by_labels(
    process: Process, ordered: dict[Any, Row], labelled: list[Row], calls: list[Row], limits: Limits
) -> Outcome:
    if not calls:
        return Skipped("no training loss was seen on batches of a loader that reads in order")
    if not labelled:
        return Skipped("a loader reads in order, and its loss does not show whether that is the order of the labels")
    unknown = False
    for index, loader in ordered.items():
        large = [row for row in labelled if int((row["input_shape"] or "0").split("x")[0]) >= limits["samples"]]
        rows = [row for row in large if row["loader"] == index]
        rows += label_order.handed_out(process, index, rows, limits)
        spread = label_order.covered(rows, limits)
        if spread is not None and spread <= limits["width"]:
            return [by_label.finding(process, RULE.id, loader, rows, spread, limits)]
        unknown = unknown or spread is None
    if unknown:
        return Skipped("a loader reads in order, but too few batches were sampled, or too close together")
    return Passed("a loader reads its dataset in order, but the labels are mixed in it")


RULE = Rule(
    id="no-shuffle",
    family="data",
    severity="critical",
    title="Training data are in label order",
    about="Single-class batches make a network forget the other classes. Order alone is harmless; sorted labels are "
    "not.",
    check=check,
    verify="Record the run again: batches hold labels from the whole range.",
    excluded=("Order alone does no harm: here it is that of the labels.", "A rare class: batches lie on both sides."),
    absent="The run uses no DataLoader.",
    needs=(
        ("loaders.sampler", "loss_calls.target_lowest"),
        ("loaders.sampler",),
        ("loss_calls.target_lowest",),
        ("loss_calls.kept_rows",),
    ),
    thresholds=(
        Threshold("samples", 8, "samples", "two classes in equal shares give a pure batch of 8 once in 128"),
        Threshold("batches", 12, "batches", "enough to see several of both ends of the range"),
        Threshold("width", 0.25, "share", "of the range of labels; shuffled batches cover nearly all of it"),
        Threshold("share", 0.8, "share", "of the batches; those between two classes hold both"),
        Threshold("passes", 3, "passes", "what is read once has no order to repeat; two may be a short try"),
        Threshold("again", 0.5, "share", "derived: what is read again is all the same, what is drawn anew never is"),
        Threshold("begun", 20, "iterators", "a first look at a batch, or a try of one, is no training"),
        Threshold("always", 0.95, "share", "of the steps; the others may belong to a warm-up"),
        Threshold("classes", 3, "classes", "two constant targets in turn are those of a discriminator"),
        Threshold("runs", 0.5, "share", "derived: of steps whose class is that of the step before; in turns, none"),
        Threshold("adjoining", 0.5, "share", "derived: of inputs that begin in memory where the one before ended"),
        Threshold("sorted", 0.95, "share", "derived: half of the pairs in a mixed order; a buffer swaps neighbours"),
        Threshold("ends", 3, "batches", "below and above some label: a rare class alone never fills three batches"),
    ),
    not_when="Samplers of the script's own that mix classes or their blocks, streams that are read once, mixed labels, "
    "validation loaders, the whole data in one batch, datasets that draw their samples.",
)
