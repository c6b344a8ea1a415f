"""Attention whose weights do not sum to 1 over what its product with the values sums over."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Passed
from tracelyze.analyzers.script import line_edits, recorded_text, script_lines
from tracelyze.analyzers.script.editing.remade import lines
from tracelyze.analyzers.script.remedy import example_of
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

_MOVES: Final = re.compile(
    r"\b(?:permute|transpose|swapaxes|swapdims|movedim|moveaxis|rearrange|einsum)\s*\(|\.m?[TH]\b"
)


def line_of_softmax(process: Process) -> Location | None:
    """The line of the only softmax of attention in the text of the model; None if there are several, or one is a
    module."""
    kinds = process.tables["activations"].text("kind")
    lines = {one.file_line: one for one in process.locations("attention")}
    return next(iter(lines.values())) if len(lines) == 1 and "Softmax" not in kinds else None


def _line_of_pooling(process: Process) -> Location | None:
    """The line of the only softmax in the text, where none stands beside a product of matrices."""
    lines = {one.file_line: one for one in process.locations("softmax")}
    return next(iter(lines.values())) if len(lines) == 1 and not process.locations("attention") else None


def _line_of_module(process: Process) -> Location | None:
    """The line that makes the model's only softmax, where that is a module, and the text calls no other one."""
    rows = process.tables["activations"].records()
    modules = {str(row["module"]) for row in rows if row["kind"] == "Softmax"}
    name = modules.pop() if len(modules) == 1 else ""
    lines = [*process.locations("softmax"), *process.locations("attention")]
    called = re.compile(rf"\.{re.escape(name.rpartition('.')[2])}\(")
    return process.module_location(name) if name and all(called.search(one.source) for one in lines) else None


def line_in_model(process: Process, kind: str, line: Line) -> Location | None:
    """The line of the softmax that a loss gets its input from: the model's only module of that kind, else the only one
    in the text of the model and of the training loop. None where there are several."""
    modules = {str(row["module"]) for row in process.tables["activations"].records() if row["kind"] == kind}
    if modules:
        return process.module_location(modules.pop()) if len(modules) == 1 else None
    texts = {one.file_line: one for one in process.locations("softmax")}
    own = line.location is not None and "softmax" in line.location.source
    return next(iter(texts.values())) if len(texts) == 1 and not own else None


def moves_dimensions(process: Process) -> bool:
    """Whether the recorded text of the script swaps dimensions anywhere: then the last one of a loss's input need not
    be the last one of what a softmax was given."""
    return any(_MOVES.search(text) for text in recorded_text.everything(process))


def over_the_last(process: Process, place: Location | None) -> str:
    """The line of the softmax with the last dimension, for an example; empty where that is not known."""
    diff = line_edits.softmax_dimension(process, place, -1) if place is not None else None
    changed = [one for one in diff.added if one not in diff.removed] if diff is not None else []
    return f"{changed[0].strip()}  # -1: where the classes come last there" if len(changed) == 1 else ""


def line_of_sigmoid(process: Process, kind: str) -> Location | None:
    """The line of the sigmoid (or another squashing of this kind) that a loss gets its input from: that of the model's
    last layer where it is one, else the only line in the text of the script that calls such a function."""
    last = line_of_last(process, kind)
    return last or script_lines.only(process, "softmax" if kind == "Softmax" else "sigmoid", rf"\b{kind.lower()}\s*\(")


def line_of_last(process: Process, kind: str) -> Location | None:
    """The line that makes the model's last layer, where that is of this kind."""
    rows = process.tables["activations"].records()
    kinds: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: (row["step"] or 0, row["order"] or 0)):
        name = str(row["module"])
        kinds.pop(name, None)
        if " after " not in name:  # a function, as the collector names it
            kinds[name] = str(row["kind"])  # the last one comes last
    layers = [name for name in kinds if name and not any(other.startswith(f"{name}.") for other in kinds)]
    return process.module_location(layers[-1]) if layers and kinds[layers[-1]] == kind else None


