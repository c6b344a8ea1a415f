"""batch-dimension-mismatch: one field of the batches has a single row, which is stretched over all samples."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.data.batch_dimension_mismatch import lone_rows
from tracelyze.analyzers.script.editing import own_expressions
from tracelyze.diagnosis import Evidence, Finding, Severity
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Place = tuple[float | None, float | None, float | None]
Fields = dict[Place, dict[str, int]]  # rows of each field, by batch


def check(process: Process, limits: Limits) -> Outcome:
    """First dimensions of the fields of each batch of a loader that was trained on, and whether contents change."""
    sizes: Fields = defaultdict(dict)
    flat: Fields = defaultdict(dict)  # the fields of one dimension
    contents: dict[str, set[str]] = defaultdict(set)
    for row in process.tables["batches"].records():
        shape = loss_calls.sizes(row["shape"])
        if row["trained"] and row["loader"] is not None and shape:
            place = row["loader"], row["epoch"], row["batch"]
            (sizes if len(shape) > 1 else flat)[place][str(row["field"])] = shape[0]
            contents[str(row["field"])].add(str(row["print"]))
    number = _one_number(process, sizes, flat, contents, limits)
    if number is not None:
        return [number]
    several = [fields for fields in sizes.values() if len(fields) > 1 and max(fields.values()) > 1]
    if len(several) < limits["batches"]:
        return Skipped("fewer than three batches were looked at that have several fields of two dimensions or more")
    for name in sorted({name for fields in several for name in fields}):
        short = [fields for fields in several if fields.get(name) == 1]
        others = [size for fields in short for other, size in fields.items() if other != name]
        if len(short) < limits["share"] * len(several) or min(others, default=1) < 2:
            continue
        if len(contents[name]) > 1 and all(len(set(f.values())) == 2 for f in short):
            return [_finding(process, name, max(others), len(several), limits)]
    return Passed(f"all fields have a row for each sample, or are shared, in {plural(len(several), 'batch')}")


def _one_number(
    process: Process, sizes: Fields, flat: Fields, contents: dict[str, set[str]], limits: Limits
) -> Finding | None:
    """A field [1] where all others have as many rows as the loader's batches have samples. It may be meant for the
    whole batch, a weight of mixing say, and is told as information."""
    samples = {row["loader"]: row["batch_size"] or 1 for row in process.loaders.records()}
    full = []
    for place, fields in flat.items():
        rows = {size for size in (*sizes[place].values(), *fields.values()) if size != 1}
        if rows == {samples.get(place[0])}:
            full.append((fields, max(rows)))
    for name in sorted({name for fields, _ in full for name, size in fields.items() if size == 1}):
        short = [rows for fields, rows in full if fields.get(name) == 1]
        if len(short) >= max(limits["batches"], limits["share"] * len(full)) and len(contents[name]) > 1:
            return _finding(process, name, max(short), len(full), limits, severity="info")
    return None


def _finding(
    process: Process, name: str, rows: int, batches: int, limits: Limits, severity: Severity = "warning"
) -> Finding:
    optimization = process.longest
    loader = next((row for row in process.loaders.records() if row["loader"] == optimization.steps["loader"][0]), None)
    collates = process.site(loader.get("collated_by")) if loader else None
    last = name.rpartition(".")[2]
    first_alone = collates is not None and "[0]" in collates.source and (last.isdecimal() or last in collates.source)
    whose, seen = lone_rows.of_one(process, loader["loader"], name, limits) if loader else ("", 0)
    of_last = whose == "last"
    severity = "warning" if seen and severity == "info" else severity
    below = lone_rows.below_loop(process, collates, last) if of_last else None
    edit = below.diff if below else lone_rows.of_all(process, collates) if first_alone and seen else None
    return Finding(
        rule=RULE.id,
        severity="critical" if first_alone and severity != "info" else severity,
        confidence="likely" if first_alone or seen else "possible",
        title=f"Field {name} of the batches has one row for {rows} samples" + (f": the {whose} one's" if seen else ""),
        summary=(
            f"In all {seen} batches that were looked at as they were put together, field {name} is a single row, "
            f"that of the {whose} sample, although the samples differ there. It is broadcast to all {rows} samples: "
            "the others train on its data."
            if seen
            else f"In all {batches} batches that were looked at, field {name} has a single row while the others have "
            f"one for each of {rows} samples, and its content differs from batch to batch: if it belongs to one "
            "sample, it is broadcast to all of them, and all but one train on another sample's data."
        ),
        fix=below.fix if below else "Stack the field like the others in collate_fn, one row for each sample.",
        fix_code=(below.code if below else "")
        or own_expressions.stacked(process, collates)
        or (lone_rows.collected(process, collates, _element(name)) if of_last else "")
        or lone_rows.unpacked(process, collates, name)
        or _stacked(name),
        first_step=timing.step_at(optimization, 0),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("rows of the field", 1, "rows", rows, "as many as the other fields have", role="expected"),
            Evidence("batches looked at", seen or batches, "batches", *limits.against("batches"), role="basis"),
        ],
        diff=edit,
        location=(below.place if below else collates) or (process.loader_location(loader) if loader else None),
        seen_at=process.loader_location(loader) if loader else None,
        charts=pictures.loss(optimization),
        false_alarm="A field that describes the whole batch: one domain, one length, one time step for all samples.",
    )


def _stacked(name: str) -> str:
    """The field made of all samples, which are tuples where it has a number and mappings where it has a key."""
    field = _element(name)
    made = f"torch.stack([torch.as_tensor(sample{field}) for sample in samples])"
    if name.split(".", maxsplit=1)[0].isdecimal():  # a tuple is made of its fields
        return f"field = {made}  # batch{field}, in collate_fn"
    return f"batch{field} = {made}"


def _element(name: str) -> str:
    """How a batch or a sample holds a field: `[2]`, `['image']`."""
    return "".join(f"[{part if part.isdecimal() else repr(part)}]" for part in name.split("."))


RULE = Rule(
    id="batch-dimension-mismatch",
    family="data",
    severity="warning",
    title="A field of the batches has too few rows",
    about="A tensor with one row is silently broadcast to all samples: they all get the values of one.",
    check=check,
    verify="Record the run again: every field has a row for each sample.",
    needs=(("batches.shape", "batches.print"),),
    thresholds=(
        Threshold("batches", 3, "batches", "the last one of an epoch may hold a single sample"),
        Threshold("share", 0.95, "share", "a line of code does it in every batch"),
        Threshold("chance", 1e-3, "", "that a row of any other sample equals the last one's in all batches"),
    ),
    not_when="Tensors that are the same in every batch (positions, masks, class weights), scalars, last batches.",
)
