"""A generator that the dataset seeds anew for each sample, by a seed that is the same in each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import passes, validation
from tracelyze.analyzers.computed.splits import overlap
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rules.data.augmentation_repeats import kept_copies
from tracelyze.analyzers.script.editing import own_expressions
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

FIX = (
    "Seed that generator from torch's, which continues from epoch to epoch and which the loader seeds in each worker. "
    "Draw from it as before."
)
FIX_CODE = """# where __getitem__ makes its generator; of the kind that it is, so that it has the same methods:
rng = np.random.default_rng(torch.randint(2**31, ()).item())"""
FILES = "files"  # as the collector writes it, for samples that lie in files
if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits


def finding(process: Process, rule: str, limits: Limits) -> Finding | None:
    """Samples that come again as they were, from a dataset that stores others of their shape and draws beside them.

    A dataset that makes its samples up out of such a generator stores none of their shape: there the same is right. So
    it is where samples are handed out as they are stored, and the generator is for something else.
    """
    loaders = {int(row["loader"]): row for row in process.loaders.records()}
    feeding = {int(index) for index in validation.training_loaders(process)}
    lengths = {index: int(row["length"]) for index, row in loaders.items() if row["length"]}
    drawing = {index for index in feeding if loaders.get(index, {}).get("own_generator") is not None}
    drawing = {index for index in drawing if not passes.paired(process, {index})}  # noise that is to be removed
    trained = _passes(process, {index: str(loaders[index]["stored"] or "") for index in drawing & lengths.keys()})
    kinds = {loaders[one.loader]["own_generator"] for one in trained}
    if len(kinds) != 1 or len(trained) < limits["passes"]:
        return None
    kept = set(str(loaders[trained[0].loader].get("stored_prints") or "").split())
    seen = set[str]().union(*(one.distinct for one in trained))
    if len(kept & seen) > limits["unchanged"] * len(kept):
        return None  # the numbers that are drawn change labels, or choose a partner
    pairs = [([later], trained[:at]) for at, later in enumerate(trained) if at]
    found = overlap.compare(pairs, lengths)
    if found.hits < limits["again"] or found.share < limits["equal"] or found.rate < limits["beyond"] * found.chance:
        return None
    return _finding(process, loaders[trained[0].loader], found, trained, rule, limits)


def _passes(process: Process, stored: dict[int, str]) -> list[overlap.Seen]:
    """What was looked at of the passes over these loaders: fields of real numbers, of the shape of stored samples."""
    prints = passes.prints_of(process)
    found: dict[tuple[int, int], overlap.Seen] = {}
    for row in process.tables["batches"].records():
        if row["loader"] not in stored or not row["trained"] or not row["prints"]:
            continue
        size, _, shape = str(row["shape"]).partition("x")
        told = str(row["dtype"]).startswith(("float", "bfloat", "uint8"))
        if shape and told and any(_is_of(shape, one) for one in stored[row["loader"]].split()):
            one = found.setdefault((row["loader"], row["epoch"]), overlap.Seen(row["loader"], int(row["step"])))
            one.contents += [sample for sample in prints[row["prints"]] if sample != passes.BLANK]
            one.sizes.append(int(size))
    return sorted(found.values(), key=lambda one: one.step)


def _is_of(shape: str, stored: str) -> bool:
    """Whether a sample may be a stored one, or what was cut out of it, or made of a file."""
    if stored == FILES:
        return True
    of, whole = ([int(size) for size in one.split("x") if size != "1"] for one in (shape, stored))
    return len(of) == len(whole) > 0 and all(size <= most for size, most in zip(of, whole, strict=True))


def _finding(
    process: Process,
    loader: dict[str, Any],
    found: overlap.Overlap,
    trained: list[overlap.Seen],
    rule: str,
    limits: Limits,
) -> Finding:
    place = process.site(loader["own_generator"])
    where = f"Line {place.line}" if place is not None else "Its __getitem__"
    kept = kept_copies.of(process, loader, place)
    by = kept.said if kept else "with a seed that is the same in each epoch."
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"{loader['dataset']} draws the same random numbers for a sample in each epoch",
        summary=(
            f"{where} re-seeds a generator for each sample, {by} {plural(found.hits, 'sample')} checked in more than "
            f"one of {len(trained)} passes held the same numbers. Augmentation that should differ between epochs "
            "repeats that of the first, so the network sees far fewer variants than it seems to."
        ),
        fix=kept_copies.FIX if kept else FIX,
        fix_code=kept.code if kept else own_expressions.seeded_by_torch(place) or FIX_CODE,
        first_step=trained[1].step + 1,  # samples came again in the second pass
        evidence=[
            Evidence("samples that came again as they were", found.hits, "samples", *limits.against("again")),
            Evidence("of all that came again", found.share, "share", *limits.against("equal")),
        ],
        location=(kept.place if kept else place) or process.loader_location(loader),
        seen_at=process.loader_location(loader),
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="Noise that belongs to the data and should be the same in each epoch.",
    )  # fmt: skip
