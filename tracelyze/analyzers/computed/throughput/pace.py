"""The time that a training's steps take of their own, and where it goes late in the run."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.computed import hooks_added
from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.computed.throughput import contention, outliers, workload
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing.storing import metrics_in_steps
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats, Mask
    from tracelyze.diagnosis import Location

FIX: Final = "Look for code that goes over everything so far: a growing list, tensor or cache; hooks added every step."
FIX_CODE: Final = "total += loss.item()\ncount += 1\nmean = total / count  # instead of the mean over a list that grows"
LOADER_FIX: Final = "Look for a dataset that reads or skips everything before the requested sample, or grows a list."
ACTING_FIX: Final = (
    "Look for code that goes over everything so far: a replay buffer of which all is copied before samples are picked, "
    "or another list, tensor or cache that grows."
)
ACTING_CODE: Final = """picked = random.sample(range(len(memory)), batch_size)
samples = [memory[index] for index in picked]  # make arrays or tensors of these only"""
_AVERAGES: Final = re.compile(r"\b(?:sum|mean|fmean|average|len)\s*\(")
_FEWEST_STACKS: Final = 3  # one or two stacks may be anywhere
_MOST_LINES: Final = 6
_MODEL: Final = ("torch/nn/", "torch/autograd/", "torch/_tensor.py", "torch/optim/")


def own_seconds(optimization: Optimization, warm_up: int) -> tuple[Floats, Mask]:
    """Seconds of each step without evaluations and recording, and the steps to be judged (`outliers.net_seconds`)."""
    net, judged = outliers.net_seconds(optimization, warm_up)
    return np.maximum(net - np.nan_to_num(optimization.steps["overhead"]), 0.0), judged


def of_acting(optimization: Optimization) -> Floats | None:
    """Seconds of each step from its first call of a model without a backward to the last one, shape [steps], where
    nearly every step has such calls. They are no evaluations then: the model acts, and what lies between is the step's.
    """
    steps = optimization.steps
    asked = validation.seconds_within_steps(optimization.process, steps["time"], steps["seconds"])
    return asked if len(asked) and (asked > 0).mean() >= outliers.ON_TIME else None


def calls_take_longer(optimization: Optimization, seconds: Floats, judged: Mask, more: float, times: float) -> bool:
    """Whether calls between steps are all that grew by `more`, and steps take `times` as long for each of them.

    Rollouts that get longer take as long for each call as before, or less. Most of the time late in the run must be
    spent in one line, outside of modules: of calls that get more to read each time, these are the work.
    """
    work = workload.growth(optimization)
    if workload.EVALUATED not in work or any(work[name] >= more for name in work if name != workload.EVALUATED):
        return False
    model = within_model_late(optimization)
    if model is None or model >= outliers.EXPLAINED or seen_late(optimization) is None:
        return False
    calls = 1 + validation.forwards_within_steps(optimization.process, optimization.steps["time"])
    return times_longer(seconds / calls, judged) >= times


class Reason(NamedTuple):
    """What makes steps slower, in words, with what to do about it and where; `seen_at` where that shows elsewhere.

    `waited`: the part of the increase that is waiting for a batch.
    """

    waited: float
    why: str
    fix: str
    code: str
    place: Location | None
    seen_at: Location | None = None


def reason(optimization: Optimization, waited: float, acting: bool) -> Reason:
    """By what of the increase is waiting for a batch (`waited`), hooks that pile up, or the line that was seen late."""
    if waited >= outliers.EXPLAINED:
        why = f"{percent(min(1.0, waited))} of the increase is waiting for a batch: the loader gets slower."
        return Reason(waited, why, LOADER_FIX, FIX_CODE, optimization.process.location("loader"))
    place, hooks = seen_late(optimization), hooks_added.of(optimization.process)
    if hooks is not None:
        return Reason(waited, hooks.said(), hooks.fix, hooks.code, hooks.place or place, place)
    seen = f" Late in the run the program was mostly in line {place.line}: {place.source}." if place else ""
    if acting:
        why = f"Batches did not grow, and calls of the model grew far less.{seen}"
        return Reason(waited, why, ACTING_FIX, ACTING_CODE, place)
    why, calls = f"Neither batches nor module calls grew.{seen}", _calls_it(optimization, place)
    if place is not None and calls is not None:
        why += f" Line {calls.line} calls that {place.function}() at every step."
    remedy = metrics_in_steps.of(optimization.process, calls or place)
    if remedy is not None or (place is not None and calls is not None):
        fix, code = (remedy.fix, remedy.code) if remedy is not None else (FIX, "")
        return Reason(waited, why, fix, code, calls or place, place if calls is not None else None)
    return Reason(waited, why, FIX, FIX_CODE if place is None or _AVERAGES.search(place.source) else "", place)


