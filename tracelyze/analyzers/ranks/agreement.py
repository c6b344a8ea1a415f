"""In what the ranks of one job agree, which of them are different, and since when: a table, not a judgement.

Each rank is portrayed by itself, in its summary; the table is made of these portraits and of what rules gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from tracelyze.analyzers.computed.ranks import settings, weights
from tracelyze.analyzers.computed.ranks.weights import Sums
from tracelyze.diagnosis import Agreement
from tracelyze.formatting import listed, percent, plural, shortened

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

EQUAL: Final = 1e-6  # share: ranks that apply the same gradients agree bit for bit; float32 has 1e-7
CLIPPED_APART: Final = 0.01  # share: rounding moves a norm by 1e-6, half precision by 1e-3
OFTEN: Final = 0.5  # of the steps: most of them
SAME_BATCHES: Final = 0.9  # of the batches that are compared
LEAST: Final = 4  # steps or batches that are compared at least
UNEVEN: Final = 0.1  # share: samples of a tenth smaller batch weigh a tenth more
REGULAR: Final = 0.5  # of the batches have the usual size, or sizes vary on purpose
MOST_KINDS: Final = 16  # different values that are listed one by one
MOST_SHOWN: Final = 4  # of them that are named
State = Literal["agree", "odd", "own"]
SOFTWARE: Final = ("python", "torch", "cuda", "device", "world_size")


@dataclass(frozen=True)
class Portrait:
    """What is compared of one rank: the settings of its optimizers, by name, and sums of its gradients at a few
    steps."""

    settings: Mapping[str, str]
    gradients: Mapping[int, Sums]


@dataclass(frozen=True)
class RankFacts:
    """What is known of one rank. `gathered`: by rule, what those that compare ranks took from it."""

    rank: int
    gathered: Mapping[str, Any]
    environment: Mapping[str, str]
    portrait: Portrait


def portrait_of(process: Process) -> Portrait | None:
    """None for the only rank of a run, for further threads, and where nothing trained."""
    if process.facts.get("world_size") == 1 or process.thread != 1 or not len(process.steps):
        return None
    held: dict[str, str] = {}
    for row in list(process.optimizers.records())[:MOST_KINDS]:
        options = settings.options_of(row)
        known = {"class": row["name"], "tensors": row["parameters"], "elements": row["elements"]}
        held |= {
            f"{row['optimizer']} {name}": f"{value}" for name, value in (known | options).items() if value is not None
        }
    gradients = weights.sums_of_gradients(process) if len(process.optimizations) == 1 else {}
    return Portrait(held, gradients)


def of(by_rank: Sequence[RankFacts]) -> list[Agreement]:
    """The table; empty where fewer than two ranks trained."""
    ranks = {one.rank: one for one in by_rank}
    if len(ranks) < 2:
        return []
    gathered = {
        name: {rank: one.gathered[name] for rank, one in ranks.items() if name in one.gathered}
        for name in (
            "ranks-out-of-sync",
            "clip-differs-by-rank",
            "same-data-on-every-rank",
            "uneven-batches",
        )
    }
    held = _weights(gathered["ranks-out-of-sync"], len(ranks))
    state = held.state if held else None
    rows = [
        held,
        _gradients(
            {rank: one.portrait.gradients for rank, one in ranks.items()},
            state,
            len({one.length for one in gathered["uneven-batches"].values()}) > 1,
        ),
        _clips({rank: one.by_step for rank, one in gathered["clip-differs-by-rank"].items()}, len(ranks), state),
        _data(gathered["same-data-on-every-rank"], gathered["uneven-batches"], len(ranks)),
        *_batches(gathered["uneven-batches"], len(ranks)),
        _settings({rank: one.portrait.settings for rank, one in ranks.items()}, state),
        _software({rank: one.environment for rank, one in ranks.items()}),
    ]
    return [row for row in rows if row is not None]


def _kinds(ranks: Sequence[int], alike: Callable[[int, int], bool]) -> list[list[int]]:
    """The ranks in groups that are alike, the largest first; at the end all that are in none of the first groups."""
    kinds: list[list[int]] = []
    others: list[int] = []
    for rank in ranks:
        known = next((kind for kind in kinds if alike(kind[0], rank)), None)
        if known is not None:
            known.append(rank)
        elif len(kinds) < MOST_KINDS:
            kinds.append([rank])
        else:
            others.append(rank)
    return sorted(kinds, key=len, reverse=True) + ([others] if others else [])


def _unlike(kinds: list[list[int]]) -> list[int]:
    """The ranks outside of the majority; all of them without one."""
    most = all(len(kind) < len(kinds[0]) for kind in kinds[1:])
    return sorted(rank for kind in kinds[1 if most else 0 :] for rank in kind) if len(kinds) > 1 else []


def _by_step(sums: Mapping[int, Mapping[int, Sums]]) -> dict[int, list[list[int]]]:
    """For each step that all ranks looked at, the ranks in groups with the same sums."""
    ranks = sorted(sums)
    common = sorted(set.intersection(*(set(one) for one in sums.values())))
    return {
        step: _kinds(ranks, lambda a, b, at=step: weights.apart(sums[a][at], sums[b][at]) <= EQUAL)  # type: ignore[misc]
        for step in common
    }


def _weights(sums: Mapping[int, Mapping[int, Sums]], count: int) -> Agreement | None:
    if len(sums) < count:
        return None
    kinds = _by_step(sums)
    if not kinds:
        return None
    name, rule, steps = "Weights", "ranks-out-of-sync", list(kinds)
    first, last = steps[0], steps[-1]
    seen = f"norms of the tensors at {plural(len(steps), 'step')}, {first:,} to {last:,}"
    if len(kinds[first]) > 1:
        return Agreement(name, "own", f"{seen}: they differ from the first on, as parts of one model do", rule=rule)
    if len(kinds[last]) == 1:
        apart = [step for step in steps if len(kinds[step]) > 1]
        between = f", and differ in between, first at step {apart[0]:,}: averaged now and then" if apart else ""
        return Agreement(name, "own" if apart else "agree", f"{seen}: they are equal{between}", rule=rule)
    since = next(step for place, step in enumerate(steps) if all(len(kinds[one]) > 1 for one in steps[place:]))
    said = f"{seen}: equal at step {first:,}, and no longer from step {since:,} on"
    return Agreement(name, "odd", said, _unlike(kinds[last]), since, rule)


def _gradients(sums: Mapping[int, Mapping[int, Sums]], held: str | None, uneven: bool) -> Agreement | None:
    """Gradients that differ are odd where the weights part as well; else they are averaged after the look at them.

    `uneven`: the ranks' epochs have different numbers of batches, so that steps of one number need not be one step.
    """
    if not all(sums.values()):
        return None
    kinds = _by_step(sums)
    apart = [step for step, groups in kinds.items() if len(groups) > 1]
    if not kinds:
        return None
    seen = f"norms of the tensors at {plural(len(kinds), 'step')}"
    if not apart:
        return Agreement("Gradients", "agree", f"{seen}: they are equal when the optimizer takes them")
    if held != "odd":
        return Agreement("Gradients", "own", f"{seen}: each rank has its own when the optimizer takes them")
    why = "and the ranks' epochs are not equally long" if uneven else "so not all of them are averaged"
    said = f"{seen}: they differ when the optimizer takes them, {why}"
    return Agreement("Gradients", "odd", said, _unlike(kinds[apart[0]]), apart[0])


def _clips(
    steps: Mapping[int, Mapping[int, tuple[float, float, float]]], count: int, held: str | None
) -> Agreement | None:
    """Norms that the clips returned, and what they were held against."""
    if len(steps) < count or not all(steps.values()):
        return None
    common = sorted(set.intersection(*(set(one) for one in steps.values())))
    if len(common) < LEAST:
        return None
    ranks = sorted(steps)
    clips = np.array([[steps[rank][step] for step in common] for rank in ranks])  # rank, step, (loss, norm, limit)
    factor = np.minimum(1.0, clips[:, :, 2] / np.maximum(clips[:, :, 1], 1e-30))
    usual = np.median(factor, axis=0) if len(ranks) > 2 else factor[0]
    apart = np.abs(factor / usual - 1) > CLIPPED_APART
    odd = [rank for rank, often in zip(ranks, apart.mean(axis=1), strict=True) if often >= OFTEN]
    name, rule, seen = "Clipping", "clip-differs-by-rank", f"what {plural(len(common), 'clip')} multiplied gradients by"
    if not odd:
        return Agreement(name, "agree", f"{seen}: the same on all ranks", rule=rule)
    one_loss = bool((np.ptp(clips[:, :, 0], axis=0) <= EQUAL * 100 * np.abs(clips[0, :, 0])).mean() >= SAME_BATCHES)
    since = common[int(np.flatnonzero(apart.any(axis=0))[0])]
    most = float(np.median(np.abs(factor / usual - 1)[apart]))
    state: State = "odd" if one_loss or held in ("agree", "odd") else "own"
    return Agreement(
        name, state, f"{seen}: {percent(most)} apart in the middle", odd if len(ranks) > 2 else ranks, since, rule
    )


def _data(passes: Mapping[int, Any], batches: Mapping[int, Any], count: int) -> Agreement | None:
    """Batches at the same places of the same passes, against those of the lowest rank."""
    if len(passes) < count:
        return None
    first, *others = sorted(passes)
    own = {(one.loader, one.epoch): one for one in passes[first] if one.distinctive >= LEAST}
    same: list[int] = []
    compared, later = 0, True  # whether passes after the first are the same as well
    for rank in others:
        pairs = [(own[key], one) for one in passes[rank] if (key := (one.loader, one.epoch)) in own]
        places = sum(len(one.common(other)) for one, other in pairs)
        if places < LEAST:
            return None
        equal = sum(one.agreement(other) * len(one.common(other)) for one, other in pairs) / places
        compared = max(compared, places)
        one, other = min(pairs, key=lambda pair: pair[0].step)  # the orders may part later, and divide nothing
        if equal >= SAME_BATCHES or (len(one.common(other)) >= LEAST and one.agreement(other) >= SAME_BATCHES):
            same.append(rank)
            later &= equal >= SAME_BATCHES
    rule, seen = "same-data-on-every-rank", f"up to {plural(compared, 'batch', 'batches')} at the same places"
    if not same:
        return Agreement("Samples", "agree", f"{seen}: each rank has its own", rule=rule)
    wrapped = all(rank in batches and batches[rank].wrapped for rank in passes)
    first_only = "" if later else " in the first pass, and not in all that followed"
    most = "up to " * (len(others) > 1)
    said = f"the same batches{first_only}, at {most}{plural(compared, 'place')} of all passes that were compared"
    return Agreement("Samples", "odd" if wrapped else "own", said, [first, *same], rule=rule)


def _batches(by_rank: Mapping[int, Any], count: int) -> list[Agreement]:
    """Sizes of batches, their number in an epoch, and steps of ranks that came to their end."""
    if len(by_rank) < count:
        return []
    wrapped = all(one.wrapped for one in by_rank.values())
    regular = min(one.share for one in by_rank.values()) >= REGULAR
    sizes = {rank: one.usual if regular else one.mean for rank, one in by_rank.items()}
    lengths = {rank: one.length for rank, one in by_rank.items() if one.length}
    steps = {rank: one.steps for rank, one in by_rank.items()}
    rows = [
        _numbers(
            "Samples per batch" if regular else "Samples per batch, mean", sizes, 0 if regular else UNEVEN, wrapped
        )
    ]
    if len(lengths) == count:
        rows.append(_numbers("Batches per epoch", lengths, 0, wrapped))
    rows.append(_numbers("Steps", steps, 0, wrapped and all(one.ended for one in by_rank.values())))
    return rows


def _numbers(name: str, values: Mapping[int, float], tolerance: float, judged: bool) -> Agreement:
    kinds = _kinds(sorted(values), lambda a, b: abs(values[a] - values[b]) <= tolerance * abs(values[a]))
    state: State = "agree" if len(kinds) == 1 else "odd" if judged else "own"
    return Agreement(
        name, state, _shown(kinds, lambda rank: f"{values[rank]:,.4g}"), _unlike(kinds), rule="uneven-batches"
    )


def _settings(by_rank: Mapping[int, Mapping[str, str]], held: str | None) -> Agreement | None:
    """Class, size and options of the optimizers. Ranks that hold parts of a model differ in size."""
    names = sorted({name for one in by_rank.values() for name in one})
    if not names:
        return None
    several = len({name.partition(" ")[0] for name in names}) > 1
    return _of_names("Optimizer", names, by_rank, "own" if held == "own" else "odd", "" if several else "0 ")


def _software(by_rank: Mapping[int, Mapping[str, str]]) -> Agreement | None:
    names = [name for name in SOFTWARE if any(name in one for one in by_rank.values())]
    return _of_names("Software and device", names, by_rank, "odd", "") if names else None


def _of_names(
    name: str, names: Sequence[str], by_rank: Mapping[int, Mapping[str, str]], state: Any, prefix: str
) -> Agreement:
    """One row for several named values: those that differ, or all where none does."""
    ranks = sorted(by_rank)
    differing: list[str] = []
    unlike: set[int] = set()
    for one in names:
        values = {rank: settings.value_in(by_rank[rank], one) for rank in ranks}
        kinds = _kinds(ranks, lambda a, b, of=values: of[a] == of[b])  # type: ignore[misc]
        if len(kinds) > 1:
            differing.append(f"{one.removeprefix(prefix)} {_shown(kinds, values.__getitem__)}")
            unlike.update(_unlike(kinds))
    if not differing:
        said = ", ".join(f"{one.removeprefix(prefix)} {by_rank[ranks[0]].get(one, 'none')}" for one in names)
        return Agreement(name, "agree", shortened(said, 200))
    return Agreement(name, state, "; ".join(differing[:MOST_SHOWN]), sorted(unlike))


def _shown(kinds: list[list[int]], value: Callable[[int], Hashable]) -> str:
    """The values, and which ranks have which."""
    if len(kinds) == 1:
        return f"{value(kinds[0][0])}"
    shown = [
        f"{value(kind[0])} on rank{'s' if len(kind) > 1 else ''} {listed(sorted(kind), 4)}"
        for kind in kinds[:MOST_SHOWN]
    ]
    return "; ".join(shown) + ("; ..." if len(kinds) > MOST_SHOWN else "")
