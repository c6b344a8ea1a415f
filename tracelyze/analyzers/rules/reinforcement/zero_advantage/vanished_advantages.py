"""Why the advantages of a policy are zero: answers that repeat, completions that are alike, rewards that are equal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tracelyze.analyzers.rules.reinforcement.zero_advantage import (
    coarse_rewards,
    equal_rewards,
    own_decoding,
    prompted_rewards,
    repeated_answers,
)
from tracelyze.analyzers.script import script_lines
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.diagnosis import Location

VANISH = " Advantages are differences within a group, or from a baseline: they vanish if all rewards are equal."
DRAW = (
    "Draw the completions: generate(..., do_sample=True). Without it generate() decodes greedily, whatever its "
    "temperature is. If it samples already, raise the temperature, or hold the policy back (entropy, KL)."
)
DRAW_CODE = "completions = model.generate(prompts, do_sample=True, temperature=1.0)"
PRINT = (
    "Print the rewards of a few groups, and the completions. If those of a group are all the same: draw them, at a "
    "temperature above 0. If all rewards are equal: look at the reward function; if prompts are all too easy or too "
    "hard, choose others, draw more completions per prompt, or reward a part of the task."
)
SPREAD = "print(rewards.view(-1, group).std(dim=1))   # zero: nothing to learn from that group"
_BATCHES = 3  # looks at batches of completions: one may repeat its rows by chance, where the policy is all but certain


class Cause(NamedTuple):
    """What made the advantages vanish, as far as it shows. `why`: sentences that begin with a space."""

    why: str
    fix: str
    code: str
    place: Location | None  # the line to change


def cause(process: Process, steps: Floats, zero: Any, seen: Location | None) -> Cause:
    """Why the weights were zero at the `zero` ones of these steps. `seen`: the line of the policy's backward pass."""
    computed = script_lines.only(process, "advantage")
    if zero.all() and (repeated := repeated_answers.of(process)) is not None:
        return Cause(VANISH + repeated.why, repeated.fix, repeated.code, repeated.place or computed)
    if times := _completions_alike(process, steps[zero]):
        alike = (
            f" In the batches looked at each row stands {times} times over, or more: all completions of a prompt are "
            "one and the same. Greedy decoding makes them so, or a policy that has become certain."
        )
        writes = _line_that_writes(process)
        own = own_decoding.of(process, computed, writes)
        if own is not None:
            return Cause(VANISH + alike, own.fix, own.code, own.place or computed)
        return Cause(VANISH + alike, DRAW, DRAW_CODE, writes or computed)
    equal = equal_rewards.at(process, steps[zero])
    rewards = None if computed else coarse_rewards.within(process, script_lines.rewarding(process, seen))
    joins = prompted_rewards.joining(process, rewards)
    fix, code = _remedy(process, equal, rewards)
    if joins is not None:
        fix = (
            "Print the rewards of a few groups. If all are equal, see whether the prompts themselves hold what is "
            f"rewarded: line {joins.line} joins them with the completions. Then look at the completions alone."
        )
    return Cause(_equal_to(equal) + VANISH, fix, code, (equal.place if equal else None) or computed or joins or rewards)


def _equal_to(equal: equal_rewards.EqualRewards | None) -> str:
    if equal is None:
        return ""
    value = number(equal.value)
    return f" The rewards are all equal: every element of {equal.name} is {value}, whatever was answered."


def _remedy(process: Process, equal: equal_rewards.EqualRewards | None, rewards: Location | None) -> tuple[str, str]:
    """What to do about rewards that are equal, or may be, and an example. `rewards`: the line that computes them."""
    if (rounded := coarse_rewards.remedy(process, equal.place if equal else rewards)) is not None:
        return rounded
    if equal:
        compared = equal_rewards.example(process, equal.place)
        what = f"line {equal.place.line} compares" if compared and equal.place else f"gives {equal.name}"
        fix = (
            f"Look at what {what}: everything gets {number(equal.value)}. If it is right, the prompts are all too easy "
            "or too hard: choose others, or reward a part of the task."
        )
        return fix, compared or SPREAD
    if rewards:
        return PRINT, f"print(rewards[:8])  # in {rewards.function}, above its return: are they all equal?"
    return PRINT, SPREAD


def _completions_alike(process: Process, steps: Floats) -> int:
    """How often each row of ids stands in the batches of these steps, at least, if always several times; else 0.

    Only of models that wrote these rows: at such a step it was given shorter ones without gradients, the prompts. Of a
    policy that is given states, a row that comes again says nothing of what was done there.
    """
    widths: dict[tuple[int, str], int] = {}
    trained: list[dict[str, Any]] = []
    for row in process.tables["batches"].records():
        if row["step"] in steps and "int" in str(row["dtype"]) and row["prints"] and "-" not in row["prints"].split():
            width = int(str(row["shape"]).rpartition("x")[2])
            if row["trained"]:
                trained.append(row | {"width": width})
            else:
                key = row["step"], str(row["field"])
                widths[key] = min(width, widths.get(key, width))
    written = [row for row in trained if widths.get((row["step"], str(row["field"])), row["width"]) < row["width"]]
    met = [Counter(row["prints"].split()) for row in written]
    counts = [min(one.values()) for one in met if len(one) > 1]
    lone = [one for one in met if len(one) == 1]  # few rows were compared: all of one prompt, or of a mask
    if len({key for one in lone for key in one}) == len(lone):  # a mask, or the like, is the same in each batch
        counts += [min(one.values()) for one in lone]
    return min(counts) if len(counts) >= _BATCHES and min(counts) > 1 else 0


def _line_that_writes(process: Process) -> Location | None:
    """The only line that calls generate() in a function that measures nothing."""
    measures = process.functions("measured")
    lines = [one for one in process.locations("forward") if ".generate(" in one.source]
    lines = [one for one in lines if one.file_function not in measures]
    return lines[0] if len(lines) == 1 else None
