"""Steps that take far longer than the others, and what they have in common."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.throughput import contention, longer_batches, save_periods
from tracelyze.analyzers.computed.throughput import slow_saves as saves
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script.editing.storing import compressed
from tracelyze.formatting import duration, percent, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.diagnosis import Location

EXPLAINED: Final = 0.5  # share of the excess: see EXPLAINED_SOURCE
CROWDED: Final = "other programs on the processors"
UNKNOWN: Final = "nothing that was recorded"
NOTHING: Final = "Nothing that was recorded coincides with them."
WAITING: Final = "waiting for a batch"
RECORDING: Final = "recording by tracelyze"
EXPLAINED_SOURCE: Final = "derived: more than all other causes together"
_SAVES: Final = ("serialization.py", "checkpoint", "safetensors", " save")
_LARGER: Final = 1.5
"""Times the median from which on a batch counts as larger than usual."""
_OFTEN: Final = 2  # times as many steps of others as usual: less is a round of a GAN with an extra one
_MOST_LOST: Final = 0.9  # share of the time: beyond it there is little left to compare
_FEWEST_FOR_RHYTHM: Final = 3  # slow steps: two are always equally far apart
_FEWEST_WITH_GAPS: Final = 10  # slow steps: by chance, at most 1 in 1000 lie so, even at every second step
_FEWEST_SEEN: Final = 6  # of so many looks at steps of two kinds, all meet one kind once in 32 times
_FEWEST_REGULAR: Final = 5  # slow steps: of five by chance, at most 1 in 200 lie so where a tenth of all steps is slow
ON_TIME: Final = 0.8  # share: a hiccup may come in between, or hide in the warm-up; most of the cost may not


@dataclass(frozen=True)
class Slow:
    """Slow steps: their rows, what each took beyond the median in seconds, and the share of all time that this is."""

    rows: npt.NDArray[np.intp]
    excess: Floats
    typical: float
    lost: float


@dataclass(frozen=True)
class Reason:
    """What slow steps have in common, the part of their excess that it explains, and what to do about it."""

    name: str
    share: float
    sentence: str
    fix: str
    location: Location | None = None


def net_seconds(optimization: Optimization, warm_up: int) -> tuple[Floats, Mask]:
    """Wall time of each step without evaluations and turns of other optimizers, and the steps to be judged, [steps].

    Not judged: warm-up, first batches of epochs, and profiled steps with the one after, in which the trace is written.
    """
    steps = optimization.steps
    seconds = steps["seconds"]
    net = seconds - validation.seconds_within_steps(optimization.process, steps["time"], seconds)
    net -= _turns_of_others(optimization)
    judged = np.isfinite(net) & ~(steps["loader_first"] == 1)
    judged[: max(warm_up, len(judged) // 50)] = False
    numbers = timing.numbers(optimization)
    for row in optimization.process.tables["windows"].records():
        if row["first_step"] is not None:
            last = row["last_step"] or row["first_step"]
            judged &= (numbers < row["first_step"]) | (numbers > last + 1)
    return net, judged


def _turns_of_others(optimization: Optimization) -> Floats:
    """Seconds within each step for which other optimizers of the process had their turn, shape [steps].

    What is trained in turns by whole epochs (alternating towers, clients, a population) waits for the others between
    two steps. A turn lasts from the first of their steps to the last one. As many of them as in most steps, the rounds
    of a GAN, are part of the step.
    """
    process, ends = optimization.process, optimization.steps["time"]
    every = (process.whole or process).steps
    turns = np.zeros(len(ends))
    if not every.has("optimizer") or not every.has("time"):
        return turns
    others = np.sort(every["time"][(every["optimizer"] != optimization.optimizer) & np.isfinite(every["time"])])
    first = np.searchsorted(others, ends - optimization.steps["seconds"], side="right")
    last = np.searchsorted(others, ends)
    usual = statistics.median((last - first).astype(float))
    many = last - first > max(_OFTEN * usual, usual + 1)
    turns[many] = others[last[many] - 1] - others[first[many]]
    return turns


def slow(seconds: Floats, judged: Mask, ratio: float, spreads: float, least: float) -> Slow:
    """The judged steps beyond `ratio` medians, `spreads` robust standard deviations and `least` seconds."""
    time = seconds[judged]
    typical = statistics.median(time)
    spread = 1.4826 * statistics.median(np.abs(time - typical))
    bar = max(ratio * typical, typical + spreads * spread, typical + least)
    rows = np.flatnonzero(judged & (seconds > bar))
    excess = seconds[rows] - typical
    return Slow(rows, excess, typical, float(excess.sum()) / max(float(time.sum()), 1e-9))


def rhythm(steps: Sequence[int]) -> str:
    """ ", every 500 steps" if the steps come at one distance, else nothing."""
    distance = np.diff(np.array(steps))
    if len(steps) < _FEWEST_FOR_RHYTHM or np.median(distance) < 2:
        return ""
    usual = int(np.median(distance))
    # One of many may be left out: the first step of an epoch is not judged.
    gaps = (
        len(steps) >= _FEWEST_WITH_GAPS and (distance % usual == 0).all() and 2 * (distance == usual).sum() > len(steps)
    )
    if np.ptp(distance) > 1 and not gaps:
        return ""
    return f", every {usual:,} steps"


def regular(optimization: Optimization, found: Slow) -> Slow:
    """The slow steps that come at one distance, where these are nearly all of the excess and hardly one is left out.

    None of them if they do not, or if validation ran in most of them: what belongs to it is no step of its own kind.
    A model that is asked in nearly every step acts there (reinforcement learning), and explains no slow one.
    """
    numbers = timing.numbers(optimization)[found.rows].astype(int)
    none = Slow(found.rows[:0], found.excess[:0], found.typical, 0.0)
    if len(numbers) < _FEWEST_REGULAR:
        return none
    distance = int(np.median(np.diff(numbers)))
    if distance < 2:  # They follow each other: one slow stretch.
        return none
    phases, counts = np.unique(numbers % distance, return_counts=True)
    off = np.abs(numbers % distance - phases[np.argmax(counts)])
    # One step early or late: the loop may count otherwise than the optimizer.
    chosen = np.minimum(off, distance - off) <= 1
    here = numbers[chosen]
    expected = (here[-1] - here[0]) // distance + 1
    cost = float(found.excess[chosen].sum())
    rows = found.rows[chosen]
    times = optimization.steps
    evaluated = validation.seconds_within_steps(optimization.process, times["time"], times["seconds"]) > 0
    validated = evaluated[rows].mean() > 1 - ON_TIME and evaluated.mean() < ON_TIME
    if len(here) < max(_FEWEST_REGULAR, ON_TIME * expected) or cost < ON_TIME * float(found.excess.sum()) or validated:
        return none
    return Slow(rows, found.excess[chosen], found.typical, found.lost * cost / float(found.excess.sum()))


def coincidence(optimization: Optimization, found: Slow) -> Reason:
    """The measured cause that explains most of the excess, else what the program was seen doing meanwhile."""
    reasons = [
        _waiting(optimization, found),
        _larger(optimization, found),
        *_longer(optimization, found),
        *_saving(optimization, found),
        _recording(optimization, found),
    ]
    if not len(regular(optimization, found).rows):  # Other programs do not come every n-th step.
        reasons.append(_crowded(optimization, found))
    best = max(reasons, key=lambda reason: reason.share)
    if best.share >= EXPLAINED:
        return best
    alone, looks = _only_seen_there(optimization, found)
    sentence = NOTHING
    if alone is not None:
        sentence = f"The program was seen in line {alone.line} in {plural(looks, 'sample')} of these steps, and in "
        sentence += "none of the others."
    beside = beside_evaluations(optimization, found) if alone is None else ""
    fix = "checkpoints, logging, garbage collection, another program, a disk."
    return _seen(optimization, found) or Reason(
        UNKNOWN,
        0.0,
        beside or sentence,
        f"Look at what runs in these steps only: {'metrics, plots, reports, ' if beside else ''}{fix}",
        alone,
    )


def beside_evaluations(optimization: Optimization, found: Slow) -> str:
    """A sentence about evaluations in nearly all of the slow steps, and in few others; empty where there are none."""
    times = optimization.steps
    evaluated = validation.seconds_within_steps(optimization.process, times["time"], times["seconds"]) > 0
    within = int(evaluated[found.rows].sum())
    if within < ON_TIME * len(found.rows) or not len(found.rows) or evaluated.mean() >= 1 - ON_TIME:
        return ""
    of = "each" if within == len(found.rows) else f"{within} of the {len(found.rows)}"
    return (
        f"The model was evaluated in {of} of them. The time of its calls is left out here: what the script does beside "
        "them takes this long."
    )


def _waiting(optimization: Optimization, found: Slow) -> Reason:
    share = _part(optimization.steps["loader_wait"], found)
    return Reason(
        WAITING,
        share,
        f"{percent(share)} of that was waiting for a batch.",
        "Find the samples that take so long to load, or the disk they come from; let workers fetch further ahead.",
        optimization.process.location("loader"),
    )


def _larger(optimization: Optimization, found: Slow) -> Reason:
    sizes = optimization.steps["batch_size"]
    known = np.isfinite(sizes)
    usual = statistics.median(sizes[known]) if known.any() else np.inf
    large = sizes[found.rows] > _LARGER * usual
    share = float(found.excess[large].sum() / max(float(found.excess.sum()), 1e-9))
    return Reason(
        "a larger batch",
        share,
        f"In {int(large.sum())} of them the batch was larger than usual ({usual:,.0f}).",
        "Nothing, if batches are meant to vary; else look at what makes these larger.",
    )


def _longer(optimization: Optimization, found: Slow) -> list[Reason]:
    one = longer_batches.of(optimization, found.rows.tolist(), found.excess)
    if one is None:
        return []
    of = f"all {one.looked}" if one.longer == one.looked else f"{one.longer} of the {one.looked}"
    reason = Reason(
        "a longer batch",
        one.share,
        f"In {of} slow steps that were looked at, the batch was longer: {one.shape}, usually {one.usual}.",
        "If batches are padded to their longest sample, limit the length that the model is given, or put samples of "
        "similar length together.",
        one.place,
    )
    return [reason]


def _saving(optimization: Optimization, found: Slow) -> list[Reason]:
    one = saves.of(optimization, found.rows, found.excess, found.typical)
    if one is None:
        return []
    seen, _ = _only_seen_there(optimization, found)
    place = seen if seen and one.place and seen.file_function == one.place.file_function else one.place
    who = f"Line {one.place.line}" if one.place else "The program"
    of = f"all {one.looked}" if one.saved == one.looked else f"{one.saved} of the {one.looked}"
    packed = compressed.of(optimization.process, one.place)
    usual = int(np.median(np.diff(found.rows))) if len(found.rows) > 1 else 0
    often = save_periods.line(optimization.process, one.place, usual)
    reason = Reason(
        "saving a checkpoint",
        one.share,
        f"{who} wrote a file of weights in {of} of them that were looked at"
        + (", and in no other step" if one.alone else "")
        + f". That takes {duration(one.excess)} each time, with what goes along.",
        packed.fix
        if packed
        else f"Save less often{f' (line {often.line})' if often else ''}, or in the background "
        "(torch.distributed.checkpoint.async_save). Compression, a copy to another disk or an upload that belongs to "
        "it can run in a thread of its own.",
        packed.place if packed else often or place,
    )
    return [reason]


def _recording(optimization: Optimization, found: Slow) -> Reason:
    share = _part(optimization.steps["overhead"], found)
    return Reason(
        RECORDING,
        share,
        f"{percent(share)} of that was tracelyze's own recording.",
        "Record less: see tracelyze collect --help for what can be turned off.",
    )


def _crowded(optimization: Optimization, found: Slow) -> Reason:
    """What others took of the slow steps beyond their usual part: a long step meets them longer, and is not long
    because of them."""
    ends, took = optimization.steps["time"][found.rows], found.excess + found.typical
    lost = np.minimum(contention.within(optimization.process, ends - took, ends), took)
    own = np.maximum((took - lost) / (1.0 - _usually_lost(optimization, found, float(lost.sum()))), found.typical)
    share = float(min(1.0, np.maximum(took - own, 0.0).sum() / max(float(found.excess.sum()), 1e-9)))
    return Reason(
        CROWDED,
        share,
        f"For {percent(share)} of that the training was ready to run and other programs held the processors.",
        "Look at what else runs on this machine, or give the training processors of its own.",
    )


def held_by_others(optimization: Optimization, found: Slow) -> float:
    """Share of the time of short slow steps for which others held the processors; 0 of longer ones. It is looked at
    once a second, so that of shorter steps it is not known which of them met the others longer than usual."""
    ends, took = optimization.steps["time"][found.rows], found.excess + found.typical
    if statistics.median(took) >= contention.SHORTEST:
        return 0.0
    lost = np.minimum(contention.within(optimization.process, ends - took, ends), took)
    return float(lost.sum() / max(float(took.sum()), 1e-9))


def _usually_lost(optimization: Optimization, found: Slow, lost: float) -> float:
    """Share of the time of all other steps for which others held the processors."""
    ends, took = optimization.steps["time"], float((found.excess + found.typical).sum())
    first, last = ends[np.isfinite(ends)][[0, -1]]
    elsewhere = float(contention.within(optimization.process, np.array([first]), np.array([last]))[0]) - lost
    return min(max(elsewhere / max(float(last - first) - took, 1e-9), 0.0), _MOST_LOST)


def _inside(optimization: Optimization, found: Slow) -> Mask:
    """The samples of once a second that were taken in the slow steps, shape [samples]."""
    taken, ends = optimization.process.samples["time"], optimization.steps["time"][found.rows]
    place = np.searchsorted(ends - (found.excess + found.typical), taken, side="right") - 1
    return np.asarray((place >= 0) & (taken <= ends[np.maximum(place, 0)]), dtype=bool)


def _only_seen_there(optimization: Optimization, found: Slow) -> tuple[Location | None, int]:
    """The line at which regular slow steps, and no others, were met by samples, and by how many of them."""
    if not len(regular(optimization, found).rows) or not optimization.steps.has("time"):
        return None, 0
    samples, inside = optimization.process.samples, _inside(optimization, found)
    # What runs after the last step may be one of the slow ones, which no step ends any more; so may first steps of
    # epochs, which are not judged.
    ends = optimization.steps["time"]
    step = np.minimum(np.searchsorted(ends, samples["time"]), len(ends) - 1)
    judged = (samples["time"] <= ends[-1]) & ~(optimization.steps["loader_first"][step] == 1)
    sites, other = samples["site"], ~inside & judged
    own = Counter(sites[inside & np.isfinite(sites) & ~np.isin(sites, sites[other])].tolist())
    site, looks = own.most_common(1)[0] if own else (None, 0)
    return optimization.process.site(site), looks


def _seen(optimization: Optimization, found: Slow) -> Reason | None:
    """What the sampler saw the training thread do in the slow steps, where it saw one thing most of the time."""
    process = optimization.process
    samples = process.samples
    if not samples.has("innermost") or not optimization.steps.has("time"):
        return None
    inside = _inside(optimization, found)
    texts = [text for text, hit in zip(samples.text("innermost"), inside, strict=True) if hit and text]
    enough = len(found.rows) / 2  # fewer of steps at one distance: what comes by chance has none
    if len(texts) < (min(enough, _FEWEST_SEEN) if len(regular(optimization, found).rows) else enough) or not texts:
        return None
    text, count = Counter(texts).most_common(1)[0]
    if count < EXPLAINED * len(texts):
        return None
    sites = samples["site"][inside]
    site = statistics.median(sites[np.isfinite(sites)]) if np.isfinite(sites).any() else None
    saving = any(mark in text for mark in _SAVES)
    place = process.site(site)
    return Reason(
        "saving a checkpoint" if saving else text,
        count / len(texts),
        f"In {count} of {len(texts)} samples taken during them the program was in {text}.",
        "Save less often, or in the background (torch.distributed.checkpoint.async_save)."
        if saving
        else compressed.written(process, place)
        or "Look at that function: it runs, or takes long, in these steps only.",
        place,
    )


def _part(values: Floats, found: Slow) -> float:
    """How much of the excess the steps' own excess in `values` makes up."""
    known = np.isfinite(values)
    if not known.any():
        return 0.0
    more = np.nan_to_num(values[found.rows] - statistics.median(values[known]))
    return float(min(1.0, max(0.0, more.sum() / max(float(found.excess.sum()), 1e-9))))
