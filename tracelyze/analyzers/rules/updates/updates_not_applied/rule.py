"""updates-not-applied: an optimizer never steps, or its steps leave a parameter with a gradient exactly as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization.updates import SIXTEEN_BITS, SampledUpdates, sampled_beside_moves
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, combine
from tracelyze.analyzers.rules.updates.updates_not_applied import by_dimensions, own_steps
from tracelyze.analyzers.script import edits, script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Optimizers without a step, and tensors that no step changed although the gradient should have moved them."""
    if not len(process.steps):
        return _never_stepped(process)
    return combine(_check(optimization, limits) for optimization in process.optimizations)


def _check(optimization: Optimization, limits: Limits) -> Finding | Passed | Skipped:
    sampled = [updates for updates in sampled_beside_moves(optimization) if updates.dtype not in SIXTEEN_BITS]
    enough = [updates for updates in sampled if _is_enough(updates, limits)]
    if not enough:
        return Skipped("no parameter with a gradient and a learning rate was sampled often enough")
    if not (still := [updates for updates in enough if _never_moved(updates)]):
        changed = f"all of the {len(enough)} parameters that were" if len(enough) > 1 else "the one parameter that was"
        return Passed(f"steps changed {changed} sampled")
    return _finding(optimization, still, enough)


def _never_stepped(process: Process) -> Outcome:
    """What the collector noted of a process whose backwards reached what an optimizer holds, and none ever stepped."""
    idle = next(iter(process.events_of("unstepped-optimizer")), None)
    if idle is None:
        return Skipped("no optimizer took a step in this process")
    if process.exit.kind != "finished":
        return Skipped("the program ended before its first step: what it accumulated may have been meant for one")
    count = int(process.facts.get("backwards") or idle["value"] or 0)
    line, backward = own_steps.in_the_text(process), process.location("backward")
    scaled = backward is not None and edits.SCALED_BACKWARD.search(backward.source)
    step = f"{scaled['scaler']}.step(optimizer), then {scaled['scaler']}.update()," if scaled else "optimizer.step()"
    return [
        Finding(
            rule=RULE.id,
            severity="critical",
            confidence="certain",
            title=f"{plural(count, 'backward pass', 'backward passes')} ran, and {idle['name']} never took a step",
            summary=f"The script made an optimizer ({idle['name']}) of the weights that backward reaches. No backward "
            "was followed by a step, and nothing else changed the weights: the model is the same as at the start.",
            fix=own_steps.REACH.format(line=line.line) if line else f"Call {step} after backward().",
            fix_code="" if line else "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
            first_step=0,
            last_step=0,
            evidence=[Evidence("backward passes", count), Evidence("steps of an optimizer", 0, "steps")],
            location=line or backward,
            seen_at=backward,
            excluded=["Updates that the script makes by itself: nothing changed the weights."],
            false_alarm="Gradients that are only measured, in a script that creates an optimizer it does not use.",
        )
    ]


def _is_enough(updates: SampledUpdates, limits: Limits) -> bool:
    strong = np.nan_to_num(updates.expected, posinf=1.0) >= limits["expected"]
    return int(strong.sum()) >= limits["looks"] and float(np.nansum(updates.since)) >= limits["steps"]


def _never_moved(updates: SampledUpdates) -> bool:
    between = updates.unchanged_since[~np.isnan(updates.unchanged_since)]
    return bool((updates.unchanged == 1.0).all() and (updates.reached == 1.0).all() and (between == 1.0).all())


def _finding(optimization: Optimization, still: list[SampledUpdates], enough: list[SampledUpdates]) -> Finding:
    shown = listed([updates.parameter for updates in still], most=4)
    defined = optimization.process.site(optimization.facts.get("step_defined_at"))
    rebound = own_steps.rebound(optimization.process, defined)
    begin, end = _begins(optimization, still), int(max(updates.step[-1] for updates in still))
    at_zero = rebound is None and all(np.isposinf(updates.expected).all() for updates in still)
    moves = [updates.dimensions for updates in enough if not _never_moved(updates)]
    passed = by_dimensions.over(optimization, [updates.dimensions for updates in still], moves)
    passed = None if rebound or at_zero else passed
    fix, code = (passed.fix, passed.code) if passed else own_steps.advice(rebound, at_zero)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain",
        title=f"Optimizer steps never change {len(still)} of {plural(len(enough), 'sampled parameter')}",
        summary=(
            f"Copies of up to 256 values of each, taken before and after steps{timing.name_of(optimization)} between "
            f"{begin:,} and {end:,}, are bit-for-bit identical for {shown}. "
            + own_steps.held(len(still))
            + own_steps.AT_ZERO * at_zero
            + (passed.why if passed else script_lines.said(rebound, own_steps.doing(rebound), own_steps.HERE))
        ),
        fix=fix,
        fix_code=code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("parameters that never changed", shown),
            Evidence(f"measurements of {still[0].parameter}", len(still[0].step), "measurements"),
            Evidence("size of these weights", 0)
            if np.isposinf(np.median(still[0].expected))
            else Evidence("rate times gradient, against its weights", float(np.median(still[0].expected))),
        ],
        cost=timing.cost_of(optimization, np.ones(len(optimization.steps), dtype=bool))
        if len(still) == len(enough) and len(optimization.process.optimizations) == 1
        else None,  # else some of it learned, perhaps by another optimizer
        location=rebound or (passed.line if passed else defined) or optimization.step_location,
        seen_at=optimization.step_location,
        false_alarm="Tensors kept fixed on purpose by a custom optimizer.",
    )


def _begins(optimization: Optimization, still: list[SampledUpdates]) -> int:
    """The first measurement of these tensors, if also the steps at a small rate, as of a warm-up, changed nothing."""
    table, names = optimization.process.tables["parameters"], {updates.parameter for updates in still}
    own = (table["optimizer"] == optimization.optimizer) & np.array([one in names for one in table.text("parameter")])
    never = (table["unchanged"][own] == 1).all()
    return int(table["step"][own].min() if never else min(updates.step[0] for updates in still))


RULE = Rule(
    id="updates-not-applied",
    family="gradients",
    severity="critical",
    title="Updates are not applied",
    about="Without a step, or with a step that does not write to the parameter, gradients change nothing.",
    check=check,
    verify="Record the run again: the optimizer steps, and every sampled parameter changes.",
    excluded=(
        "A rate of zero, or updates below the precision of float32: rate times gradient is far above it.",
        "A line search that rejects steps: all samples agree.",
    ),
    needs=(("parameters.unchanged", "parameters.unchanged_since"), ("events.kind",)),
    thresholds=(
        Threshold("looks", 4, "measurements", "a line search or an accumulating optimizer rejects some steps, not all"),
        Threshold("steps", 30, "steps", "what does not change over so many steps is not trained"),
        Threshold("expected", 1e-5, "share", "a hundred times what float32 resolves (6e-8)"),
    ),
    not_when="Rates of zero, 16-bit weights, gradients too small to matter, closures.",
)
