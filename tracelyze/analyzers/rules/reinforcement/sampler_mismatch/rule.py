"""sampler-mismatch: what samples and the model that trains give the same actions or tokens other probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.policies import acting
from tracelyze.analyzers.evidence.charts import chart
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.reinforcement.sampler_mismatch import lost_loads
from tracelyze.analyzers.signatures import metrics
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_ABSENT = "The run logged no gap under a known name, and no loss with a ratio followed a policy that acted"
_ALIKE = (
    "logits = model(ids)[:, :-1] / temperature   # the one that samples\n"
    "new_log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)"
)
_FOLLOWS = "Updates follow a policy that never acted, and clipping starts off centre."
_CORRECTED = "Weights in the loss correct this only up to their limit, and their noise grows with the gap."
_DROPOUT = "Dropout is active in one of them at least."
_OTHERWISE = "A temperature, a mask or limits of actions that apply in one of them only do that."


def check(process: Process, limits: Limits) -> Outcome:
    """What was logged of a gap; else ratios, detached ones too, that are not 1 at the first backward after acting."""
    logged = _logged(process, limits)
    if isinstance(logged, list):
        return logged
    seen = acting.apart(process, limits)
    found = [_before_updates(process, one, limits) for one in seen if isinstance(one, acting.Apart)]
    if found or isinstance(logged, Passed) or not seen:
        return found or logged
    return min((one for one in seen if not isinstance(one, acting.Apart)), key=lambda one: isinstance(one, Skipped))


def _logged(process: Process, limits: Limits) -> Outcome:
    """A gap of log-probabilities that grows, or importance ratios beyond what clipping allows."""
    gap, ratio = metrics.metric(process, "logp_gap"), metrics.metric(process, "importance")
    seen = gap or ratio
    if seen is None:
        return Skipped(_ABSENT, "not-applicable")
    if gap is not None and len(gap) >= limits["steps"]:
        first, last = gap.ends()
        if last > limits["gap"] and last > limits["growth"] * first:
            over = gap.values > max(limits["gap"], limits["growth"] * first)
            late = Evidence("gap at the end", last, "", limits["growth"] * first, limits.source("growth"))
            return [_finding(process, gap, int(np.argmax(over)), f"grew from {number(first)} to {number(last)}", late)]
    if ratio is not None and len(ratio) >= limits["steps"]:
        later = float(np.median(np.abs(ratio.values[len(ratio) // 2 :] - 1.0)))
        if later > limits["ratio"]:
            at = int(np.argmax(np.abs(ratio.values - 1.0) > limits["ratio"]))
            late = Evidence("distance of the ratio from 1", later, "", *limits.against("ratio"))
            return [_finding(process, ratio, at, f"puts importance ratios {number(later)} away from 1", late)]
    if len(seen) < limits["steps"]:
        return Skipped(f"{plural(len(seen), 'step')}: {limits['steps']:.0f} are needed to see a gap grow")
    return Passed(f"{seen.name} went from {number(seen.ends()[0])} to {number(seen.ends()[1])}")


def _finding(process: Process, seen: metrics.Metric, first: int, what: str, late: Evidence) -> Finding:
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Sampler and trainer disagree: their gap {what}",
        summary=(
            "The log-probabilities that the sampling engine and the trained model give to the same tokens differ; the "
            f"gap {what}. Updates then follow a policy that never acted. Possible causes: weights that reach the "
            "sampler late, quantised or merged adapters, a different attention or softmax precision."
        ),
        fix="Check that weights are synchronised after every step and in the same precision; correct with truncated "
        "importance sampling.",
        fix_code="GRPOConfig(vllm_importance_sampling_correction=True)" if metrics.is_of_trl(process, seen) else "",
        first_step=int(seen.steps[first]),
        last_step=int(seen.steps[-1]),
        evidence=[late, Evidence("column", seen.name)],
        charts=metrics.picture("Sampler against trainer", [seen], [Mark(float(seen.steps[first]), "gap")]),
        false_alarm="Off-policy training on purpose, whose ratios are corrected.",
    )


def _before_updates(process: Process, seen: acting.Apart, limits: Limits) -> Finding:
    middle = float(np.median(seen.distances))
    backward = process.longest.backward_location if process.optimizations else None
    what = f"{percent(middle)} (median of {plural(len(seen.distances), 'look')})"
    copy = lost_loads.of(process, limits["looks"], seen.adapters) if seen.stale else None
    if copy is not None:
        title = f"The copy that acts never takes over the policy's {copy.untaken}: {percent(middle)} apart"
        why = f"A copy of the policy acts, and its weights never change. Before any update it is {what} off.{copy.said}"
        fix, fix_code = copy.fix, copy.code
    else:
        title = f"The trained policy is {percent(middle)} off the one that acted, before any update"
        why = (
            f"Its weights are those that acted, and still the probabilities of its actions are {what} off those that "
            f"were kept when it acted: the two are not computed alike. {_DROPOUT if seen.dropouts else _OTHERWISE}"
        )
        fix = "Compute both probabilities alike: same temperature, masks and limits, no dropout."
        fix_code = "model.eval()   # no dropout, neither where it acts nor where it is trained\n" + _ALIKE
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=title,
        summary=f"{why} {_CORRECTED if seen.detached else _FOLLOWS}",
        fix=fix,
        fix_code=fix_code,
        first_step=int(seen.steps[0]) + 1,
        last_step=int(seen.steps[-1]) + 1,
        evidence=[
            Evidence("distance of the ratio from 1", middle, "", *limits.against("apart")),
            Evidence("looks", len(seen.steps), "looks", *limits.against("looks"), role="basis"),
        ],
        location=(copy and copy.location) or backward,
        seen_at=backward,
        charts=[chart("Before the first update", "step", "ratio from 1", seen.steps, {"distance": seen.distances})],
        false_alarm="Actions of another policy on purpose, whose ratios correct for it; inputs that are changed for "
        "training alone.",
    )


RULE = Rule(
    id="sampler-mismatch",
    family="reinforcement",
    severity="warning",
    title="Sampler and trainer disagree",
    about="Policy gradients assume that the updated policy is the one that acted.",
    check=check,
    verify="Record the run again: the gap stays as small as at the start.",
    absent=f"{_ABSENT}.",
    needs=(("scalars.value",), ("events.text",)),
    thresholds=(
        Threshold("growth", 3, "", "derived: a gap between kernels is constant; three is far beyond its noise"),
        Threshold("gap", 0.05, "", "derived: tokens at four times this mean gap reach the usual clip range"),
        Threshold("ratio", 0.2, "", "the usual clip range of the policy ratio"),
        Threshold("steps", 20, "steps", "four in each fifth"),
        Threshold("looks", 6, "looks", "derived: the median of six is not moved by two"),
        Threshold("apart", 0.05, "", "measured: 1e-7 in float32; 0.07 to 0.7 by copies, temperatures, limits, dropout"),
        Threshold("near", 0.005, "", "derived: a tenth of that; the same weights, computed alike"),
        Threshold("again", 0.1, "share", "of looks, or of their samples: some may be alike by chance"),
    ),
    not_when="A constant small gap between kernels; ratios that leave 1 after the first update; samples of earlier "
    "policies (replay, queues, copies that are refreshed now and then), of a part drawn at random.",
    references=("https://fengyao.notion.site/off-policy-rl",),
)
