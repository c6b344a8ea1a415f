"""duplicate-augmentation: the workers of a loader draw the same random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import draws, validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script import batch_lines
from tracelyze.analyzers.script.datasets import held_generators
from tracelyze.analyzers.script.editing import generator_seeds, loader_arguments
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.draws import Part
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

HELD = ["own"]  # the generator that the dataset itself holds
FROM_TORCH = "Draw from torch's generator, which the loader seeds in each worker, or seed one by it for each sample."
FROM_TORCH_CODE = "def __getitem__(self, index):\n    rng = np.random.default_rng(torch.randint(2**63 - 1, ()).item())"


def check(process: Process, limits: Limits) -> Outcome:
    """The states in which the workers of one loader begin one pass."""
    feeding = {int(index) for index in validation.training_loaders(process)}
    passes: dict[tuple[int, int], list[Part]] = {}
    for part in draws.parts(process):
        if part.loader in feeding and part.worker >= 0:
            passes.setdefault((part.loader, part.epoch), []).append(part)
    stay = {int(row["loader"]) for row in process.loaders.records() if row["persistent_workers"]}
    # Workers that stay are seeded once, before their first pass; after it they have drawn for other numbers of batches.
    passes = {key: found for key, found in passes.items() if key[0] not in stay or key[1] == 0}
    several = [found for found in passes.values() if len(found) >= limits["workers"]]
    if not several:
        return Skipped("no dataset with an index was read by several workers", "not-applicable")
    drawing = {name for found in several for part in found for name in part.start}
    if not drawing:
        return Passed(f"in {plural(len(several), 'pass')} none of the workers' generators moved that were looked at")
    equal = sorted(name for name in drawing if all(draws.same(found, name) for found in several))
    if not equal:
        return Passed(f"each worker draws random numbers of its own in {plural(len(several), 'pass')}")
    return [_finding(process, several, equal, limits)]


def _finding(process: Process, several: list[list[Part]], equal: list[str], limits: Limits) -> Finding:
    loader = next(row for row in process.loaders.records() if row["loader"] == several[0][0].loader)
    workers, name = len(several[0]), draws.names(equal)
    remedy, seen = _remedy(process, loader, equal)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"{workers} workers draw the same random numbers for {loader['dataset']}",
        summary=(
            f"Loading the samples draws from {name}, and {workers} workers began "
            f"{'their first pass' if len(several) == 1 else plural(len(several), 'pass')} with it in the same state"
            + (": each has a copy of the dataset and its generator. " if equal == HELD else ". ")
            + f"Batches of different workers get the same augmentation, in the same order.{remedy.why}"
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        diff=remedy.diff,
        first_step=1,
        evidence=[
            Evidence("workers in the same state", workers, "workers", *limits.against("workers")),
            Evidence("passes in which they were", len(several), "passes"),
            Evidence("generator", name),
        ],
        location=remedy.place,
        seen_at=seen,
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="Random numbers that change nothing in the samples.",
    )


def _remedy(process: Process, loader: dict[str, Any], equal: list[str]) -> tuple[Remedy, Location | None]:
    """What to change, and the line at which it was seen."""
    made, drawn = process.loader_location(loader), batch_lines.draws(process, equal)
    maker = held_generators.made(process) if equal == HELD else None
    why = f" Line {maker.line} makes it: {maker.source}." if maker is not None else ""
    why += f" Line {drawn.line} draws: {drawn.source}." if drawn is not None else ""
    if equal == HELD and held_generators.by_trainer(process, loader):
        remade = held_generators.in_each_worker(process, maker) if maker is not None else ""
        if maker is not None and remade:
            return Remedy(held_generators.FIX.format(maker.line), remade, maker, why=why), drawn
        seen = drawn if maker is not None else made
        return Remedy(FROM_TORCH, FROM_TORCH_CODE, maker or drawn or made, why=why), seen
    seeds = process.location("worker-seed") if equal != HELD else None
    line = seeds or drawn or process.site(loader.get("read_by"))
    code = generator_seeds.in_each_worker(process, equal)
    code += loader_arguments.example(process, loader, {"worker_init_fn": "worker_init_fn"})
    if seeds is not None:
        fix = f"Seed with the worker's own seed in line {seeds.line}, which runs in each worker."
        return Remedy(fix, code, seeds, generator_seeds.in_place(process, seeds, equal), why), made
    there = f" (line {made.line})" if made is not None and line is not None else ""
    fix = f"Let each worker seed its generator with its own seed, and pass that function to the loader{there}."
    if equal == HELD and made is not None:  # nothing changes where it draws: each worker gets one, through the loader
        return Remedy(fix, code, made, why=why), line
    return Remedy(fix, code, line or made, why=why), made


RULE = Rule(
    id="duplicate-augmentation",
    family="data",
    severity="warning",
    title="Workers repeat each other's augmentation",
    about="torch seeds its own, Python's and NumPy's generators in each worker. A generator that the dataset holds, "
    "or that worker_init_fn seeds with a constant, is the same in all workers.",
    check=check,
    verify="Record the run again: the workers' generators start in different states.",
    excluded=(
        "A generator that each worker makes or seeds on its first sample: that is seen, and its state compared.",
        "Chance: states of generators agree bit for bit, in every pass that workers begin.",
    ),
    absent="The run reads no dataset with an index through several workers.",
    needs=(("fetches.moved", "loaders.num_workers"),),
    thresholds=(Threshold("workers", 2, "workers", "derived: one has nobody to agree with"),),
    not_when="One worker or none, streams (see duplicated-batches), validation loaders.",
    references=("https://docs.pytorch.org/docs/stable/notes/faq.html#dataloader-workers-random-seed",),
)
