"""augmentation-repeats: every epoch draws the same random numbers, so that its augmentation is that of the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed import own_generators
from tracelyze.analyzers.computed.data import draws, validation
from tracelyze.analyzers.evidence import batch_lines, pictures, script_lines
from tracelyze.analyzers.evidence.editing import loader_arguments
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
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
    if workers and repeated == ["own"]:
        why = (
            "Workers are forked again for each epoch with a copy of the dataset, including its generator in the state "
            "of the training process, where it never advances."
        )
        fix = "Give each worker a new seed in every epoch: draw from torch's generator, which the loader seeds."
        code = "def __getitem__(self, index):\n    rng = np.random.default_rng(torch.randint(2**63 - 1, ()).item())"
    else:
        why = "Something re-seeds it: at the start of each epoch, in worker_init_fn, or while samples are loaded."
        fix = "Seed once, before the first epoch; in worker_init_fn use torch.initial_seed(), which differs each epoch."
        code = (
            "def worker_init_fn(worker_id):\n    np.random.seed(torch.initial_seed() % 2**32)\n\n"
            + loader_arguments.example(process, loader, {"worker_init_fn": "worker_init_fn"})
            if workers
            else "np.random.seed(0)  # once, above the loop over the epochs, and nowhere below it"
        )
    drawn, made = batch_lines.draws(process, repeated), process.loader_location(loader)
    if not workers:
        line = script_lines.reseeded(process)
    else:
        line = drawn if repeated == ["own"] else process.location("worker-seed")
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
        first_step=longest[1].step,
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
