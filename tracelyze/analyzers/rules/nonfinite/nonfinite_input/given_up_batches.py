"""Batches that a loop gives up because their loss is no number: what the model was given there."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import batch_lines, script_lines
from tracelyze.analyzers.script.candidates import preparing
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line, trainer_examples
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

Row = dict[str, Any]

FIX_DATA: Final = (
    "Find the sample in the data: missing values, a division by zero while normalising, a corrupt file. Fill or drop "
    "it where data are prepared, and let the data set refuse such samples."
)
_LEFT_OUT: Final = (
    "# {where}, until the data are repaired: leaves out samples with NaN or Inf\n"
    "good = torch.isfinite({inputs}).reshape(len({inputs}), -1).all(1)\n"
)
_WITHOUT_THEM: Final = (
    "# until the data are repaired: leaves out samples with NaN or Inf\n"
    "good = [at for at in range(len(dataset)) if torch.isfinite(torch.as_tensor(dataset[at][{key}])).all()]\n"
    "dataset = torch.utils.data.Subset(dataset, good)"
)


@dataclass(frozen=True)
class GivenUp:
    """Rows of the batches that the loop gave up and that were looked at: those with NaN or Inf, and how many in all."""

    rows: list[Row]
    looked_at: int
    trained: int  # fields of batches that were trained on, all finite
    events: list[Row]  # losses that were no number; empty where the script writes its loss out itself


def with_nan(process: Process, suspects: list[Row], limits: Limits) -> GivenUp | None:
    """What the model was given where the loss was no number and no backward followed, if most of it holds NaN or Inf.

    None where a batch that was trained on holds some as well: the script copes with them. `suspects`: rows of batches
    that are not finite. Batches of another shape than those of the training are a validation's.
    """
    events = process.events_of("loss-given-up")
    steps = {row["step"] for row in events} or _without_backward(process)
    if not steps or not process.optimizations:
        return None
    rows = [row for row in process.tables["batches"].records() if row["nonfinite"] is not None]
    trained = [row for row in rows if row["trained"] != 0]
    bad = [row for row in suspects if row["trained"] == 0 and row["step"] in steps and _is_of(row, trained)]
    fields = {(row["loader"], row["field"]) for row in bad}
    there = [row for row in trained if (row["loader"], row["field"]) in fields]
    given_up = [row for row in rows if row["trained"] == 0 and row["step"] in steps and _is_of(row, trained)]
    looked_at = len({_batch(row) for row in given_up})
    if not events and not _here_and_there(steps, bad, limits):
        return None
    enough = len({_batch(row) for row in bad}) >= limits["most"] * looked_at
    if not bad or not enough or any(row["nonfinite"] for row in there):
        return None
    return GivenUp(bad, looked_at, len(there), events)


def _without_backward(process: Process) -> set[float]:
    """Steps after which the trained model was called as in training, and no backward followed."""
    evals = process.evals
    alike = (evals["grad_mode"] == validation.GRAD) & (evals["model_in_train"] == 1) & (evals["trained"] == 1)
    return set(evals["after_step"][alike].tolist())


def _here_and_there(steps: set[float], rows: list[Row], limits: Limits) -> bool:
    """Whether it happens now and then: a validation that is called as in training comes at equal intervals."""
    gaps = np.diff(np.sort(np.array(list(steps))))
    if len({row["step"] for row in rows}) < limits["batches"] or len(gaps) < limits["batches"]:
        return False
    return bool(np.unique(gaps, return_counts=True)[1].max() < limits["regular"] * len(gaps))


def _is_of(row: Row, trained: list[Row]) -> bool:
    """Whether this loader's batches of the training look like that; of no batch that was trained on it is not known."""
    alike = [one for one in trained if (one["loader"], one["field"]) == (row["loader"], row["field"])]
    return not trained or any(one["shape"] == row["shape"] for one in alike)


def _batch(row: Row) -> tuple[Any, ...]:
    return row["loader"], row["epoch"], row["batch"]


