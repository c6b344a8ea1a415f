"""A weighted sampler that draws the same few samples again and again, as one with one weight for each class."""

from __future__ import annotations

import ast
import re
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.computed.data.passes import BLANK, prints_of
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

SAMPLER: Final = "WeightedRandomSampler"
FIX: Final = (
    f"Give {SAMPLER} one weight for each sample of the dataset: index the weights of the classes by the label of each "
    "sample."
)
_EXAMPLE: Final = f"sampler = {SAMPLER}(torch.as_tensor(class_weights)[labels], num_samples=len(labels))"
_BATCHES: Final = 8  # batches that have to have been looked at
_AGAIN: Final = 50  # how often each is drawn in one pass, on average: a small dataset, once for each that it holds
_ELEMENTS: Final = 8  # of a sample: rows of few columns may be the same by chance


class FewDrawn(NamedTuple):
    """How many different samples were drawn, of how many that were looked at; the line of the sampler, and advice."""

    different: int
    said: str
    place: Location | None
    code: str


def of(process: Process, optimization: Optimization) -> FewDrawn | None:
    """What the batches that were looked at show of the sampler that feeds the training."""
    loader = optimization.loader
    if loader.get("sampler") != SAMPLER:
        return None
    prints, fields = prints_of(process), dict[str, list[list[str]]]()
    for row in process.tables["batches"].shared_records():
        if row["loader"] == loader["loader"] and row["trained"] and row["prints"]:
            sizes = [int(size) for size in str(row["shape"]).split("x")[1:]]
            if str(row["dtype"]).startswith(("float", "bfloat")) and prod(sizes) >= _ELEMENTS:
                fields.setdefault(str(row["field"]), []).append(prints[row["prints"]])
    looks = max(fields.values(), key=lambda batches: len({one for batch in batches for one in batch}), default=[])
    samples = [one for batch in looks for one in batch]
    different, of_a_pass = len(set(samples)), (loader.get("length") or 0) * (loader.get("batch_size") or 0)
    if len(looks) < _BATCHES or BLANK in samples or different * _AGAIN > min(len(samples), of_a_pass):
        return None
    said = (
        f" Of {len(samples):,} samples in {plural(len(looks), 'batch', 'batches')} of the training looked at, only "
        f"{different} are different: {SAMPLER} draws from as many samples as it is given weights, the first ones of "
        "the dataset, and never those whose weight is zero."
    )
    lines = recorded_text.matching(process, re.compile(rf"\b{SAMPLER}\s*\("))
    place = lines[0] if len(lines) == 1 else None
    return FewDrawn(different, said, place, _example(process, place) or _EXAMPLE)


def _example(process: Process, place: Location | None) -> str:
    """The statement that makes the sampler, with the weights of the classes looked up by the labels, as a list
    cannot be."""
    own = own_statement.at(process, place)
    call = own.only_call(SAMPLER) if own is not None else None
    if own is None or call is None:
        return ""
    given = next((one.value for one in call.keywords if one.arg == "weights"), call.args[0] if call.args else None)
    if not isinstance(given, ast.Name | ast.Attribute):
        return ""
    return own.dedented(own.parsed.with_parts({given: f"torch.as_tensor({own.parsed.text_of(given)})[labels]"}))
