"""learning-rate-too-high: the loss blew up from the first steps, or when the rate was raised beyond what was stable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.optimization import rates, style
from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.updates.learning_rate_too_high import lower_rates
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.optimization.rates import TooHigh
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Loss against learning rate, of the only optimizer."""
    optimization = process.optimizations[0]
    if reason := style.unjudgeable(optimization):
        return Skipped(reason)
    seen = rates.curve(optimization)
    if len(seen.loss) < rates.FEWEST_LOSSES:
        return Skipped(f"{plural(len(seen.loss), 'finite loss')} with a known learning rate: too few to judge")
    found = rates.from_the_start(optimization, seen, limits) or rates.raised(optimization, seen, limits)
    found = found or rates.stuck(optimization, seen, limits) or rates.overwritten(optimization, seen, limits)
    if found is None:
        return Passed("the loss did not blow up, nor stay at its start after updates as large as the weights")
    return [_finding(optimization, found, limits)]


def _finding(optimization: Optimization, found: TooHigh, limits: Limits) -> Finding:
    begin, raised = timing.step_at(optimization, found.first), timing.step_at(optimization, found.raised)
    marks = [Mark(float(raised), "rate raised" if found.stable else "training begins")]
    title, summary = _words(found, optimization.facts.get("name") or "the optimizer", raised)
    remedy = lower_rates.remedy(optimization, found)
    return Finding(
        rule=RULE.id,
        severity="warning" if found.partly or found.astray or found.climbs else "critical",
        confidence="possible" if found.partly else "likely",
        title=title,
        summary=summary,
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=begin, last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, found.first),
        evidence=[
            Evidence("highest learning rate", found.rate, "", limits["raised"] * found.stable if found.stable else None,
                     limits.source("raised") if found.stable else ""),
            *([Evidence("rate while the loss fell", found.stable)] if found.stable else []),
            *([Evidence("update per weight, median over tensors", found.update, "",
                        *limits.against("update"))] if found.update is not None else []),
            Evidence("highest loss", found.highest), Evidence("lowest loss", found.lowest),
        ],
        cost=None if found.partly else timing.cost_of(optimization, found.suffered(len(optimization.steps))),
        diff=remedy.diff,
        setting=schedulers.setting_of_rate(optimization, found.stable or found.lower),
        location=remedy.place or schedulers.rate_location(optimization, found.stable is not None),
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization, marks) + pictures.grad_norm(optimization, marks),
        false_alarm="A learning-rate finder, which is meant to end like this.",
    )  # fmt: skip


def _words(found: TooHigh, optimizer: str, raised: int) -> tuple[str, str]:
    """Title and summary, by the form in which the rate was too high."""
    rate, update = number(found.rate), number(found.update or 0.0)
    title = f"The learning rate of {optimizer}, {rate}, is too high: "
    first = f"The first updates changed the weights by up to {update} times their own size"
    overshoots = "a step that overshoots the valley lands higher on the other side"
    if found.stable:
        how = "rises while the warm-up goes on" if found.climbs else "blew up when it was raised"
        return f"A learning rate of {rate} is too high: the loss {how}", (
            f"Up to a rate of {number(found.stable)} the loss fell, to {number(found.lowest)}. From step {raised} on "
            f"the rate was higher, up to {rate}, and the loss rose to {number(found.highest)}: {overshoots}."
        )
    if found.constant:
        return f"{title}the model ends with one answer for all", (
            f"{first}, which leaves nothing of the initial weights. The loss then settled and stayed there: "
            "predictions hardly differ from sample to sample, as with dead or saturated units, and never recover."
        )
    if found.partly:
        return f"{title}the loss stays at {percent(found.partly)} of its start", (
            f"{first}, and the loss went up to {number(found.highest)}: little is left of the weights as they were "
            f"drawn. In the last quarter of the run it is at {percent(found.partly)} of its start. A lower rate may "
            "reach further; a loss that cannot get lower looks the same."
        )
    if found.astray:
        return f"{title}the loss rose to {number(found.highest)} before it fell", (
            f"{first}: little is left of them as they were drawn. For {plural(len(found.astray), 'step')} the loss was "
            "above twice that of the first step. Such weights often train worse to the end, too."
        )
    if found.stuck:
        where, lower = "stays near its start", "hardly"
        if found.above:
            where, lower = "did not stay clearly below its start", "not clearly"
        return f"{title}the loss {where}", (
            f"{first}. The loss went up to {number(found.highest)}, and in the second half of the run it is {lower} "
            "lower than at the first step. Such a step throws the weights out of the region where the model can "
            "train; what follows, dead or saturated units and one answer to everything, seldom recovers."
        )
    when = "grew from the first step" if found.at_once else "blew up before it had settled"
    seen = "each step made it a hundred times larger or more"
    if found.update is not None:
        seen = f"an update changed the weights by {update} times their own size"
    return f"A learning rate of {rate} is too high for {optimizer}: the loss {when}", (
        f"The loss went from {number(found.lowest)} to {number(found.highest)} without ever having settled, and {seen}"
        f". Nothing was learned: {overshoots}, and each one lands higher still."
    )