def _calls_it(optimization: Optimization, place: Location | None) -> Location | None:
    """The only line beside the backward, at every step then, that calls the function of a line in another one."""
    backward = optimization.backward_location
    if place is None or backward is None or "backward(" not in backward.source or not place.function.isidentifier():
        return None
    if place.function in (backward.function, "forward") or place.function.startswith("__"):
        return None
    lines = recorded_text.of_function(optimization.process, backward)
    depth, call = recorded_text.indent_of(lines.get(backward.line, "")), rf"(?<!def )(?<!\w){place.function}\("
    alike = [at for at, text in lines.items() if recorded_text.indent_of(text) == depth and re.search(call, text)]
    return backward.at(alike[0], lines[alike[0]]) if depth and len(alike) == 1 else None


def crowded(optimization: Optimization) -> Floats:
    """Seconds of each step in which it was ready to run and others had its processor, shape [steps]; 0 where unknown.

    Measurements are a second apart, so that this is right over many steps, and not for each.
    """
    ends = optimization.steps["time"]
    return contention.within(optimization.process, ends - np.nan_to_num(optimization.steps["seconds"]), ends)


def times_longer(values: Floats, judged: Mask) -> float:
    """Median of the last third of the judged steps over that of the first; 1 where that is not above 0, or none is."""
    if not judged.any():
        return 1.0
    third = max(1, int(judged.sum()) // 3)
    first = float(np.median(np.nan_to_num(values[judged])[:third]))
    return (first + increase(values, judged)) / first if first > 0 else 1.0


def increase(values: Floats, judged: Mask) -> float:
    """Median of the last third of the judged steps less that of the first; unknown values count as 0, as do none."""
    if not judged.any():
        return 0.0
    third = max(1, int(judged.sum()) // 3)
    known = np.nan_to_num(values[judged])
    return float(np.median(known[-third:]) - np.median(known[:third]))


def within_model_late(optimization: Optimization) -> float | None:
    """Share of the measurements in the last third that met the program in a module, a backward or an optimizer; None if
    there are too few such measurements, or the work is done on a device and the program only waits for it."""
    samples, ends = optimization.process.samples, optimization.steps["time"]
    late = samples["time"] >= ends[2 * len(ends) // 3]
    places = [place for place, is_late in zip(samples.text("innermost"), late, strict=True) if is_late and place]
    if len(places) < _FEWEST_STACKS or optimization.process.device != "cpu":
        return None
    return sum(any(part in place for part in _MODEL) for place in places) / len(places)


def seen_late(optimization: Optimization) -> Location | None:
    """The line at which the sampler found the program most often in the last third, if that is most of the time."""
    samples, ends = optimization.process.samples, optimization.steps["time"]
    return _most_seen(optimization, samples["time"] >= ends[2 * len(ends) // 3])


def seen_outside_of_backward(optimization: Optimization) -> tuple[tuple[Location, float], ...]:
    """The lines at which the sampler found the program several times between backwards, with their share of that time,
    the most frequent first."""
    process, backward = optimization.process, optimization.backward_location
    line = None if backward is None else backward.line
    within = [row["site"] for row in process.sites.records() if row["line"] == line]
    sites = process.samples["site"]
    counts = Counter(sites[~np.isin(sites, within) & np.isfinite(sites)].tolist())
    lines: Counter[Location] = Counter()
    for site, count in counts.items():
        if (place := process.site(site)) is not None:
            lines[place] += count
    return tuple((place, count / counts.total()) for place, count in lines.most_common(_MOST_LINES) if count > 1)


def _most_seen(optimization: Optimization, when: Mask) -> Location | None:
    """The line of most of the samples in `when`, shape [samples]; None where no line has most of them, or two."""
    sites = optimization.process.samples["site"]
    counts = Counter(sites[when & np.isfinite(sites)].tolist())
    site, count = counts.most_common(1)[0] if counts else (None, 0)
    return optimization.process.site(site) if count >= max(2, outliers.EXPLAINED * counts.total()) else None
