"""Samples of the validation data that a training was trained on, estimated from the few samples that were looked at.

A pass over the training data in which a share c of its samples was looked at shows a validation sample that belongs to
the training data with probability c. So hits / (validation samples looked at * c), summed over passes, estimates the
share of them that such a pass trains on, whatever the number of passes.

Samples that the training data hold several times over are met more often, and make that estimate too large. But then it
is the same ones that are met again and again: if each of a share s is met by a Poisson count, the mean m of the counts
over all samples and the mean p of count * (count - 1) give s = m^2 / p.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.data.passes import BLANK, prints_of
from tracelyze.analyzers.computed.splits.even_copies import evenness
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = Mapping[str, Any]
CONTINUOUS = 16  # different pairs of the smallest and the largest value of a batch that are compared
AGAIN = 400  # times that a sample was met once more: from there on the estimate from counts is within a twentieth or so
DIFFERENT = 0.25  # of them that have to differ: a grid has few extremes, and copies have theirs again and again

_HELD_OUT = "val|valid|validation|test|testing|dev|held_?out"
_LOADER = r"_?(loader|dataloader|dl|iter|batches)"
_NAMED = re.compile(rf"""(self\.)?["']?(\w+_)?({_HELD_OUT})({_LOADER})?["']?\s*[=:]""")
_MAKES = re.compile(rf"_*(?:(?:get|make|build|create)_)?({_HELD_OUT}){_LOADER}s?")  # a function, which returns it


@dataclass
class Seen:
    """What was looked at of one pass over a loader: contents of samples, and batch sizes by place."""

    loader: int
    step: int  # optimizer steps done before its first batch that was looked at
    contents: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    extremes: list[tuple[float, float]] = field(default_factory=list)

    @property
    def distinct(self) -> set[str]:
        """The contents without repetitions."""
        return set(self.contents)


@dataclass(frozen=True)
class Overlap:
    """Validation samples against passes over training data. `expected`: hits if all of them had been trained on."""

    hits: int  # distinct ones that were met in training
    looked: int  # distinct ones that were looked at
    share: float  # estimate of the share that was trained on
    expected: float
    rate: float  # share of them that one pass shows
    chance: float  # share of samples that have an equal one among those looked at in the same pass
    doubled: float = 0.0  # share of the validation samples that have one in the same pass, which draws none twice
    evenness: float = 0.0  # of copies on both sides: `even_copies`

    @property
    def at_most(self) -> float:
        """The share, and two of its standard errors more."""
        return self.share + 2 * math.sqrt(self.share / self.expected)

    def beyond_chance(self, continuous: bool, limits: Limits) -> bool:
        """Whether more samples are on both sides than are equal by chance."""
        beyond = continuous or self.evenness >= limits["even"] or self.rate >= limits["beyond"] * self.chance
        fewest = limits["few"] if beyond and self.expected >= self.looked else limits["hits"]
        return self.hits >= fewest and self.share >= limits["share"] and beyond

    def by_chance(self, limits: Limits) -> str:
        """What was met in training, and why much of it is no fault: where few samples differ, any two parts share
        them."""
        met = f"{self.hits:,} of {self.looked:,} samples of a validation set were met in training"
        if self.share < limits["share"] or not self.chance:
            return met
        return f"{met}; {percent(self.chance)} of the samples have an equal one in their own pass, so few are different"

    @property
    def where(self) -> str:
        """Where the hits were met; why the share is another than theirs, which a reader would work out."""
        estimated = f"{self.hits / self.looked:.0%}" != f"{self.share:.0%}"
        return "in training, of which a part was looked at" if estimated else "in training"


class Judged(NamedTuple):
    """A validation set that shares samples with the training data, and its first pass."""

    found: Overlap
    first: Seen
    held_out: bool  # by what the script calls it

    def is_split(self, limits: Limits) -> bool:
        """Whether a split went wrong here, and it does not measure training beside a clean set."""
        return self.held_out and self.found.at_most < limits["complete"]


def worst(judged: Mapping[int, Judged], complete: float, unknown: str) -> int | None:
    """The validation set of which most is trained on, None if none is faulty. Where another is `unknown`, that may be
    free of training data, and a set of which all is trained on may measure training."""
    faulty = [number for number, one in judged.items() if not unknown or one.found.at_most < complete]
    return max(faulty, key=lambda number: judged[number].found.share, default=None)


def seen(process: Process) -> tuple[list[Seen], list[Seen]]:
    """Passes that were trained on, and passes that were evaluated, in order; fields that both kinds of batch have."""
    batches: dict[tuple[int, int, int, bool], dict[str, Row]] = {}
    for row in process.tables["batches"].shared_records():
        if row["loader"] is not None and row["trained"] is not None and row["prints"] and row["shape"]:
            key = int(row["loader"]), int(row["epoch"]), int(row["batch"]), bool(row["trained"])
            batches.setdefault(key, {})[str(row["field"])] = row
    prints = prints_of(process)
    kinds: dict[bool, dict[str, set[str]]] = {True: {}, False: {}}
    for (*_, trained), rows in batches.items():
        for name, row in rows.items():
            kinds[trained].setdefault(name, set()).update(prints[row["prints"]])
    common = sorted(kinds[True].keys() & kinds[False].keys())
    if not common:
        return [], []
    richest = max(common, key=lambda name: len(kinds[True][name]))
    passes: dict[tuple[int, int, bool], Seen] = {}
    for (loader, epoch, _, trained), rows in batches.items():
        if all(name in rows for name in common):
            one = passes.setdefault((loader, epoch, trained), Seen(loader, int(rows[richest]["step"])))
            one.contents += _contents([prints[rows[name]["prints"]] for name in common], common.index(richest))
            measure(one, rows[richest])
    ordered = sorted(passes.items(), key=lambda item: item[1].step)
    return [one for (*_, trained), one in ordered if trained], [one for (*_, trained), one in ordered if not trained]


def _contents(columns: list[list[str]], richest: int) -> list[str]:
    """The samples of a batch without blank ones, from the prints of their fields."""
    if len(columns) == 1:
        return [sample for sample in columns[0] if sample != BLANK]
    return [" ".join(sample) for sample in zip(*columns, strict=False) if sample[richest] != BLANK]


def measure(one: Seen, row: Row) -> None:
    one.sizes.append(int(str(row["shape"]).split("x")[0]))
    if str(row["dtype"] or "").startswith(("float", "bfloat")) and row["min"] is not None and row["max"] is not None:
        one.extremes.append((float(row["min"]), float(row["max"])))


def is_named_for_validation(process: Process, loader: Row) -> bool:
    """Whether the script's own name for the loader, or for the function that makes it, says that it holds data which
    are not trained on."""
    made = process.loader_location(loader)
    if made is None:
        return False
    alone = made.source.strip().startswith("return") and made.source.count("DataLoader(") == 1
    by_function = alone and _MAKES.fullmatch(made.function.rpartition(".")[2])
    return bool(by_function) or _NAMED.match(made.source.strip()) is not None


def is_of_training(process: Process, loader: Row) -> bool:
    """Whether the line that makes the loader speaks of training data: whatever its name, it may measure them."""
    made = process.loader_location(loader)
    return made is None or "train" in made.source.lower()


def size_of(passes: list[Seen], length: int) -> float:
    """Samples of a pass over a loader of `length` batches. Of some passes only the last batch was looked at, which is
    often smaller than the others: so the median over all passes of that loader."""
    return length * median(size for one in passes for size in one.sizes)


def sizes_of(passes: list[Seen], lengths: Mapping[int, int]) -> dict[int, float]:
    """Samples of a pass by loader."""
    numbers = sorted({one.loader for one in passes})
    return {number: size_of([one for one in passes if one.loader == number], lengths[number]) for number in numbers}


def validates(process: Process, found: Overlap, loaders: list[int], limits: Limits) -> bool:
    """Whether the passes measure something on held-out data, rather than training accuracy or a few examples.

    Data that hold their samples several times over were copied before they were split.
    """
    evals = process.evals
    rows = np.isin(evals["loader"], loaders)
    losses = np.nansum(evals["losses"][rows]) > 0
    several = float(np.median(np.nan_to_num(evals["forwards"][rows]))) >= 2 and found.at_most < limits["complete"]
    return bool(losses or several or found.chance >= limits["copies"])


def continuous(passes: list[Seen]) -> bool:
    """Values of which no two samples have the same by chance: nearly every batch has extremes of its own."""
    extremes = [pair for one in passes for pair in one.extremes]
    sides = [{pair[0] for pair in extremes}, {pair[1] for pair in extremes}]
    different = len(set(extremes))
    return different >= CONTINUOUS and min(map(len, sides)) >= DIFFERENT * different


def validation_sets(loaders: Mapping[int, Row], own: list[int], evaluated: list[Seen]) -> list[list[int]]:
    """Loaders in groups: those of the same settings that served one pass each, no two at the same step, are one set."""
    steps = {index: [one.step for one in evaluated if one.loader == index] for index in own}
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index in own:
        settings = tuple(value for name, value in loaders[index].items() if name != "loader")
        key = settings if len(steps[index]) == 1 else (index,)
        groups.setdefault(key, []).append(index)
    sets: list[list[int]] = []
    for group in groups.values():
        at = [step for index in group for step in steps[index]]
        sets += [group] if len(set(at)) == len(at) else [[index] for index in group]
    return sets


def are_known(passes: list[Seen], known: list[Seen]) -> bool:
    """Whether what was looked at of some passes was looked at in others, too: they go over the same set."""
    return bool(known) and set().union(*(one.distinct for one in passes)) <= set().union(
        *(one.distinct for one in known)
    )


def of_validation(
    passes: list[Seen], trained: list[Seen], lengths: dict[int, int], splits: float, enough: float
) -> Overlap:
    """A validation set against the training data: those of the loader that trained just before each of its passes.

    So the folds of a cross-validation share nothing. Where both loaders are made anew for each pass, at least `splits`
    times, and validation data share `enough` samples with each other (folds do not), against all that was trained on.
    """
    pairs = []
    for index in sorted({one.loader for one in passes}):
        ours = [one for one in passes if one.loader == index]
        before = [[one.loader for one in trained if one.step < ours_at.step] for ours_at in ours]
        recent = {loaders[-1] for loaders in before if loaders}
        pairs.append((ours, [one for one in trained if one.loader in recent and one.step < ours[-1].step]))
    found = compare(pairs, lengths)
    anew = len(pairs) == len(passes) >= splits and len({one.loader for one in trained}) == len(trained)
    if found.hits or not anew or in_common(passes) < enough:
        return found
    return compare([([one], [t for t in trained if t.step < one.step][:-1]) for one in passes[1:]], lengths)


def compare(pairs: list[tuple[list[Seen], list[Seen]]], lengths: dict[int, int]) -> Overlap:
    """Validation passes against the training passes that each pair holds. `lengths`: batches by loader."""
    met: Counter[str] = Counter()
    everything: set[str] = set()
    hits = expected = looked_at = 0.0
    training = {id(one): one for _, passes in pairs for one in passes}
    sizes = sizes_of(list(training.values()), lengths)
    for evaluated, passes in pairs:
        contents = set().union(*(one.distinct for one in evaluated))
        everything |= contents
        for one in passes:
            found = contents & one.distinct
            met.update(found)
            hits += len(found)
            looked_at += len(contents)
            expected += len(contents) * min(1.0, len(one.contents) / sizes[one.loader])
    share = min(1.0, hits / expected, _concentration(met, len(everything))) if expected else 0.0
    return Overlap(
        hits=len(met),
        looked=len(everything),
        share=max(share, len(met) / len(everything)) if everything else share,  # those that were met are known
        expected=expected,
        rate=hits / looked_at if looked_at else 0.0,
        chance=_chance(list(training.values()), [one for evaluated, _ in pairs for one in evaluated]),
        doubled=_doubled([one for evaluated, _ in pairs for one in evaluated]),
        evenness=_evenness(list(training.values()), [one for evaluated, _ in pairs for one in evaluated], lengths),
    )


def _concentration(met: Counter[str], looked: int) -> float:
    """The share of the samples looked at on which the counts in `met` fall; 1 where they are too few to say."""
    again = sum(count * (count - 1) for count in met.values())
    return min(1.0, met.total() ** 2 / (looked * again)) if again >= AGAIN else 1.0


def _chance(training: list[Seen], validation: list[Seen]) -> float:
    """Samples with an equal one in their own pass: as often would samples of other data be met in it by chance.

    One is added to what training showed. What validation showed is taken to the number looked at in training.
    """
    looked, twins = _twins(training)
    there, of_them = _twins(validation)
    more = (looked / len(training)) / (there / len(validation)) if there and training else 1.0
    return min(1.0, max((twins + 1) / (looked + 1), of_them / there * max(1.0, more) if there else 0.0))


def _doubled(passes: list[Seen]) -> float:
    """Samples with an equal one, in the pass of which most was looked at: small parts show few copies of any."""
    largest = max(passes, key=lambda one: len(one.contents), default=None)
    counts = Counter(largest.contents).values() if largest is not None else ()
    return sum(count for count in counts if count > 1) / max(1, sum(counts))


def _evenness(training: list[Seen], validation: list[Seen], lengths: Mapping[int, int]) -> float:
    """How evenly samples are spread over both sides: in a pass over each, where one was looked at as a whole; else
    0."""
    sides = [[one.contents for one in passes if _is_whole(one, lengths)] for passes in (training, validation)]
    return evenness([*sides[0][0], *sides[1][0]]) if all(sides) else 0.0


def _is_whole(one: Seen, lengths: Mapping[int, int]) -> bool:
    return len(one.sizes) == lengths.get(one.loader) and len(one.contents) == sum(one.sizes)


def _twins(passes: list[Seen]) -> tuple[int, int]:
    looked = sum(len(one.contents) for one in passes)
    return looked, looked - sum(len(one.distinct) for one in passes)


def in_common(passes: list[Seen]) -> int:
    """Samples that two of these passes share, summed over pairs: folds of a cross-validation share none."""
    return sum(len(one.distinct & other.distinct) for one, other in combinations(passes, 2))
