"""Samples of a validation that its training was trained on, pass by pass: indices that overlap, copies before a split.

Without a loader nothing says how many samples a pass over the training data has: the steps between two passes do. What
a model is given is looked at sample by sample, in the first batches and in the first passes.

Samples of which the training data hold copies are met more often, and make that estimate too large. Where many of a
pass have copies, in it or in the training data, those without are judged apart: each turn of the training data that
looked at a share c of its rows shows a sample that is trained on with probability c or more, whatever copies there are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.data.passes import BLANK, prints_of
from tracelyze.analyzers.computed.splits import overlap
from tracelyze.analyzers.computed.splits.overlap import Overlap, Seen
from tracelyze.analyzers.rule import Outcome, Passed, Skipped
from tracelyze.analyzers.rules.data.train_validation_overlap import copies
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Finding, Location

TRAINED = "trained"  # what a row of the table batches was used for
_EXAMPLE = (
    "order = rng.permutation(len(x))\n"
    "train_index, val_index = order[200:], order[:200]  # no sample in both\n"
    "train_index = oversample(train_index)  # copies only after the split, and of the training part alone"
)
DEVIATIONS = 2  # standard errors above an estimate: what it may be, in all but one of 40


@dataclass(frozen=True)
class Look:
    """What was looked at of one batch."""

    row: Mapping[str, Any]
    contents: list[str]


class Judged(NamedTuple):
    """What one pass shares with the training before it. `surely`: a share that it does not exceed; `copied`:
    whether many of its samples have copies."""

    found: Overlap
    first: Seen
    surely: float
    site: Location | None
    copied: bool = False


@dataclass
class Looks:
    """All that was looked at in a process, in the field that tells most samples apart."""

    trained: list[Look] = field(default_factory=list)
    evaluated: list[Look] = field(default_factory=list)


def judge(process: Process, limits: Limits) -> tuple[Judged | None, Outcome]:
    """The pass that shares most with its training, if no pass beside it is free of that; and what to say if none is."""
    looks = _looks(process)
    found = [one for training in process.trainings for one in _passes(training, looks, limits)]
    if not found:
        return None, Skipped("too few samples of an evaluation were looked at beside those of its training")
    clean = [one.found for one in found if one.found.share < limits["share"]]
    if clean:
        fewest = min(clean, key=lambda one: one.hits)
        return None, Passed(f"{fewest.hits:,} of {fewest.looked:,} samples of an evaluation were met in training")
    best: dict[tuple[Location | None, int], Judged] = {}  # of passes from one line, that of which most can be told
    for one in sorted(found, key=lambda one: one.found.expected):
        best[one.site, one.found.looked] = one
    partly = [one for one in best.values() if one.surely < limits["complete"] and one.found.hits >= limits["hits"]]
    if len(partly) < len(best):
        return None, Skipped("what is evaluated may all be trained on: a measure of training accuracy looks the same")
    return max(partly, key=lambda one: one.found.hits), Passed("")


def told(finding: Finding, judged: Judged, process: Process) -> Finding:
    """The finding of shared samples, where no loader made them or each training has its own."""
    trainings = len(process.trainings)
    said = f" Each of {plural(trainings, 'training')} was held against its own validation." if trainings > 1 else ""
    if finding.diff is not None:  # the script's own line that splits
        return replace(finding, summary=finding.summary + said, seen_at=judged.site)
    own = ""
    made = copies.made_above(process, finding.location) if judged.copied else None
    if made is not None:
        own = copies.split_first(process, copies.beside(process, finding.location, made), made)
        before = f" Line {made.line} makes copies before the data are split."
        finding = replace(finding, summary=finding.summary + before, fix=copies.FIX, location=made)
    return replace(
        finding,
        summary=finding.summary + said,
        fix_code=own or _EXAMPLE,
        location=finding.location or judged.site,
        seen_at=judged.site,
        false_alarm="Recordings of different things that are equal; a measure on a part of the training data alone.",
    )


def _looks(process: Process) -> Looks:
    prints = prints_of(process)
    rows = [row for row in process.tables["batches"].shared_records() if row["prints"] and row["shape"]]
    rows = [row for row in rows if row[TRAINED] is not None]
    fields: dict[str, tuple[set[str], set[str]]] = {}
    for row in rows:
        fields.setdefault(str(row["field"]), (set(), set()))[bool(row[TRAINED])].update(prints[row["prints"]])
    both = {name: len(trained) for name, (evaluated, trained) in fields.items() if evaluated and trained}
    looks = Looks()
    richest = max(both, key=lambda name: both[name], default=None)
    for row in rows:
        if row["field"] == richest:
            contents = [one for one in prints[row["prints"]] if one != BLANK]
            (looks.trained if row[TRAINED] else looks.evaluated).append(Look(row, contents))
    return looks


def _passes(training: Process, looks: Looks, limits: Limits) -> list[Judged]:
    """The passes of one training of which enough was looked at, each against the training before it."""
    evals, numbers = training.evals, np.sort(training.steps["step"])
    if not len(numbers) or not len(evals) or numbers[-1] - numbers[0] + 1 != len(numbers):
        return []  # trainings that take turns
    begun = int(numbers[0]) - 1
    trained = [one for one in looks.trained if begun <= one.row["step"] < numbers[-1]]
    rows = np.flatnonzero(validation.passes(training))
    after = evals["after_step"] + (begun if training.training else 0)  # a part counts its own steps
    between = np.diff(np.unique(np.concatenate(([begun], after[rows]))))
    sizes = training.steps["batch_size"][np.isfinite(training.steps["batch_size"])]
    if not len(rows) or not len(between) or not len(sizes) or not overlap.continuous([_seen(trained)]):
        return []
    epoch = float(np.median(between))
    turns = _turns(trained, begun, epoch)
    once = max(turns, key=Counter.total)
    distinct = len(once) / max(1, once.total())  # a sample that is drawn more often counts once
    drawn = epoch * float(np.mean(sizes))
    known = drawn * distinct
    found = []
    fullest: dict[tuple[float, float], list[Look]] = {}  # by line and samples
    for row in rows:
        key = float(evals["site"][row]), float(evals["samples"][row])
        mine = _same_as_earlier(_of_pass(looks.evaluated, evals, int(row), after), fullest.get(key, []))
        fullest[key] = max(mine, fullest.get(key, []), key=_number)
        before = [one for one in trained if one.row["step"] < after[row]]
        samples = float(evals["samples"][row])
        if mine and before and samples <= limits["size"] * known:
            judged = _compared(mine, before, known, training.site(evals["site"][row]))
            copied = _copied(mine, turns)
            if sum(len(copied.intersection(look.contents)) for look in mine) >= limits["copies"] * _number(mine):
                judged = _apart(judged, mine, copied, turns, drawn)._replace(copied=True)
            if judged.found.expected * limits["share"] >= limits["enough"]:
                found.append(judged)
    return found


def _turns(trained: list[Look], begun: int, epoch: float) -> list[Counter[str]]:
    """How often each sample was met in each turn of the training data; a batch that was looked at twice counts once."""
    turns: dict[float, Counter[str]] = {}
    for (step, _), contents in {(one.row["step"], one.row["prints"]): one.contents for one in trained}.items():
        turns.setdefault((step - begun) // epoch, Counter()).update(contents)
    return list(turns.values())


def _of_pass(looks: list[Look], evals: Any, row: int, after: np.ndarray) -> list[Look]:
    """What was looked at of a pass: of its loader, behind the same step; of none, before another pass begins."""
    loader, start = evals["loader"][row], evals["time_start"][row]
    same = [one for one in looks if one.row["step"] == after[row]]
    if np.isfinite(loader):
        return [one for one in same if one.row["loader"] == loader]
    later = evals["time_start"][(after == after[row]) & (evals["time_start"] > start)]
    end = later.min() if len(later) else np.inf
    return [one for one in same if one.row["loader"] is None and start <= (one.row["time"] or 0.0) < end]


def _same_as_earlier(mine: list[Look], earlier: list[Look]) -> list[Look]:
    """What was looked at of the earlier pass, if all that was looked at of this one is among it and it is more: the
    same samples are evaluated again, of which a later pass is looked at less closely."""
    contents = {content for look in earlier for content in look.contents}
    same = mine and all(content in contents for look in mine for content in look.contents)
    return earlier if same and _number(mine) < _number(earlier) else mine


def _number(looks: list[Look]) -> int:
    return sum(len(look.contents) for look in looks)


def _compared(mine: list[Look], before: list[Look], known: float, site: Location | None) -> Judged:
    looked = {one for look in mine for one in look.contents}
    trained = {one for look in before for one in look.contents}
    hits = len(looked & trained)
    covered = min(1.0, len(trained) / max(known, 1.0))
    expected = len(looked) * covered
    share = min(1.0, hits / expected) if expected else 0.0
    error = (share * (1.0 - covered) / expected) ** 0.5 if expected else 1.0
    found = Overlap(hits, len(looked), share, expected, hits / max(1, len(looked)), 0.0)
    return Judged(found, _seen(mine), share + DEVIATIONS * error, site)


def _copied(mine: list[Look], turns: list[Counter[str]]) -> set[str]:
    """The samples of a pass that have an equal one in it, or were met more than once in one turn of the training data.

    A sample without copies is met once in a turn at most. So one that has copies, and is not known by that, is met at
    least as often as one without: to count it among those errs towards a set that is all trained on.
    """
    counts = Counter(content for look in mine for content in look.contents)
    return {content for content, count in counts.items() if count > 1 or any(turn[content] > 1 for turn in turns)}


def _apart(judged: Judged, mine: list[Look], copied: set[str], turns: list[Counter[str]], drawn: float) -> Judged:
    """The judgement with the samples that have no copies judged by themselves: they may be met nowhere, now or
    later."""
    samples = {content for look in mine for content in look.contents}
    met = {content for content in samples if any(turn[content] for turn in turns)}
    covered = min(1.0, max(turn.total() for turn in turns) / drawn)
    share = variance = 0.0
    for group in (samples & copied, samples - copied):
        expected, weight = len(group) * covered, len(group) / len(samples)
        if expected:
            part = min(1.0, len(group & met) / expected)
            share += weight * part
            variance += weight**2 * part * (1.0 - part * covered) / expected
    surely = min(judged.surely, share + DEVIATIONS * variance**0.5)
    return judged._replace(found=replace(judged.found, share=min(judged.found.share, share)), surely=surely)


def _seen(looks: list[Look]) -> Seen:
    one = Seen(-1, int(looks[0].row["step"]) if looks else 0)
    for look in looks:
        one.contents += look.contents
        overlap.measure(one, look.row)
    return one