def written_out(process: Process, rule: str, limits: Limits) -> list[Finding] | Passed | None:
    """What the same shows of a likelihood that the script writes out: log-probabilities of which one per sample is
    picked. None where there was none, or too few were read."""
    graphs = [row for row in process.tables["loss_graphs"].records() if row.get("picks")]
    wrong = [row for row in graphs if row["picks_wrong"] == row["picks"]]
    if len(graphs) < limits["looks"]:
        return None
    if len(wrong) < len(graphs):
        return Passed(f"in {plural(len(graphs) - len(wrong), 'graph')}, log_softmax ran over the classes")
    over, along = int(wrong[0]["picks_softmax"]), int(wrong[0]["picks_axis"])
    optimization = process.longest if process.optimizations else None
    seen = process.site(wrong[0]["site"]) or process.location("backward")
    place = _line_of_pooling(process)
    diff = line_edits.softmax_dimension(process, place, along)
    return [
        Finding(
            rule=rule,
            severity="critical",
            confidence="likely",
            title=f"The softmax behind the loss runs over dimension {over}, not over the classes",
            summary=(
                f"The loss picks the log-probability of each target or action along dimension {along} (counted from "
                f"the end), and the softmax normalised over dimension {over}. Samples or positions then compete with "
                "each other instead of classes: the answer for one depends on which others are in its batch."
            ),
            fix="Let the softmax run over the dimension of the classes, which the targets are picked along.",
            fix_code=example_of(diff)
            if diff
            else lines.softmax_along(process, place, along) or f"log_probs = scores.log_softmax(dim={along})",
            diff=diff,
            first_step=int(wrong[0]["step"] or 0) + 1,
            evidence=[
                Evidence("dimension of the softmax, from the end", over),
                Evidence("dimension that targets are picked along, from the end", along),
                Evidence("graphs looked at", len(graphs), "graphs", *limits.against("looks"), role="basis"),
            ],
            location=place or seen,
            seen_at=seen,
            verify=f"Record the run again: the softmax runs over dimension {along}.",
            charts=pictures.loss(optimization) if optimization else [],
            false_alarm="Samples that are to compete for each class on purpose: ranking, assignment.",
        )
    ]


def finding(process: Process, rule: str, limits: Limits) -> tuple[Finding | None, int]:
    """The finding, if the same holds in all graphs that were read, and how many graphs had such a softmax."""
    graphs = [row for row in process.tables["loss_graphs"].records() if row.get("products")]
    wrong = [row for row in graphs if row["products_wrong"]]
    if len(wrong) < limits["looks"] or len(wrong) < len(graphs):
        return None, len(graphs)
    over, summed = int(wrong[0]["softmax_axis"]), int(wrong[0]["summed_axis"])
    number, of = int(wrong[0]["products_wrong"]), int(wrong[0]["products"])
    optimization = process.longest if process.optimizations else None
    seen = process.site(wrong[0]["site"]) or process.location("backward")
    place = _line_of_module(process) or line_of_softmax(process) or _line_of_pooling(process)
    diff = line_edits.softmax_dimension(process, place, summed)
    return (
        Finding(
            rule=rule,
            severity="critical",
            confidence="likely",
            title=f"Attention's softmax runs over dimension {over}, not over the keys",
            summary=(
                f"The scores of {number} of {plural(of, 'attention layer')} are shared out by a softmax over dimension "
                f"{over} (counted from the end), and the product with the values sums over dimension {summed}, the "
                "keys. The weights of a position then do not sum to 1: one that is in demand elsewhere gets next to "
                "nothing, and each answer depends on what others ask (queries), on other heads, or on other samples."
            ),
            fix="Let the softmax run over the dimension of the keys, which the product with the values sums over.",
            fix_code=example_of(diff)
            if diff
            else lines.softmax_along(process, place, summed)
            or "weights = (q @ k.transpose(-2, -1) / d**0.5).softmax(dim=-1)\nout = weights @ v"
            if summed == -1
            else f"weights = scores.softmax(dim={summed})",
            diff=diff,
            first_step=int(wrong[0]["step"] or 0) + 1,
            evidence=[
                Evidence("dimension of the softmax, from the end", over),
                Evidence("dimension that is summed over, from the end", summed),
                Evidence("attention layers like this", number, "layers"),
                Evidence("graphs looked at", len(graphs), "graphs", *limits.against("looks"), role="basis"),
            ],
            location=place or seen,
            seen_at=seen,
            verify=f"Record the run again: the softmax runs over dimension {summed}.",
            charts=pictures.loss(optimization) if optimization else [],
            false_alarm="Queries that are to compete for their keys (slots), with weights that are left unnormalised.",
        ),
        len(graphs),
    )
