"""update-spike: the optimizer's own averages make updates many times larger, at gradients of the usual size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.updates.update_spike import emptied_averages, emptied_states
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import listed, number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rules.updates.update_spike.emptied_averages import Emptied


def check(process: Process, limits: Limits) -> Outcome:
    """Averages that were emptied while the count of steps went on, of each optimizer, and the losses behind that."""
    judged = [one for one in process.optimizations if emptied_averages.decays(one) is not None]
    judged = [one for one in judged if emptied_averages.measured(one)]
    if not judged:
        if len(process.tables["updates"]):
            return Skipped("updates were measured, but not with one decay and a count of steps that is not on a device")
        return Skipped("no update of an optimizer like Adam was measured", "not-applicable")
    found = [(one, times) for one in judged if (times := emptied_averages.of(one, limits))]
    harmful = [(one, times) for one, times in found if max(each.harm for each in times) >= limits["harm"]]
    if harmful:
        return [_finding(one, times, limits) for one, times in harmful]
    looks = sum(map(emptied_averages.measured, judged))
    if found:
        return Passed(f"{plural(looks, 'update')}: larger ones behind emptied averages, and no higher loss")
    return Passed(f"{plural(looks, 'update')}, none many times larger behind averages that were emptied")


def _finding(optimization: Optimization, times: list[Emptied], limits: Limits) -> Finding:
    worst = max(times, key=lambda one: one.harm)
    name = emptied_states.name(optimization)
    steps = [one.step for one in times]
    exactly = worst.step == worst.after + 1
    when = f"at step {worst.step:,}" if exactly else f"between its steps {worst.after:,} and {worst.step:,}"
    again = f" Seen {plural(len(times), 'time')}: by steps {listed(steps, most=8)}." if len(times) > 1 else ""
    before, behind = worst.losses or (0.0, 0.0)
    fix, code = emptied_states.remedy(optimization)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"Updates leap to {number(worst.times)} times their size: {name}'s averages are emptied mid-run",
        summary=(
            f"The averages of {name}{timing.name_of(optimization)} were emptied {when}, while its count of steps went "
            f"on ({worst.counted:,.0f}). {name[:1].upper()}{name[1:]} corrects averages that begin at zero only while "
            f"the count is small, so its updates became {number(worst.times)} times as large as usual, with gradients "
            f"{number(worst.gradient)} times as large. The median loss went from {number(before)} to {number(behind)}. "
            f"The root of the average of squared gradients fell to {percent(worst.fell)} in "
            f"{plural(worst.step - worst.after, 'step')}, which its decay alone cannot do.{again}"
        ),
        fix=fix,
        fix_code=code,
        first_step=times[0].step,
        last_step=times[-1].step,
        first_second=_second(optimization, times[0].step),
        evidence=[
            Evidence("update over the usual one", worst.times, "times", *limits.against("larger")),
            Evidence("gradient over the usual one, at that step", worst.gradient, "times"),
            Evidence("root of the average of squares, over that before", worst.fell),
            Evidence("steps that the optimizer had counted", worst.counted, "steps"),
            Evidence("loss behind it over the loss before", worst.harm, "times", *limits.against("harm")),
        ],
        location=emptied_states.place(optimization) or optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization, [Mark(float(step), "averages emptied") for step in steps[:8]]),
        false_alarm="Warm restarts on purpose that do without the correction.",
    )


def _second(optimization: Optimization, step: int) -> float | None:
    rows = (timing.numbers(optimization) == step).nonzero()[0]
    return timing.second_at(optimization, int(rows[0])) if len(rows) else None


RULE = Rule(
    id="update-spike",
    family="gradients",
    severity="warning",
    title="Updates leap although gradients do not",
    about="Adam divides by averages of squared gradients. If these are emptied, and not its count of steps, updates "
    "are many times too large.",
    check=check,
    verify="Record the run again: updates stay near their usual size, and the loss does not leap.",
    absent="The run has no optimizer like Adam whose updates were measured.",
    excluded=(
        "A bad batch: an average of squares does not fall by what any gradient does to it.",
        "A restart: the optimizer's count of steps went on.",
        "A higher learning rate: sizes are those of updates over the rate.",
    ),
    needs=(("updates.second",),),
    thresholds=(
        Threshold(
            "larger",
            3,
            "times",
            "derived: (1 - beta1) / sqrt(1 - beta2) is 3.2 for Adam's usual betas: the first update behind it, over "
            "the rate, whatever the gradient",
        ),
        Threshold("harm", 1.5, "times", "medians of 40 losses of one kind and size differ by less"),
    ),
    not_when="Restarts that begin the count of steps anew, a bad batch, a higher learning rate, larger updates that "
    "no higher loss follows.",
    references=("https://arxiv.org/abs/1412.6980", "https://arxiv.org/abs/2304.13013"),
)
