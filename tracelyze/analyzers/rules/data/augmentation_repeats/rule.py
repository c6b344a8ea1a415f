"""augmentation-repeats: every epoch draws the same random numbers, so that its augmentation is that of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import draws, validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.data.augmentation_repeats import own_generators
from tracelyze.analyzers.script import batch_lines, script_lines
from tracelyze.analyzers.script.editing import generator_seeds, loader_arguments
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.draws import Part
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """The states in which a worker's generators begin its passes over a loader that feeds the training."""
    if len(process.trainings) > 1:
        return Skipped(
            "several trainings share this process: each may begin in the same state on purpose", "not-applicable"
        )
    own = own_generators.finding(process, RULE.id, limits)
    if own is not None:
        return [own]
    feeding = {int(index) for index in validation.training_loaders(process)}
    training = [part for part in draws.parts(process) if part.loader in feeding]
    by_worker: dict[tuple[object, ...], list[Part]] = {}
    for part in training:
        by_worker.setdefault((part.line, part.worker), []).append(part)
    longest = max(by_worker.values(), key=len, default=[])
    if len(longest) < limits["passes"]:
        return Skipped(f"no dataset with an index was read in {limits['passes']:.0f} passes", "not-applicable")
    drawing = {name for part in longest for name in part.start}
    if not drawing:
        said = "none of the generators that were looked at moved, those of Python, NumPy, torch and the dataset"
        return Passed(f"in {plural(len(longest), 'pass')} over the training data {said}")
    repeated = sorted(name for name in drawing if all(draws.same(found, name) for found in by_worker.values()))
    if not repeated:
        return Passed(f"in {plural(len(longest), 'pass')} the random numbers go on from pass to pass")
    return [_finding(process, longest, repeated, limits)]


def _finding(process: Process, longest: list[Part], repeated: list[str], limits: Limits) -> Finding:
    loader = next(row for row in process.loaders.records() if row["loader"] == longest[0].loader)
    workers = int(loader["num_workers"] or 0)
    name = draws.names(repeated)
    seeds, again = process.location("worker-seed"), script_lines.reseeded(process)
    if workers and repeated == ["own"]:
        why = (
            "Workers are started anew for each epoch with a copy of the dataset, including its generator in the state "
            "of the training process, where it never advances."
        )
        fix = "Give each worker a new seed in every epoch: draw from torch's generator, which the loader seeds."
        code = "def __getitem__(self, index):\n    rng = np.random.default_rng(torch.randint(2**63 - 1, ()).item())"
    else:
        why = "Something re-seeds it, or makes it anew: as each epoch begins, in a worker, or while samples are loaded."
        fix = "Seed the training process once, before the first epoch."
        if workers and seeds is not None:
            fix = f"Seed with the worker's own seed in line {seeds.line}: that differs from epoch to epoch, as long as "
            fix += "the training process is seeded once."
        elif workers:
            fix += (
                " Then the seed that the loader gives to each worker differs from epoch to epoch: seed by that there."
            )
        elif "own" in repeated:
            fix += " Make the dataset, and the generator that it holds, once as well."
        code = generator_seeds.once(["torch"] if workers else repeated)  # torch's gives workers their seeds
        if workers and (seeds is not None or again is None):
            code = generator_seeds.in_each_worker(process, repeated)
            code += loader_arguments.example(process, loader, {"worker_init_fn": "worker_init_fn"})
    drawn, made = batch_lines.draws(process, repeated), process.loader_location(loader)
    line = again if not workers else drawn if repeated == ["own"] else seeds or again
    where = f" Line {drawn.line} draws: {drawn.source}." if drawn is not None else ""
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"Every epoch draws the same random numbers for {loader['dataset']}",
        summary=(
            f"Loading the samples draws from {name}, and in {plural(len(longest), 'pass')} over {loader['dataset']} it "
            f"was in the same state at the same point. {why} Augmentation that should differ between epochs repeats "
            f"that of the first, so the network sees far fewer variants than it seems to.{where}"
        ),
        fix=fix,
        fix_code=code,
        diff=generator_seeds.in_place(process, seeds, repeated) if workers and again is None else None,
        first_step=longest[0].step + 1,  # what is noted of a pass is from its end
        evidence=[
            Evidence("passes that began in the same state", len(longest), "passes", *limits.against("passes")),
            Evidence("generator", name),
            Evidence("num_workers", workers, role="setting"),
        ],
        location=line or drawn or made,
        seen_at=made,
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="Augmentation meant to be the same in each epoch; random numbers that change nothing.",
    )


RULE = Rule(
    id="augmentation-repeats",
    family="data",
    severity="warning",
    title="Augmentation repeats every epoch",
    about="Random numbers for augmentation should continue from epoch to epoch. A seed in the wrong place, or a "
    "generator copied into new workers, restarts them.",
    check=check,
    verify="Record the run again: the generators start each epoch in a different state.",
    excluded=(
        "No augmentation, or one that was kept from the first epoch: random numbers are drawn in every pass.",
        "Chance: states of generators agree bit for bit in three passes.",
    ),
    absent="The run reads no dataset with an index through a DataLoader.",
    needs=(("fetches.moved", "loaders.num_workers"),),
    thresholds=(
        Threshold("passes", 3, "passes", "two equal ones may be a restart; a third says that it goes on"),
        Threshold("again", 8, "samples", "with real numbers in them none is equal by chance; a few may be blank"),
        Threshold("equal", 0.9, "share", "of the samples that came again: a flip drawn anew halves them"),
        Threshold("unchanged", 0.75, "share", "derived: of stored samples that were met; a flip by chance keeps half"),
        Threshold("beyond", 5, "times", "the rate at which samples of one pass equal each other"),
    ),
    not_when="Datasets that generate their samples, validation loaders, streams, samples that draw nothing, several "
    "trainings in one process.",
    references=("https://docs.pytorch.org/docs/stable/notes/randomness.html#dataloader",),
)
