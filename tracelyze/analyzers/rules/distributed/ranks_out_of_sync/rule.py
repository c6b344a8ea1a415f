"""ranks-out-of-sync: weights that were equal on all ranks drift apart: their gradients are not averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.ranks import last_phase, settings, weights
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import drift, not_averaged, own_seeds, side_by_side
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import fraction, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.distributed.ranks_out_of_sync.drift import Drift

FIX = (
    "Wrap the model in DistributedDataParallel before creating the optimizer, call the wrapper rather than the module "
    "inside it, and exit no_sync before the last backward of a step."
)
EXAMPLE = (
    "from torch.nn.parallel import DistributedDataParallel  # at the top of the file\n\n"
    "model = DistributedDataParallel(model)\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)"
)
MOST_OPENED = 3  # ranks whose distance is given to the last digit


def check(process: Process, limits: Limits) -> Outcome:
    """Norms of the weights on the lowest rank against those of the same tensors, at the same steps, on the others."""
    ranks = {peer.rank: peer for peer in process.peers if peer.thread == 1 and peer.attempt == process.attempt}
    if len(ranks) < 2:
        return Skipped("the run has one rank", "not-applicable")
    if last_phase.of(process) is None:
        return Skipped("several optimizers: which of them work together is not known", "not-applicable")
    own = weights.sums_of(process)
    drifts = [
        drift.of(process, peer, own, peer.gathered.get(RULE.id, {}), looks=limits["looks"], equal=limits["equal"])
        for rank, peer in sorted(ranks.items())
        if rank != process.rank
    ]
    by_kind = {kind: [one.rank for one in drifts if one.kind == kind] for kind in drift.KINDS}
    if by_kind["few"]:
        return Skipped("weights of some ranks were looked at in too few steps in which those of others were")
    if by_kind["parts"]:
        return Passed("weights differ from the first step on, as parts do, or train at rates of their own")
    if by_kind["never-equal"]:
        opened = [ranks[rank].open() for rank in by_kind["never-equal"][:MOST_OPENED]]
        return [_never_equal(process, [process.rank, *by_kind["never-equal"]], opened)]
    if by_kind["equal"] and not by_kind["rates"]:
        return Passed(f"weights of ranks {process.rank} and {by_kind['equal'][0]} are equal, at the end or in between")
    apart = by_kind["rates"] or by_kind["apart"]
    opened = [ranks[rank].open() for rank in apart[:MOST_OPENED]]
    if len({one.steps.has("loss") for one in (process, *opened)}) > 1:
        return Passed("some ranks have no loss and get their gradients from elsewhere, as stages of a pipeline do")
    averaged = weights.same_gradients(process, opened, limits["equal"])
    return [_finding(process, [one for one in drifts if one.rank in apart], opened, averaged, limits)]


def _never_equal(process: Process, ranks: list[int], opened: list[Process]) -> Finding:
    optimization, seeded = process.longest, own_seeds.line(process)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"{plural(len(ranks), 'rank')} average their gradients, but their weights differ from the start",
        summary=(
            "The optimizers of these ranks are given the same gradients at the same steps, as data parallel training "
            "does, while their weights differ from the first step on. So each gradient is an average over different "
            "models and fits none of them." + (f" Line {seeded.line} seeds each rank differently." if seeded else "")
        ),
        fix="Give all ranks the same weights before the first step: broadcast those of rank 0, as "
        "DistributedDataParallel does, or seed all ranks alike before the model is created.",
        fix_code="for tensor in model.state_dict().values():  # right after the model is made\n"
        "    dist.broadcast(tensor, src=0)",
        first_step=1,
        last_step=timing.last_step(optimization),
        ranks=ranks,
        evidence=[Evidence("ranks with the same gradients and weights of their own", len(ranks), "ranks")],
        cost=timing.cost_of(optimization, timing.numbers(optimization) >= 1),
        location=seeded or process.module_location("") or optimization.made_at or optimization.step_location,
        seen_at=optimization.step_location,
        charts=side_by_side.learning(process, opened, 1),
        false_alarm="Parts of a model that are given one gradient on purpose.",
    )


def _finding(process: Process, drifts: list[Drift], opened: list[Process], averaged: bool, limits: Limits) -> Finding:
    """`averaged`: the gradients are the same on these ranks, so that their optimizers make the difference."""
    optimization, apart = process.longest, [one.rank for one in drifts]
    ranks = [process.rank, *apart]
    most = weights.largest_distance(process, opened)
    treated = [] if averaged else settings.apart_by_step(process, opened[0])
    unlike = settings.apart(process, opened[0]) if averaged else treated
    known = "".join(f" {one.words(process.rank, apart[0])}" for one in unlike[:MOST_OPENED])
    since, who = max([drifts[0].since, *(one.since for one in unlike)]), "" if treated else "Optimizers of "
    title = f"{plural(len(ranks), 'rank')} train separate models: weights that were equal drift apart"
    effect, fix = not_averaged.effect(process), FIX
    outside = None if averaged or unlike else not_averaged.of(process, opened, limits["equal"])
    if outside:
        title, effect, fix = outside.title(len(ranks)), outside.summary(), outside.fix()
    if averaged or unlike:
        effect, fix = settings.TREATED if treated else settings.APPLIED
        effect += f"{known} Each rank has a model of its own, and gradients are taken at weights that differ."
    if unlike:
        title = f"{who}{plural(len(ranks), 'rank')} differ in {unlike[0].name}: their weights drift apart"
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=title,
        summary=f"{drifts[0].words()}, by {fraction(most)} of a tensor's norm in the end: {effect}",
        fix=fix,
        fix_code=outside.code() if outside else EXAMPLE if fix == FIX else "",
        first_step=since,
        last_step=timing.last_step(optimization),
        ranks=ranks,
        evidence=[
            Evidence("largest distance of a tensor's norms between ranks", most, "share", *limits.against("equal")),
            Evidence("ranks compared", len(ranks), "ranks", role="basis"),
            *(Evidence(one.name, one.shown(process.rank, apart[0])) for one in unlike),
        ],
        location=(optimization.made_at if unlike else not_averaged.place(outside)) or optimization.step_location,
        diff=not_averaged.edit(outside),
        seen_at=not_averaged.seen(outside),
        charts=side_by_side.learning(process, opened, since),
        false_alarm="Models trained independently on purpose (ensembles), or averaged only at the very end.",
    )  # fmt: skip


RULE = Rule(
    id="ranks-out-of-sync",
    family="distributed",
    severity="critical",
    title="Ranks drift apart",
    about="Data-parallel ranks stay equal as long as they apply the same gradients. Without averaging they drift "
    "apart.",
    check=check,
    gather=weights.sums_of,
    verify="Record the run again: the weights of all ranks are equal at the same steps.",
    needs=(("parameters.weight_norm",),),
    thresholds=(
        Threshold("looks", 4, "measurements", "one at which they are equal, and some that show that they stay apart"),
        Threshold("equal", 1e-6, "share", "ranks that apply the same gradients agree bit for bit; float32 has 1e-7"),
    ),
    not_when="Sharded weights (FSDP), weights and gradients that differ from the start, weights that meet again.",
    whole_process=True,
    references=("https://docs.pytorch.org/docs/stable/notes/ddp.html",),
)
