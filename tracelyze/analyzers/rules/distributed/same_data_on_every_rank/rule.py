"""same-data-on-every-rank: data-parallel ranks train on the same samples, so all but one of them work for nothing."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import passes
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.distributed.same_data_on_every_rank import batches_of_ranks, unprepared
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Cost, Evidence, Finding

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.passes import Pass
    from tracelyze.analyzers.recorded.run import Process

    Compared = dict[int, tuple[int, float]]  # by rank: batches compared, and the share of them that agree
    Batches = dict[int, dict[int, str]]  # by rank, then by place

MOST_BATCHES = 128  # of a rank that are compared: a sample is enough
WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDP")


def check(process: Process, limits: Limits) -> Outcome:
    """The batches of the lowest rank against those at the same places on every other rank.

    The first pass decides: where ranks shuffle alike because they were seeded alike, a random number more on one of
    them (a validation on rank 0) gives them orders of their own later, and still the whole data set each.
    """
    ranks = {peer.rank: peer for peer in process.peers if peer.thread == 1 and peer.attempt == process.attempt}
    if len(ranks) < 2:
        return Skipped("the run has one rank", "not-applicable")
    if not any(str(row["name"]).startswith(WRAPPERS) for row in process.models.records()):
        return Skipped("no wrapper averages the ranks' gradients: they may be meant to share data", "not-applicable")
    own = {(one.loader, one.epoch): one for one in gather(process) if one.distinctive >= limits["batches"]}
    if not own:
        return Skipped("too few batches were looked at to know whether they differ")
    compared: Compared = {}
    later: list[float] = []
    first = next(iter(own.values()))
    seen = {process.rank: first.batches}
    for rank, peer in sorted(ranks.items()):
        if rank != process.rank:
            theirs = peer.gathered.get(RULE.id, ())
            pairs = [(own[key], one) for one in theirs if (key := (one.loader, one.epoch)) in own]
            compared[rank] = _agreement(pairs, limits)
            later += [one.agreement(other) for one, other in pairs if one is not first and one.common(other)]
            seen.update((rank, other.batches) for one, other in pairs if one is first)
    if min(places for places, _ in compared.values()) < limits["batches"]:
        return Skipped("not all ranks have enough batches that were looked at, at places where the first has some")
    same = [rank for rank, (_, share) in compared.items() if share >= limits["share"]]
    if len(same) < len(compared):
        return Passed(f"ranks {process.rank} and {next(r for r in compared if r not in same)} get different samples")
    return [_finding(process, compared, (first, later), seen, limits)]


def gather(process: Process) -> list[Pass]:
    """The first passes of a rank, 16 bits a batch: several have to agree, and a summary is to be small."""
    kept: list[Pass] = []
    room = MOST_BATCHES
    for one in passes.of_training(process) or passes.without_loader(process):
        batches = {at: f"{zlib.crc32(one.batches[at].encode()) & 0xFFFF:04x}" for at in sorted(one.batches)[:room]}
        kept.append(replace(one, batches=batches))
        room -= len(batches)
        if room <= 0:
            break
    return kept


def _agreement(pairs: list[tuple[Pass, Pass]], limits: Limits) -> tuple[int, float]:
    """Batches compared, and the share of them with the same content: of the first passes, up to enough batches."""
    places, equal = 0, 0.0
    for one, other in sorted(pairs, key=lambda pair: pair[0].step):
        places += len(one.common(other))
        equal += one.agreement(other) * len(one.common(other))
        if places >= limits["batches"]:
            break
    return places, equal / places if places else 0.0


def _finding(
    process: Process, compared: Compared, of_passes: tuple[Pass, list[float]], seen: Batches, limits: Limits
) -> Finding:
    """`of_passes`: the first, and for each later one and each rank the share of the batches that agree."""
    first, later = of_passes
    loader = next((row for row in process.loaders.records() if row["loader"] == first.loader), {})
    optimization = process.longest if process.optimizations else None
    all_of_them = "Both" if len(compared) == 1 else f"All {len(compared) + 1}"
    ranks, batches = len(compared) + 1, min(places for places, _ in compared.values())
    spent = float(optimization.steps["time"][-1] - optimization.steps["time"][0]) if optimization else None
    by_hand = first.loader == passes.NO_LOADER
    line, fix, code = unprepared.divided(process, loader, by_hand)
    alike = None if not later else min(later) >= limits["share"]
    title, summary = batches_of_ranks.said(all_of_them, ranks, batches, None if by_hand else loader, alike)
    part, of_it = (ranks - 1) / ranks, "" if by_hand else " of the first pass"
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely" if by_hand else "certain",
        title=title,
        summary=summary,
        fix=fix,
        fix_code=code,
        first_step=first.step + 1,
        evidence=[
            Evidence("batches that were the same", min(share for _, share in compared.values()), "share",
                     *limits.against("share")),
            Evidence(f"batches{of_it} compared with each rank", batches, "", *limits.against("batches"), role="basis"),
            *([] if by_hand or loader.get("iterable") else
              [Evidence("sampler", loader.get("sampler") or "none", role="setting")]),
            Evidence("fingerprints of the first batches", batches_of_ranks.text(seen)),
        ],
        cost=Cost(spent * part, part) if spent else None,
        ranks=[process.rank, *compared],
        location=line or process.loader_location(loader) or script_lines.drawn_batches(process),
        seen_at=process.site(loader.get("site")) or (optimization.loss_location if optimization else None),
        false_alarm="Ranks that hold parts of one model should see the same data.",
    )  # fmt: skip


RULE = Rule(
    id="same-data-on-every-rank",
    family="distributed",
    severity="critical",
    title="The same data on every rank",
    about="Data-parallel training averages the gradients of ranks that saw different samples. Unless something splits "
    "the data, every rank sees all samples in the same order.",
    check=check,
    gather=gather,
    verify="Record the run again: this check passes, because the ranks get different batches.",
    excluded=(
        "Batches that are alike by chance: several are compared at the same places.",
        "Ranks of a pipeline or tensor-parallel model: the model is in a data-parallel wrapper.",
    ),
    absent="No batch that a model was trained on was looked at.",
    needs=(("batches.print",),),
    thresholds=(
        Threshold("batches", 4, "batches", "4 places of 5 different batches agree by chance once in 120 times"),
        Threshold("share", 0.9, "share", "of the batches; the last of a pass may be filled up in another way"),
    ),
    not_when="Models without a data-parallel wrapper (pipeline, tensor parallel), runs in which only some ranks agree.",
    references=("https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",),
)
