"""train-validation-overlap: validation samples are trained on, so validation measures memory instead of skill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.splits import overlap
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.data.train_validation_overlap import by_index, carried_folds, copies, found_overlap

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.splits.overlap import Judged
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Each training of several, or without loaders, against its own validation; else one loader against another."""
    if len(process.trainings) > 1 or not len(process.loaders):  # folds, each of which has data of its own
        one, otherwise = by_index.judge(process, limits)
        return (
            otherwise
            if one is None
            else [by_index.told(found_overlap.finding(process, RULE.id, {}, *one[:2], limits), one, process)]
        )
    return _of_loaders(process, limits)


def _of_loaders(process: Process, limits: Limits) -> Outcome:
    """Every validation set against the training data; beside one that is free of them, those with its name alone."""
    trained, evaluated = overlap.seen(process)
    loaders = {int(row["loader"]): row for row in process.loaders.records()}
    lengths = {index: int(row["length"]) for index, row in loaders.items() if row["length"]}
    trained = [one for one in trained if one.loader in lengths]
    feeding = {one.loader for one in trained} | {int(index) for index in validation.training_loaders(process)}
    of_evals = process.evals["loader"][validation.passes(process)]
    own = sorted({int(index) for index in of_evals[np.isfinite(of_evals)]} - feeding)
    if not trained or not own or not feeding <= lengths.keys():
        return Skipped("training and validation samples cannot be compared: they need DataLoaders of known length")
    if not np.isfinite(of_evals).all():
        return Passed("some evaluation is made on data of no DataLoader, which may be what was held out")
    sizes = list(overlap.sizes_of(trained, lengths).values())
    if max(sizes) > (1 + limits["growth"]) * min(sizes):
        return Passed("the training data change in size, as with active learning: what was evaluated may join them")
    folds = carried_folds.find(process, trained, evaluated, lengths, int(limits["splits"]))
    if folds is not None and folds.found.beyond_chance(overlap.continuous(trained), limits):
        finding = found_overlap.finding(process, RULE.id, loaders[folds.loader], folds.found, folds.first, limits)
        return [carried_folds.told(process, finding, folds)]
    judged, unknown, clean, copied = {}, "", None, list[overlap.Seen]()
    for numbers in overlap.validation_sets(loaders, own, evaluated):
        passes = [one for one in evaluated if one.loader in numbers]
        if not passes or not set(numbers) <= lengths.keys():
            return Skipped("too little of a validation set was sampled")
        named = all(overlap.is_named_for_validation(process, loaders[number]) for number in numbers)
        if not named and overlap.size_of(passes, lengths[numbers[0]]) > limits["size"] * min(sizes):
            return Passed("what is evaluated is too large a part of the training data to have been held out of them")
        shared = overlap.of_validation(passes, trained, lengths, limits["splits"], limits["enough"])
        if not shared.beyond_chance(overlap.continuous(trained), limits):
            if overlap.are_known(passes, copied):
                continue
            few = shared.expected * limits["share"] < limits["enough"]
            unknown = f"too few validation samples were compared: {shared.looked:,}" if few else unknown
            clean = clean if few else Passed(shared.by_chance(limits))
        elif not named and not overlap.validates(process, shared, numbers, limits):
            said = f"{shared.hits:,} of {shared.looked:,} evaluated samples are trained on, and no loss is computed: "
            return Skipped(said + "a measure of training accuracy looks the same")
        else:
            apart = named and not any(overlap.is_of_training(process, loaders[number]) for number in numbers)
            judged[numbers[0]] = overlap.Judged(shared, passes[0], apart)
            copied += passes if shared.evenness >= limits["even"] else []
    return _worst(process, loaders, judged, clean, unknown, limits)


def _worst(
    process: Process, loaders: dict[int, Any], judged: dict[int, Judged], clean: Passed | None, unknown: str,
    limits: Limits,
) -> Outcome:  # fmt: skip
    """The finding of the set of which most is trained on."""
    if clean is not None:
        judged = {number: one for number, one in judged.items() if one.is_split(limits)}
    index = overlap.worst(judged, limits["complete"], unknown)
    if index is None:
        return clean or Skipped(unknown)
    found, first, _ = judged[index]
    finding = found_overlap.finding(process, RULE.id, loaders[index], found, first, limits)
    repeated = found.doubled > 0 and copies.repeated_above(process, finding.location)
    several = repeated or found.doubled >= limits["copies"] or found.evenness >= limits["even"]
    return [copies.told(finding, found, process) if several else finding]


RULE = Rule(
    id="train-validation-overlap",
    family="data",
    severity="critical",
    title="Validation samples are trained on",
    about="Splitting twice, or after copying samples, puts the same samples on both sides.",
    check=check,
    verify="Record the run again: no validation sample is seen in training. Expect worse, but honest, numbers.",
    absent="No batches of a training and of an evaluation were looked at.",
    whole_process=True,
    needs=(("batches.prints", "batches.trained"),),
    thresholds=(
        Threshold("share", 0.1, "share", "CIFAR-100's test set has 10% near duplicates in training (Barz, Denzler)"),
        Threshold("hits", 8, "samples", "a Poisson count of 8 is beyond 2 with p = 0.001"),
        Threshold("few", 3, "samples", "derived: two may be duplicates in the data; of sets that were looked at whole"),
        Threshold("enough", 3, "samples", "a Poisson mean of 3 shows no hit in 5% of runs"),
        Threshold("beyond", 5, "times", "by chance a pass shows as many equal samples in itself as in validation"),
        Threshold("size", 0.5, "share", "held-out parts are a tenth to a third; as large as training: its own data"),
        Threshold("growth", 0.1, "share", "folds and splits differ by a batch; rounds of labelling add whole sets"),
        Threshold(
            "complete", 0.95, "share", "a measure of training accuracy meets all: it is no split that went wrong"
        ),
        Threshold(
            "copies", 0.3, "share", "of the samples have an equal one in the same pass: oversampled, or repeated"
        ),
        Threshold("even", 6, "", "standard deviations by which counts of samples spread less than by chance"),
        Threshold("splits", 3, "splits", "two may be two phases; three that share samples are no folds"),
    ),
    not_when="Evaluation on the training data: by its loader, on a set more than half as large, or beside any set that "
    "is clean, unless the script calls its loader val or test; then only if all of it is trained on. "
    "Folds, active learning, blank samples, few distinct values. A small set that is all in training: only if losses "
    "are computed on it and nothing else is evaluated.",
    references=("https://arxiv.org/abs/1902.00423",),
)