RULE = Rule(
    id="learning-rate-too-high",
    family="loss",
    severity="critical",
    title="The learning rate is too high",
    about="Gradient descent is stable up to a rate of two over the curvature, and diverges geometrically beyond it.",
    check=check,
    settings=("learning_rate",),
    verify="Record the run again: the loss falls from the first steps on.",
    absent="The run has no learning rate.",
    needs=(("steps.loss", "steps.lr"),),
    thresholds=(
        Threshold("blow_up", 100, "", "a bad start loses a factor of 2 to 5 in its first steps, not of 100"),
        Threshold("early", 100, "steps", "what blows up later had a time in which it was stable"),
        Threshold("steep", 2, "steps", "in a row that each multiply the loss by blow_up: no batch does that twice"),
        Threshold("rises", 0.8, "share", "of the steps until then; of noise half rise, with 3 steps an eighth all do"),
        Threshold("update", 0.1, "", "a hundred times the usual 1e-3; sound trainings stay below after step 10"),
        Threshold("looks", 2, "measurements", "the very first update of a layer that begins at zero is large as well"),
        Threshold("regained", 0.95, "share", "of the first loss: a model that learns anything is below it in the end"),
        Threshold("large", 0.2, "", "two first updates of a fifth of the weights leave nothing of the initialisation"),
        Threshold("grown", 5, "", "times the weights as drawn: four fifths of them then came from the updates"),
        Threshold("hardly", 0.85, "share", "of the first loss: a guess is 5 to 15% better than weights as drawn"),
        Threshold("rose", 1.01, "", "times its lowest before: weights that are thrown away make the loss rise"),
        Threshold("burst", 10, "", "times the first loss: twice what a bad start loses in its first steps"),
        Threshold("ever", 0.6, "share", "of the first loss: what was below it had begun to learn, and lost it again"),
        Threshold("doubled", 2, "", "times its start and its later peaks: a burst of the first 8 steps, not noise"),
        Threshold("outgrown", 3, "", "times the weights as drawn: two thirds of them then came from the updates"),
        Threshold("astray", 0.1, "share", "of the steps: a tenth of the training that only leads back to its start"),
        Threshold("half", 0.5, "share", "of the first loss: half is gone where something is learned"),
        Threshold("raised", 2.0, "", "derived: the limit of stability is sharp, curvature itself drifts by less"),
        Threshold("ended", 10, "", "of the smoothed minimum in the last two losses; noise seldom reaches twice that"),
        Threshold("outrun", 10, "times", "derived: five times the limit of stability as `raised` sees it"),
        Threshold("risen", 2, "times", "of the smoothed minimum, for a quarter of the run: noise does not stay there"),
    ),
    not_when="Several optimizers, acting models, losses below zero, a loss that is lost without having risen before.",
    references=("https://arxiv.org/abs/2103.00065",),
)
