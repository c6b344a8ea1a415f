"""uneven-batches: ranks take batches of different sizes, or a different number of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.distributed.uneven_batches import batch_sizes, own_data
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.loss import assignment
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.distributed.uneven_batches.batch_sizes import Batches


def check(process: Process, limits: Limits) -> Outcome:
    """Sizes and numbers of batches of all ranks, where a wrapper averages their gradients."""
    ranks: dict[int, Batches] = {
        peer.rank: peer.gathered[RULE.id]
        for peer in process.peers
        if RULE.id in peer.gathered and peer.thread == 1 and peer.attempt == process.attempt
    }
    if len(ranks) < 2:
        return Skipped("the run has one rank", "not-applicable")
    if not all(one.wrapped for one in ranks.values()):
        return Skipped("no wrapper averages the ranks' gradients", "not-applicable")
    if min(one.steps for one in ranks.values()) < limits["steps"]:
        return Skipped(f"a rank made fewer than {limits['steps']:.0f} steps")
    if min(one.share for one in ranks.values()) < limits["regular"]:
        means = {rank: one.mean for rank, one in ranks.items()}
        if _apart(means, limits):
            return [_finding(process, own_data.IN_THE_MEAN, means)]
        return Passed("batches vary in size on every rank, and are equally large in the mean")
    sizes = {rank: one.usual for rank, one in ranks.items()}
    own = own_data.differs([(one.samples, one.usual) for one in ranks.values()], limits["mean"])
    if _apart(sizes, limits):
        if not process.longest.loader:
            return [_finding(process, own_data.IN_SIZE_BY_HAND, sizes)]
        return [_finding(process, own_data.IN_SIZE_OF_OWN_DATA if own else own_data.IN_SIZE, sizes)]
    return _of_numbers(process, ranks, own, limits)


def _apart(values: dict[int, float], limits: Limits) -> bool:
    return max(values.values()) > (1 + limits["mean"]) * min(values.values())


def _of_numbers(process: Process, ranks: dict[int, Batches], own: bool, limits: Limits) -> Outcome:
    """Numbers of batches, of ranks whose batches have one size; `own`: each rank has samples of its own."""
    counts = [one.steps for one in ranks.values()]
    lengths = {rank: float(one.length) for rank, one in ranks.items() if one.length}
    if all(one.ended for one in ranks.values()) and max(counts) > min(counts) + limits["batches"]:
        # A backward of a wrapped model waits for all ranks: nobody gets past the shortest one unless it is joined.
        if own_data.are_joined(counts, list(lengths.values()), limits["joined"], limits["mean"]):
            return [_finding(process, own_data.JOINED, lengths)]
        return Passed(f"all ranks ended, after {min(counts):,} to {max(counts):,} steps: inputs were joined")
    if len(lengths) == len(ranks) and max(lengths.values()) > min(lengths.values()) + limits["batches"]:
        return [_finding(process, own_data.IN_NUMBER_OF_OWN_DATA if own else own_data.IN_NUMBER, lengths)]
    if len(lengths) < len(ranks) and not all(one.ended for one in ranks.values()):
        return Skipped("a rank's record ended before its batches did, and its loader has no length")
    largest = max(one.usual for one in ranks.values())
    return Passed(f"{plural(len(ranks), 'rank')} take batches of {largest:,.0f}, and equally many")


def _finding(process: Process, uneven: own_data.Uneven, values: dict[int, float]) -> Finding:
    least, most = min(values, key=lambda rank: values[rank]), max(values, key=lambda rank: values[rank])
    low, high = values[least], values[most]
    loader = process.longest.loader or None
    what, place = uneven.what, process.loader_location(loader) if loader else None
    effect = uneven.effect.replace("{idles}", percent(1.0 - low / high))
    loss = assignment.name_of(process.longest.backward_location) or "loss"
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Ranks differ in {what}: {low:,.0f} on rank {least}, {high:,.0f} on rank {most}",
        summary=(
            f"Rank {least} has {low:,.0f} {what}, rank {most} has {high:,.0f}: {percent(high / low - 1)} more. {effect}"
        ),
        fix=uneven.fix,
        fix_code=uneven.code.replace("{loss}", loss),
        verify=uneven.verify,
        first_step=timing.step_at(process.longest, 0), last_step=timing.last_step(process.longest),
        ranks=[least, most],
        evidence=[Evidence(f"{what}, rank {rank}", value) for rank, value in sorted(values.items())[:8]],
        charts=[pictures.of_ranks(f"{what[:1].upper()}{what[1:]}", what.split(maxsplit=1)[0], list(values),
                                  {what: ("compute", list(values.values()))})],
        location=own_data.dealt(process, place) or place or script_lines.drawn_batches(process),
        seen_at=process.site(loader["site"]) if loader else process.longest.backward_location,
        false_alarm="Ranks of different speed that get batches in proportion, with matching weights.",
    )  # fmt: skip


RULE = Rule(
    id="uneven-batches",
    family="distributed",
    severity="warning",
    title="Ranks get different batches",
    about="Averaging gradients requires all ranks to have the same number of batches of the same size.",
    check=check,
    gather=batch_sizes.of_rank,
    verify="Record the run again: all ranks make the same number of steps with batches of the same size.",
    absent="The run has one rank.",
    needs=(("steps.batch_size",),),
    thresholds=(
        Threshold("steps", 10, "steps", "derived: fewer may all be of the first or last kind"),
        Threshold("regular", 0.5, "share", "derived: most batches have one size, or sizes vary on purpose"),
        Threshold("mean", 0.1, "share", "derived: samples of a tenth smaller batch weigh a tenth more"),
        Threshold("joined", 0.5, "share", "derived: half as many batches leave a rank idle for half of the time"),
        Threshold("batches", 1, "batches", "derived: the last batch of an epoch may be one more"),
    ),
    not_when="The last batch of an epoch, batches that vary on every rank and agree in the mean, ranks that died, "
    "uneven inputs under a Join context, but for such that leave a rank idle for half of each epoch.",
    references=("https://docs.pytorch.org/docs/stable/notes/ddp.html",),
)