def finding(process: Process, found: GivenUp, rule: str, limits: Limits) -> Finding:
    """What is wrong with the batches that the loop gave up."""
    optimization, events = process.longest, found.events
    begin = int((events or found.rows)[0]["step"] or 0) + 1
    loss = f"Their loss was {events[0]['name'] or 'NaN'}, and no" if events else "No"
    later = int((timing.numbers(optimization) >= begin).sum())
    lost = max(len(events), validation.unused_forwards(process))  # of a loop that has settled not every loss is seen
    share = lost / (lost + len(optimization.steps))
    row, count = found.rows[-1], len({_batch(one) for one in found.rows})
    loader = loader_of(process, row)
    divided = preparing.line(process) if without_dataset(process, loader) else None
    seen = process.site((loader or {}).get("site")) or process.location("loss") or optimization.loss_location
    missing = script_lines.past_missing(process)
    place = missing or divided or (prepared_at(process, loader) if loader else batch_lines.entering(process))
    divides = missing is None and (divided is not None or (place is not None and "/" in code_of(place.source)))
    fix, code = preparing.remedy(process, place) if divides else (FIX_DATA, left_out(process, seen, row))
    came = "the loader handed them out" if loader else "the model was given them"
    sure = bool(events) and count >= limits["batches"] and found.trained >= limits["batches"]
    return Finding(
        rule=rule,
        severity="critical" if not later else "info" if share < limits["lost"] else "warning",
        confidence="certain" if sure else "likely",
        title=f"Batches hold NaN or Inf, and the loop skips them: {percent(share)} of all",
        summary=(
            f"Of {plural(found.looked_at, 'batch')} that the loop gave up and that were looked at, {count} held NaN or "
            f"Inf as {came}, in field {row['field']} ({row['dtype']}, "
            f"{row['shape']}). No batch that was trained on did. {loss} "
            "backward followed. What such batches have in common is never learned."
            f"{script_lines.said(missing, 'takes statistics past NaN, and it keeps the NaN')}"
        ),
        fix=fix,
        fix_code=code,
        first_step=begin,
        evidence=[
            Evidence("batches with NaN or Inf that were given up", count, "batches"),
            Evidence("share of the batches that is given up", share, "share", *limits.against("lost")),
            Evidence("fields of trained batches, all finite", found.trained, "fields", role="basis"),
        ],
        location=place or seen,
        seen_at=seen,
        charts=pictures.loss(optimization),
        false_alarm="Missing values that the model masks, if the loss is no number there for another reason.",
    )


def left_out(process: Process, loop: Location | None, row: Row) -> str:
    """Samples with NaN or Inf left out of what the loop over the loader names, if that is inputs and targets; of the
    dataset, where the loop is a trainer's or names a batch of several fields. `row`: of the batch that held them. What
    is known by "0" alone may be a tensor as well as the only entry of a tuple."""
    names, loader = _named(loop), loader_of(process, row)
    fields = {one["field"] for one in process.tables["batches"].records() if one["loader"] == row["loader"]}
    field = str(row["field"])
    has_fields = "." not in field and (len(fields) > 1 or not field.isdigit())
    has_no_loop = bool(trainer_examples.trainer_of(process)[0])
    if loader is not None and not loader.get("iterable") and has_fields and (len(names) < 2 or has_no_loop):
        return _WITHOUT_THEM.format(key=field if field.isdigit() else json.dumps(field))
    where = f"right below line {loop.line}" if names and loop is not None else "before the model is called"
    names = names or ["inputs", "targets"]
    code = _LEFT_OUT.format(inputs=names[0], where=where)
    if len(names) > 1:
        code += f"good &= torch.isfinite({names[1]}).reshape(len(good), -1).all(1)\n"
    return f"{code}{', '.join(names)} = {', '.join(f'{name}[good]' for name in names)}"


def _named(loop: Location | None) -> list[str]:
    """The one or two variables of a `for`, without the number that enumerate gives."""
    line = parsed_line.of(loop)
    head = line.statement if line is not None else None
    target = head.target if isinstance(head, ast.For) else None
    if isinstance(head, ast.For) and isinstance(target, ast.Tuple) and isinstance(head.iter, ast.Call):
        target = target.elts[-1] if parsed_line.name_of(head.iter.func) == "enumerate" else target
    parts = target.elts if isinstance(target, ast.Tuple) else []
    names = [one.id for one in parts if isinstance(one, ast.Name)]
    return names if len(names) == len(parts) <= 2 else []


def loader_of(process: Process, row: Row) -> Row | None:
    """The loader that handed out a batch."""
    return next((one for one in process.loaders.records() if one["loader"] == row["loader"]), None)


def without_dataset(process: Process, loader: Row | None) -> bool:
    """Whether no dataset of the script's own reads the samples: what prepares them is another function."""
    return loader is None or (process.site(loader.get("read_by")) or batch_lines.sample(process, loader)) is None


def prepared_at(process: Process, loader: Row) -> Location | None:
    """The line by which the script's own dataset reads a sample: where it divides or takes a logarithm or a root, if
    one line of what was recorded does, else its definition. Without such a dataset, the line that makes the loader."""
    reader = process.site(loader.get("read_by"))
    divides = script_lines.singular_beside(process, reader) if reader is not None else None
    return divides or batch_lines.sample(process, loader) or process.loader_location(loader)
