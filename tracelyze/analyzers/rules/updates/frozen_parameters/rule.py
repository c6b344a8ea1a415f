"""frozen-parameters: what the optimizer holds and what backward reaches are not the same tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.crashes import checkpointed
from tracelyze.analyzers.computed.gradients.trainable import replaced_part, tensor_names
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.updates.frozen_parameters import (
    copied_pattern,
    frozen_in_vain,
    mostly_frozen,
    random_layers,
    sampled_forwards,
    zero_fronts,
)
from tracelyze.analyzers.rules.updates.frozen_parameters.unheld import findings as unheld
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing.remade import graphs
from tracelyze.diagnosis import Evidence, Finding, Location, Severity
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

Row = dict[str, Any]
HELD_FAST = "Tensors with requires_grad=False: not counted, unless nothing but biases and normalisations is left."


def check(process: Process, limits: Limits) -> Outcome:
    """The last word on each optimizer, and on the tensors that none holds."""
    in_vain = next(iter(process.events_of("frozen-in-vain")), None)
    if in_vain is not None:
        return [frozen_in_vain.finding(process, in_vain, RULE.id)]
    if (event := next((one for one in process.events_of("random-and-frozen") if one["name"]), None)) is not None:
        return [random_layers.finding(process, event, RULE.id)]
    last: dict[int | None, Row] = {row["optimizer"]: row for row in process.tables["reach"].records()}
    last = {index: row for index, row in last.items() if row["steps"] >= limits["steps"]}
    if not last:
        return Skipped(f"no optimizer took {limits['steps']:.0f} steps, which are needed to judge")
    findings, replaced = [], False
    for optimization in process.optimizations:
        row = last.get(optimization.optimizer)
        if row and 0 < row["missed"] < row["held"]:  # with all of them missing, zero-gradients says so
            replaced |= tensor_names.is_nameless(row["names"] or "")
            if not unheld.says_of(process, row, last.get(None)):
                findings.append(_never_reached(optimization, row, limits))
        replaced |= replaced_part.of(optimization) is not None
        if row and (few := mostly_frozen.finding(process, row, RULE.id, limits)) is not None:
            findings.append(few)
    orphans = last.get(None)
    if orphans and (orphans["missed"] or orphans["short_lived"]) and process.optimizations:
        findings.append(unheld.finding(process, orphans, RULE.id, replaced))
    findings += zero_fronts.findings(process, RULE.id, limits)
    held = sum(row["held"] for index, row in last.items() if index is not None)
    if not findings and not held:
        return Skipped("no optimizer was seen to hold a trainable tensor", "not-applicable")
    return findings or Passed(f"all {plural(held, 'trainable tensor')} that an optimizer holds had gradients")


def _modules(row: Row) -> set[str]:
    """The modules that the named tensors belong to."""
    return {name.rpartition(".")[0] for name in tensor_names.each(row["names"] or "")} - {""}


def _made_at(process: Process, row: Row) -> Location | None:
    """The line of the first module that nobody calls."""
    name = next(iter(sorted(_modules(row))), "")
    return process.module_location(name) if name else None


def _never_reached(optimization: Optimization, row: Row, limits: Limits) -> Finding:
    """The finding about tensors that no backward reached."""
    share = row["missed_elements"] / max(1, row["held_elements"])
    process, sampled = optimization.process, sampled_forwards.of(optimization, _modules(row))
    ran = sampled.ran  # forward does run a module that holds some of them, so that something cuts it off from the loss
    least, source = limits.against("share")
    # fewer may be unused extras
    behind = checkpointed.found(process) if sampled.may_have_run and share >= least else None
    known = (ran and graphs.of_numbers(process)) or (behind and behind.told)
    change = known[-1] if known else script_lines.cut(process) if ran else _made_at(process, row)
    opened, code = graphs.uncut(process, change) if ran and change else sampled.fix
    pattern = None if ran or known else copied_pattern.of(process, row["names"] or "", row["missed"], change)
    opened, code = known[1:3] if known else (pattern.fix, pattern.code) if pattern else (opened, code)
    at = script_lines.said(change, "cuts a graph", "outside of loop and evaluation")
    cause = known[0] if known else at * ran
    own = behind if behind is not None and cause == behind.told[0] else None
    why = pattern.said if pattern else cause.strip() if own and own.seen else sampled.said + cause
    severity: Severity = "warning" if known or (ran and share >= least) else "info"
    return Finding(
        rule=RULE.id,
        severity=severity,
        confidence="certain",
        title=f"{row['missed']:,} of {plural(row['held'], 'tensor')} in {timing.optimizer_of(optimization)} "
        f"never get{'s' * (row['missed'] == 1)} a gradient",
        summary=(
            f"In {row['steps']:,} steps no backward reached "
            f"{tensor_names.in_a_sentence(row['names'] or 'these tensors')}: {percent(share)} of what this optimizer "
            f"holds is not trained. {why}"
        ),
        fix=opened if pattern else f"{opened} If they should not train, freeze or remove them.",
        fix_code=code,
        first_step=1,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("tensors without any gradient", row["missed"], "tensors"),
            Evidence("their share of what the optimizer holds", share, "share", least, source, role="basis"),
            Evidence("steps looked at", row["steps"], "steps", *limits.against("steps"), role="basis"),
        ],
        location=change or optimization.backward_location,
        seen_at=optimization.backward_location,
        diff=own.diff if own else None,
        charts=pictures.loss(optimization),
        excluded=["Branches that are taken now and then: no backward reached these tensors in any step.", HELD_FAST],
        false_alarm="Layers that this training is not meant to use, such as the pooler of a language model.",
    )


RULE = Rule(
    id="frozen-parameters",
    family="gradients",
    severity="warning",
    title="Parameters that never train",
    about="A tensor learns only if backward reaches it and an optimizer holds it. With just one of the two it never "
    "changes.",
    check=check,
    verify="Record the run again: every tensor that the optimizer holds gets a gradient, or it holds fewer.",
    excluded=(HELD_FAST,),
    needs=(("reach.steps",),),
    thresholds=(
        Threshold("steps", 20, "steps", "a branch that is taken now and then is taken by then"),
        Threshold("share", 0.1, "share", "unused extras (poolers, spare heads) are below a tenth of a model"),
        Threshold("looks", 5, "measurements", "over `steps` steps: a layer that begins at zero has left it by then"),
        Threshold("few", 0.05, "share", "of a model's weights: biases and normalisations are 1 to 5% of small ones"),
        Threshold("fell", 0.2, "share", "of the first loss: what learns its task loses more"),
        Threshold("answers", 0.5, "share", "derived: a quarter of the targets' variance can be explained by them"),
    ),
    not_when="requires_grad=False on purpose, weights loaded or trained before, sparse embeddings, branches taken "
    "occasionally, heads without weight in the loss, tied layers, teachers and averages.",
)
