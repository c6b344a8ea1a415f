"""duplicated-batches: every worker of a stream's loader yields the whole stream, so each sample comes several times."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import passes
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.data.duplicated_batches import divided_streams
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import times

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.passes import Pass
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
ASKED = (
    " Line {line} asks which worker it runs in as the dataset is made: that is in the training process, where "
    "get_worker_info() returns None."
)


def check(process: Process, limits: Limits) -> Outcome:
    """Neighbouring batches: those of different workers come in turn, so copies of one another lie side by side."""
    streams = {int(row["loader"]): row for row in process.loaders.records() if row["iterable"]}
    streams = {index: row for index, row in streams.items() if (row["num_workers"] or 0) > 1}
    if not streams:
        return Skipped("no stream is read by several workers", "not-applicable")
    looked = False
    for loader, row in streams.items():
        own = [one for one in passes.of_training(process) if one.loader == loader]
        workers = int(row["num_workers"])
        within = [equal for one in own for equal in _neighbours(one, workers)]
        between = [equal for one in own for equal in _others(one, workers)]
        looked = looked or (len(within) >= limits["pairs"] and len(between) > 0)
        if len(within) >= limits["pairs"] and all(within) and between and not any(between):
            return [_finding(process, row, own[0], len(within), limits)]
    if not looked:
        return Skipped("too few batches of a stream were looked at")
    return Passed("the workers of a stream yield different batches")


def _neighbours(one: Pass, workers: int) -> list[bool]:
    """For each pair of batches that follow each other within one turn of the workers, whether their content is the
    same."""
    pairs = [(at, at + 1) for at in one.batches if at + 1 in one.batches and at // workers == (at + 1) // workers]
    return [one.batches[a] == one.batches[b] for a, b in pairs]


def _others(one: Pass, workers: int) -> list[bool]:
    """For each pair of first batches of turns that follow each other, whether their content is the same: they say
    whether anything differs at all."""
    first = {at // workers: content for at, content in sorted(one.batches.items(), reverse=True)}
    contents = list(first.values())
    return [a == b for a, b in pairwise(contents)]


def _finding(process: Process, loader: Row, one: Pass, pairs: int, limits: Limits) -> Finding:
    optimization = process.longest if process.optimizations else None
    workers = int(loader["num_workers"])
    asked = script_lines.only(process, "worker-asked")
    method = asked.function if asked is not None and asked.function != "__init__" else None
    reader = process.site(loader.get("read_by"))
    divided = None if asked is not None else divided_streams.by_the_loop(process, reader)
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain",
        title=f"Every batch comes {times(workers)}: each worker reads all of {loader['dataset']}",
        summary=(
            f"{loader['dataset']} is a stream read by {workers} workers, and batches from different workers hold the "
            f"same samples ({pairs} pairs of neighbours compared, all equal). Each worker has a copy of the dataset "
            f"and reads all of it, so an epoch is {times(workers)} as long as it should be, and the model trains on "
            f"each batch {times(workers)} in a row." + (ASKED.format(line=asked.line) if asked else "")
        ),
        fix=divided.fix if divided is not None else divided_streams.FIX,
        fix_code=f"self.{method}()  # first in __iter__, which runs in each worker"
        if method
        else divided.code
        if divided is not None
        else divided_streams.CODE,
        first_step=one.step + 1,
        evidence=[
            Evidence("neighbouring batches that are equal", pairs, "pairs", *limits.against("pairs")),
            Evidence("num_workers", workers, role="setting"),
            Evidence("dataset", loader["dataset"], role="setting"),
        ],
        location=asked or (divided.line if divided is not None else reader) or process.loader_location(loader),
        seen_at=process.site(loader.get("site")),
        charts=pictures.loss(optimization) if optimization else [],
        false_alarm="A stream meant to repeat every batch once per worker.",
    )


RULE = Rule(
    id="duplicated-batches",
    family="data",
    severity="critical",
    title="Workers yield the same batches",
    about="If a stream (IterableDataset) does not check which worker it runs in, every worker reads it from the start.",
    check=check,
    verify="Record the run again: neighbouring batches differ, and an epoch has as many batches as the data can fill.",
    excluded=("One sample that comes often: all pairs of neighbours are equal, batches further apart are not.",),
    absent="No stream is read by several workers.",
    needs=(("batches.print", "loaders.num_workers"),),
    thresholds=(Threshold("pairs", 4, "pairs", "four in a row are no coincidence of one oversampled batch"),),
    not_when="Datasets with an index, one worker or none, streams of equal or blank samples.",
    references=("https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",),
)
