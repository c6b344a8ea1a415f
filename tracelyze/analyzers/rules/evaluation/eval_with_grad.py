"""eval-with-grad: validation forwards record autograd graphs that nobody uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.editing.remade import validating
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

FIX = "Validate under torch.no_grad(): a decorator of the function that validates, or a block around it."
FIX_CODE = """@torch.no_grad()
def validate(model, loader):  # the function that validates; or a block in it
    ..."""
BLOCK = """with torch.no_grad():
    ...  # the whole loop that validates"""
SWITCH = "with torch.set_grad_enabled(training):  # False while it validates"


def check(process: Process, limits: Limits) -> Outcome:
    """Validation passes with autograd on, of two or more forwards in all."""
    evals = process.evals
    judged = validation.passes(process)
    if not judged.any():
        return Skipped(validation.NONE, "not-applicable")
    bad = judged & (evals["grad_mode"] == validation.GRAD)
    forwards = int(np.nan_to_num(evals["forwards"][bad]).sum())
    share, count = float(bad.sum()) / float(judged.sum()), int(judged.sum())
    if share < limits["share"] or forwards < limits["forwards"]:
        return Passed(f"{plural(count, 'validation pass')}, {int(bad.sum())} of them with autograd on")
    rows = np.flatnonzero(bad)
    begin = int(np.nan_to_num(evals["after_step"][rows[0]]))
    optimization = process.longest if process.optimizations else None
    site, one_line = float(evals["site"][rows[0]]), len(set(evals["site"][bad].tolist())) == 1
    called, shared = validation.place(process, int(rows[0])), validation.trains_too(process, site)
    loop = validation.loop_of(process, int(rows[0]))
    fix, code = FIX, validating.under(process, called) or FIX_CODE
    if called and shared:
        fix, code = _instead(process, called, loop)
    edit = line_edits.under(process, called, "with torch.no_grad():") if shared is False and one_line else None
    change = called if edit is not None else (loop if shared else validation.begins_at(process, site)) or called
    marks = [Mark(float(begin), "validation with autograd on")]
    return [
        Finding(
            rule=RULE.id,
            severity="warning" if forwards >= limits["worth"] else "info",
            confidence="likely",
            title=f"Validation builds autograd graphs that nobody uses, in {len(rows)} of {plural(count, 'pass')}",
            summary=(
                f"{len(rows)} of {plural(count, 'validation pass')} ran with autograd on, the first one after step "
                f"{begin:,}. Every forward keeps its activations for a backward that never comes: it costs memory and "
                "time, and leaks as soon as an output or a loss is stored."
            ),
            fix=fix,
            fix_code=code,
            first_step=begin,
            last_step=int(np.nan_to_num(evals["after_step"][rows[-1]])),
            evidence=[
                Evidence("validation passes with autograd on", share, "share", *limits.against("share")),
                Evidence("forwards in them", forwards, "forwards"),
            ],
            diff=edit,
            location=change,
            seen_at=called,
            charts=(pictures.memory(optimization, marks) or pictures.loss(optimization, marks)) if optimization else [],
            false_alarm="Validation that needs gradients: adversarial robustness, meta-learning, physics-informed "
            "losses.",
        )
    ]


def _instead(process: Process, called: Location, loop: Location | None) -> tuple[str, str]:
    """What to change where training runs through the same line, which needs its graph: words and example."""
    why = "training uses the same line and needs its graph"
    if loop is not None:
        return (
            f"Put the validation loop (line {loop.line}) under torch.no_grad(), not line {called.line}: {why}.",
            validating.under(process, loop) or BLOCK,
        )
    code = validating.under(process, called, SWITCH) or f"{SWITCH}\n    ...  # line {called.line}"
    return f"Turn autograd off while line {called.line} validates, and only then: {why}.", code


RULE = Rule(
    id="eval-with-grad",
    family="evaluation",
    severity="warning",
    title="Validation records gradients that nobody uses",
    about="Without torch.no_grad() each validation forward keeps its activations until its output is freed.",
    check=check,
    verify="Record the run again: validation passes run without autograd and take less memory.",
    absent="The run has no validation pass.",
    needs=(("evals.grad_mode", "evals.trained"),),
    thresholds=(
        Threshold("share", 0.5, "share", "a habit, not one odd pass: most validation passes"),
        Threshold("forwards", 2, "forwards", "in all: a single unused forward costs nothing worth a word"),
        Threshold("worth", 4, "forwards", "derived: a hint below it, since so few cost no more than a step or two"),
    ),
    not_when="Single unused forwards, training batches that the loop skipped, models that no optimizer trains.",
)
