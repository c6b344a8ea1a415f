"""clip-differs-by-rank: ranks that hold parts of one model scale its gradients by norms of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.distributed.clip_differs_by_rank import clip_norms, copies
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.distributed.clip_differs_by_rank.clip_norms import Clip
    from tracelyze.analyzers.rules.distributed.clip_differs_by_rank.copies import Scaled


class Clips(NamedTuple):
    """What is compared of one rank: its clips by step, and the norms of its tensors at the first step that was
    measured."""

    by_step: dict[int, Clip]
    tensors: copies.AtStep | None


def gather(process: Process) -> Clips:
    """What the ranks are compared by."""
    return Clips(clip_norms.clips_of(process), copies.norms_of(process))


def check(process: Process, limits: Limits) -> Outcome:
    """The clips of ranks with one loss, and the gradients of tensors of which several ranks hold a copy."""
    ranks: dict[int, Clips] = {
        peer.rank: peer.gathered[RULE.id]
        for peer in process.peers
        if RULE.id in peer.gathered and peer.thread == 1 and peer.attempt == process.attempt
    }
    differ = clip_norms.differing({rank: one.by_step for rank, one in ranks.items() if one.by_step}, limits)
    if not isinstance(differ, Passed | Skipped):
        return [_finding(process, ranks, differ, limits)]
    scaled = _scaled(ranks, limits)
    return [_copies_finding(process, min(ranks), scaled, limits)] if scaled else differ


def _scaled(ranks: dict[int, Clips], limits: Limits) -> dict[int, Scaled]:
    """The ranks whose copies have gradients that differ by one factor from those of the lowest rank."""
    own = ranks[min(ranks)].tensors if ranks else None
    found = {rank: copies.scaled(own, one.tensors, limits) for rank, one in ranks.items()}
    return {rank: scaled for rank, scaled in found.items() if scaled is not None}


def _finding(process: Process, ranks: dict[int, Clips], differ: dict[int, float], limits: Limits) -> Finding:
    other, most = max(differ.items(), key=lambda one: one[1])
    first = min(rank for rank, one in ranks.items() if one.by_step)
    step, norms = clip_norms.differing_by(ranks[first].by_step, ranks[other].by_step, most)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Ranks that share one model clip it differently, by {percent(most)}",
        summary=(
            f"Ranks {first} and {other} began with the same loss, and their losses move together: they run one model. "
            f"But each clips by the norm of the gradients that it holds ({number(norms[0])} and {number(norms[1])} at "
            f"step {step:,}): parts of one model are scaled differently, and the update no longer points along the "
            "gradient."
        ),
        fix=FIX,
        fix_code=clip_norms.example(process),
        first_step=min(ranks[first].by_step),
        ranks=[first, *differ],
        evidence=[
            Evidence("difference of the clip coefficients (median)", most, "share", *limits.against("apart")),
            Evidence("ranks compared", sum(bool(one.by_step) for one in ranks.values()), "ranks", role="basis"),
        ],
        location=process.location("clip") or process.longest.step_location,
        false_alarm="Pipeline stages that clip separately on purpose.",
    )  # fmt: skip


def _copies_finding(process: Process, first: int, scaled: dict[int, Scaled], limits: Limits) -> Finding:
    rank, most = max(scaled.items(), key=lambda one: abs(one[1].factor - 1))
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Rank {rank} scales gradients of shared weights by {number(most.factor)} against rank {first}",
        summary=(
            f"Of {plural(most.copies + most.parts, 'tensor')} that were compared, {most.copies} were equal on ranks "
            f"{first} and {rank}; the others are parts of the model. At step {most.step} the gradients of all these "
            "copies differ by one factor, "
            f"{number(most.factor)}: they were clipped or scaled on one rank only. So copies of the same weights are "
            "updated differently and drift apart."
        ),
        fix=FIX,
        fix_code=clip_norms.example(process),
        first_step=most.step,
        ranks=[first, *scaled],
        evidence=[
            Evidence("factor between gradients of equal weights", most.factor, "",
                     1 + limits["apart"], limits.source("apart")),
            Evidence("tensors with that factor", most.copies, "tensors", *limits.against("copies")),
        ],
        location=process.location("clip") or process.longest.step_location,
        false_alarm="Losses scaled per rank on purpose, and divided again when the weights are updated.",
    )  # fmt: skip


FIX = (
    "Clip by the norm of the whole model, and all gradients alike: sum the squares over the ranks that hold its parts "
    "first. With FSDP call the wrapper's own clip_grad_norm_."
)

RULE = Rule(
    id="clip-differs-by-rank",
    family="distributed",
    severity="critical",
    title="Ranks clip parts of one model differently",
    about="A model split over ranks has one gradient with one norm. Clipping each part by its own norm changes its "
    "direction.",
    check=check,
    gather=gather,
    verify="Record the run again: all ranks clip by the same norm.",
    absent="The run has one rank, or clips nothing.",
    needs=(
        ("steps.grad_norm", "steps.clip_max_norm", "steps.loss"),
        ("parameters.weight_norm", "parameters.grad_norm"),
    ),
    thresholds=(
        Threshold("steps", 10, "steps", "derived: losses of ten steps agree by chance on no two ranks"),
        Threshold("loss", 1e-4, "share", "float32 sums in another order differ by 1e-6; other data by percents"),
        Threshold("share", 0.9, "share", "derived: one model has one loss at every step"),
        Threshold(
            "together", 0.8, "", "correlation of the losses' changes: derived, 0 +- 0.3 between batches that differ"
        ),
        Threshold("apart", 0.01, "share", "derived: rounding moves a norm by 1e-6, half precision by 1e-3"),
        Threshold("copies", 4, "tensors", "derived: one factor fits four unrelated gradients with a chance of 1e-7"),
        Threshold("equal", 1e-6, "share", "copies are equal bit for bit at first; float32 has 1e-7"),
        Threshold("factor", 1e-3, "share", "derived: rounding of half precision; unrelated gradients differ by 0.3"),
        Threshold("fit", 0.75, "share", "of the tensors with equal weights: some parts begin at zero on every rank"),
        Threshold("often", 0.5, "share", "derived: most steps; where nothing is clipped there is nothing to differ"),
    ),
    not_when="Ranks with losses of their own (data-parallel, sweeps), clips that are not reached, equal norms.",
    references=("https://docs.pytorch.org/docs/stable/fsdp.html", "https://github.com/microsoft/DeepSpeed/pull/1801"),
)
