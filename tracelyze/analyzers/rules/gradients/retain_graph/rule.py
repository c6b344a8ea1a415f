"""retain-graph: every step's last backward keeps its graph (retain_graph=True), and nobody uses it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.optimization import leaks
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, OneOutcome, Passed, Rule, Skipped, Threshold, each_optimization
from tracelyze.analyzers.rules.gradients.retain_graph import one_backward, retained_graphs
from tracelyze.analyzers.script import carried_states, line_edits
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization


@each_optimization
def check(optimization: Optimization, limits: Limits) -> OneOutcome:
    """retain_graph=True at the last backward of nearly all steps."""
    known = optimization.steps.known("graph_retained") & (optimization.steps["backwards"] > 0)
    kept = known & (optimization.steps["graph_retained"] == 1)
    if known.sum() < limits["steps"]:
        return Skipped(f"fewer than {limits['steps']:.0f} steps with a backward")
    share = float(kept.sum() / known.sum())
    if len(optimization.process.optimizations) > 1:
        return Passed("several optimizers: a graph that one backward keeps may be the next one's")
    if optimization.process.events_of("kept-graph"):
        return Passed("torch.autograd.grad was asked after a backward that kept its graph, which it may go through")
    if share < limits["share"]:
        return Passed(f"the last backward of {share_of(1 - share, 'steps')} frees its graph")
    graphs = optimization.steps["live_graphs"][leaks.rows_with_graphs(optimization)]
    quarter = max(1, len(graphs) // 4)
    grows = len(graphs) > 0 and np.median(graphs[-quarter:]) - np.median(graphs[:quarter]) >= limits["graphs"]
    first = int(np.argmax(kept))
    through = carried_states.runs_through(optimization.process)
    if through == "once" and not grows:
        return Passed("each backward runs through a graph that was made once, and that has to stay")
    if through and not grows:
        return _piles_up(optimization, share, first, None, limits)
    if not grows:
        return _for_nothing(optimization, share, timing.step_at(optimization, first), limits)
    return _piles_up(optimization, share, first, int(graphs.max()), limits)


def _piles_up(optimization: Optimization, share: float, first: int, most: int | None, limits: Limits) -> Finding:
    """Each step's graph stays, with those of steps before: up to `most` of them at once; None where one graph leads to
    the next, as a state goes on from step to step with its own."""
    remedy = retained_graphs.of_a_state(optimization) if most is None else retained_graphs.remedy(optimization)
    begin = timing.step_at(optimization, first)
    if most is None:
        title = "Each backward runs through earlier steps, whose graphs retain_graph=True keeps"
        harm = f". {remedy.why} Until the state is made anew, steps take longer and longer, and memory grows."
        seen = Evidence("a backward ran through the graph of", "the step before", "", "its own step alone")
    else:
        title = f"retain_graph=True keeps every step's graph: up to {most:,} graphs are alive at once"
        harm = f", so its activations stay in memory. Up to {most:,} graphs are alive at once: {remedy.why}"
        seen = Evidence("most graphs alive at once", most, "graphs", *limits.against("graphs"))
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=title,
        summary=f"In {share_of(share, 'steps')} the last backward ran with retain_graph=True{harm}",
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("steps whose last backward keeps its graph", share, "share", *limits.against("share")),
            seen,
        ],
        location=remedy.place or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.over_steps(
            optimization, "Autograd graphs alive", "graphs", {"graphs": "live_graphs"}, [Mark(float(begin), "kept")]
        )
        + pictures.memory(optimization),
        false_alarm="A graph that is used again after the step, for a measurement.",
        diff=remedy.diff,
    )


def _for_nothing(optimization: Optimization, share: float, begin: int, limits: Limits) -> Finding:
    """Nothing piles up; what it costs is the memory of one step's activations."""
    added = one_backward.of_several(optimization)
    backward, shared = optimization.backward_location, one_backward.may_be_shared(optimization)
    edit = None if shared else line_edits.without_retained_graph(optimization.process, backward)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title="The last backward of each step keeps its graph, but nothing uses it",
        summary=(
            f"In {share_of(share, 'steps')} the last backward was called with retain_graph=True. No other backward of "
            "that graph follows: its activations stay as long as something holds the loss. In a plain loop, that is "
            "until the next step's activations replace them, so two steps' activations are in memory at once. Results "
            "are unaffected."
        ),
        fix=one_backward.FIX if added else "Drop retain_graph=True from the last backward of the step.",
        fix_code=added or (retained_graphs.LAST if shared else "loss.backward()" * (edit is not None)),
        first_step=begin,
        evidence=[
            Evidence("steps whose last backward keeps its graph", share, "share", *limits.against("share")),
        ],
        location=backward,
        excluded=["Several losses on one graph: the last backward of the step keeps it too."],
        false_alarm="A graph that is used again after the step, for a measurement.",
        diff=None if added else edit,
    )


RULE = Rule(
    id="retain-graph",
    family="gradients",
    severity="warning",
    title="The graph is kept after the last backward",
    about="retain_graph=True keeps all activations of a step. It is needed between two backwards of one graph, never "
    "after the last.",
    check=check,
    verify="Record the run again: the number of live graphs stays at one or two, and steps do not become slower.",
    excluded=(
        "Several losses on one graph: the last backward of the step keeps it too.",
        "A graph that is gone by the next step: graphs pile up here.",
    ),
    needs=(("steps.graph_retained",),),
    thresholds=(
        Threshold("steps", 20, "steps", "a first try or a measurement is no habit"),
        Threshold("share", 0.9, "share", "every step, as the line is written"),
        Threshold("graphs", 20, "graphs", "a healthy loop keeps one or two alive"),
    ),
    not_when="Graphs freed by the next step, several losses on one graph whose last backward frees it, gradient "
    "penalties (create_graph), graphs that torch.autograd.grad uses again.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html",),
)
