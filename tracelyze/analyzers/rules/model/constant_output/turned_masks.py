"""A mask of attention that hides what it should show: all that attention may look at is padding."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Threshold
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import attended_rows
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Diff, Location

Row = dict[str, Any]

_GIVEN: Final = "attention_mask"  # of models of transformers
_BOOLS: Final = r"[A-Za-z_][\w.]*\.(?:bool\(\)|to\(torch\.bool\))"
_EXAMPLE: Final = (
    "encoder(x, src_key_padding_mask=ids == pad_id)  # torch: True at padding\n"
    "model(input_ids=ids, attention_mask=ids != pad_id)  # transformers: 1 where there is no padding"
)
THRESHOLDS: Final = (
    Threshold("one_id", 0.99, "share", "of the rows: a mask is the wrong way round in all of them, or in none"),
    Threshold("hidden", 8, "rows", "derived: that few ids are the same in so many rows is no chance"),
    Threshold("graphs", 2, "graphs", "one may be odd"),
)


def found(process: Process, limits: Limits) -> list[Row]:
    """The looks at the graph behind the loss, if each of them shows this; none if one does not."""
    looks = [row for row in process.tables["loss_graphs"].records() if row.get("hiding_rows")]
    rows = sum(row["hiding_rows"] for row in looks)
    if len(looks) < limits["graphs"] or rows < limits["hidden"] or len({row["one_id"] for row in looks}) > 1:
        return []
    return looks if all(row["one_id_rows"] >= limits["one_id"] for row in looks) else []


def finding(process: Process, looks: list[Row], rule: str, limits: Limits) -> Finding:
    """What was seen of the mask, and the only line that gives one."""
    place, diff = _line(process)
    optimization = process.longest if process.optimizations else None
    backward = process.site(looks[0]["site"])
    rows = sum(int(row["hiding_rows"]) for row in looks)
    one = int(looks[0]["one_id"])
    return Finding(
        rule=rule,
        severity="critical",
        confidence="certain",
        title=f"Attention looks at nothing but id {one}: its mask hides all others",
        summary=(
            f"In {plural(len(looks), 'batch', 'batches')} looked at, the mask of attention hides a part of "
            f"{plural(rows, 'row')} of ids. The only id that it leaves to look at is {one}, in each of them, and all "
            "others are hidden: the mask is the wrong way round, and attention reads padding instead of the sequence."
        ),
        fix="Turn the mask around. In torch, key_padding_mask is True where a position is to be ignored; in "
        "transformers, attention_mask is 1 where one counts.",
        fix_code=_EXAMPLE,
        diff=diff,
        first_step=int(looks[0]["step"] or 0) + 1,
        evidence=[
            Evidence(f"rows in which attention may look at id {one} alone", _least(looks), "share",
                     *limits.against("one_id")),
            Evidence("rows of which the mask hides something", rows, "rows", *limits.against("hidden"), role="basis"),
            Evidence("batches looked at", len(looks), "batches", *limits.against("graphs"), role="basis"),
            Evidence("what attention sees", "its mask leaves padding alone", role="message"),
        ],
        traits=frozenset({"padding-seen"}),
        location=place or backward,
        seen_at=backward,
        verify="Record the run again: attention looks at the ids of the sequence, and padding is hidden.",
        charts=pictures.loss(optimization) if optimization is not None else [],
        excluded=[
            "Padding that is hidden as it should be: several different ids are hidden in each of these rows.",
            "A layer that looks at one summary: no layer with a mask looks at any other id.",
        ],
    )  # fmt: skip


def _least(looks: list[Row]) -> float:
    return min(float(row["one_id_rows"]) for row in looks)


def _line(process: Process) -> tuple[Location | None, Diff | None]:
    """The only line of the script that hands a mask to a layer or a model, and the edit that turns it."""
    masked = attended_rows.place(process)
    place = masked if masked is not None and "mask" in masked.source else None
    place = place or script_lines.only(process, "training-call", rf"\b{_GIVEN}\s*=")
    own = own_statement.at(process, place)
    if own is None or place is None:
        return place, None
    names = (*attended_rows.PADDING, _GIVEN)
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)]
    given = [one for call in calls for one in call.keywords if one.arg in names]
    if len(given) != 1:
        return place, None
    value, text = given[0].value, own.parsed.text_of(given[0].value)
    turned = text.removeprefix("~") if re.fullmatch(r"~[A-Za-z_][\w.]*", text) else ""
    if given[0].arg != _GIVEN and (isinstance(value, ast.Name | ast.Attribute) or re.fullmatch(_BOOLS, text)):
        turned = f"~{text}"  # of bools, as torch takes it
    elif isinstance(value, ast.Compare) and len(value.ops) == 1 and isinstance(value.ops[0], ast.Eq | ast.NotEq):
        other = "!=" if isinstance(value.ops[0], ast.Eq) else "=="
        turned = f"{own.parsed.text_of(value.left)} {other} {own.parsed.text_of(value.comparators[0])}"
    return place, own.changed(own.parsed.with_parts({value: turned})) if turned else None
