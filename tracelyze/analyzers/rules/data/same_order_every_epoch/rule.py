"""same-order-every-epoch: a loader that is to shuffle hands out the same batches in the same order, pass after pass."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import draws, passes, repeated_order
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.data.same_order_every_epoch import epochs_untold, put_back, seeded_loaders
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.passes import Pass
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """Passes over one loader, or over loaders that one line makes anew, against the pass before."""
    order = repeated_order.of(process)
    shuffling = {int(row["loader"]): row for row in process.loaders.records() if epochs_untold.shuffles(row)}
    if order is None and not len(process.loaders):
        return Skipped("the run uses no DataLoader", "not-applicable")
    if len(process.trainings) > 1 and (order is not None or shuffling):
        return Skipped(
            "several trainings share this process: each may begin with the same order on purpose", "not-applicable"
        )
    if order is not None and repeated_order.repeats(order, limits) and repeated_order.shuffles(process):
        return [repeated_order.finding(process, RULE.id, order, limits)]
    if not shuffling:
        return Passed("nothing that is to be shuffled comes in the same order again")
    lines: dict[tuple[Any, ...], list[Pass]] = {}
    for one in passes.of_training(process):
        loader = shuffling.get(one.loader)
        if loader is not None and (one.distinctive >= limits["batches"] or _of_samples(loader, one, limits)):
            lines.setdefault(
                (one.loader if loader["made_at"] is None else loader["made_at"], loader["dataset"], loader["length"]),
                [],
            ).append(one)
    longest = max(lines.values(), key=len, default=[])
    if len(longest) < limits["passes"]:
        return Skipped(f"no loader that shuffles made {limits['passes']:.0f} passes of which enough was looked at")
    for line in lines.values():
        least = 1 if all(_of_samples(shuffling[one.loader], one, limits) for one in line) else limits["batches"]
        later = line[0].common(line[1]) and line[0].agreement(line[1]) < 1.0 if len(line) > limits["passes"] else False
        line = line[1:] if later else line  # what puts the order back may first run when a pass is over
        pairs = [(a, b) for a, b in pairwise(line) if len(a.common(b)) >= least]
        same = [(a, b) for a, b in pairs if a.agreement(b) == 1.0]
        if len(line) >= limits["passes"] and pairs and len(same) >= limits["share"] * len(pairs):
            if _draws(process, line):
                return Skipped("loading draws random numbers: equal samples may be other ones with equal augmentation")
            return [_finding(process, shuffling, line, limits, "Every epoch" + " after the first" * bool(later))]
    return Passed(f"{plural(len(longest), 'pass')} over one loader: their order differs")


def _draws(process: Process, line: list[Pass]) -> bool:
    """Whether samples are made from random numbers, so that their content does not identify them."""
    loaders = {one.loader for one in line}
    return any(part.start for part in draws.parts(process) if part.loader in loaders)


def _of_samples(loader: Row, one: Pass, limits: Limits) -> bool:
    """Whether batches are drawn sample by sample, and hold so many that none is equal to another by chance."""
    return bool(loader["batch_size"]) and one.samples >= limits["samples"]


def _finding(process: Process, shuffling: dict[int, Row], line: list[Pass], limits: Limits, which: str) -> Finding:
    loader = shuffling[line[0].loader]
    optimization = process.longest if process.optimizations else None
    anew = len({one.loader for one in line}) > 1
    untold = epochs_untold.of(process, loader)
    again = seeded_loaders.of(process, loader) if anew and not untold else None
    seeds = None if untold else again.line if again else script_lines.reseeded(process)
    later = ", and other random numbers repeat as well" if script_lines.seeds_all(seeds) else ""
    although = f", although the loader shuffles ({loader['sampler']})" if loader["shuffled"] else ""
    if untold:
        why, fix, code, diff = untold.why, untold.fix, untold.code, untold.diff
    elif again:
        why, fix, code, diff = again.why, again.fix, again.code, again.diff
    else:
        known = seeds is not None and not anew and script_lines.orders(seeds, loader)
        why, fix, code, diff = put_back.advice(process, loader, seeds if known else None, anew)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely" if untold and not untold.certain else "certain",
        title=f"{which} uses the same order" + (", although the loader shuffles" if loader["shuffled"] else ""),
        summary=(
            f"In {plural(len(line), 'pass')} over {loader['dataset']} every batch checked held the same samples at the "
            f"same place{although}. {why} So batch noise does not average out{later}."
        ),
        fix=fix,
        fix_code=code,
        first_step=line[1].step + 1,
        evidence=[
            Evidence("passes with the same order", len(line), "passes", *limits.against("passes")),
            Evidence("batches compared in each", len(line[0].common(line[1])), "batches", role="basis"),
            Evidence("sampler", loader["sampler"], role="setting"),
        ],
        diff=diff,
        location=(untold.location if untold else seeds if again or not anew else None)
        or process.loader_location(loader),
        seen_at=process.loader_location(loader),
        charts=pictures.loss(optimization) if optimization else [],
        traits=frozenset({"left-early"}) if untold and untold.left else frozenset(),
        false_alarm="An order meant to repeat, for example to compare batch by batch.",
    )


RULE = Rule(
    id="same-order-every-epoch",
    family="data",
    severity="warning",
    title="The same order in every epoch",
    about="A loader that shuffles should draw a new order for each pass. A missing set_epoch, or a seed in the wrong "
    "place, gives the same order every time.",
    check=check,
    verify="Record the run again: batches at the same place differ from epoch to epoch.",
    excluded=(
        "Two equal epochs by chance, or after a restart: three or more agree.",
        "Blank or repeated samples: several different batches are compared.",
    ),
    absent="The run uses no DataLoader.",
    needs=(("loaders.sampler", "batches.print"), ("events.text",)),
    thresholds=(
        Threshold("passes", 3, "passes", "two equal ones may be a restart; a third says that it goes on"),
        Threshold("batches", 4, "batches", "4 places of 5 batches or more agree by chance once in 120 passes at most"),
        Threshold("samples", 6, "samples", "6 of them come in the same order once in 720 passes at most"),
        Threshold(
            "adjoining", 0.5, "share", "of the inputs: slices in a row are data in the order that they are kept in"
        ),
        Threshold("share", 0.9, "share", "of the pairs of passes: one of many may be a new beginning"),
    ),
    not_when="Loaders without shuffling, samplers of the script's own without a set_epoch, several trainings in one "
    "process, random augmentation (content differs, so the order cannot be seen).",
    references=("https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",),
)
