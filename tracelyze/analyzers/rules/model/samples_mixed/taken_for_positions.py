"""Recurrences and attention that take the samples of a batch for positions, as the sizes of their inputs show."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.rules.model.samples_mixed import drawn_singly
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import end_of_name, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Diff, Location

Row = dict[str, Any]

FEWEST: Final = 4  # samples: of fewer a number of positions is more often a multiple by chance
RECURRENCES: Final = ("RNN", "GRU", "LSTM")
_NAMED: Final = 40  # characters of a name that a title has room for
HOLDERS: Final = ("TransformerEncoderLayer", "TransformerDecoderLayer")  # their attention is none of the script's own


@dataclass(frozen=True)
class Layer:
    """One that takes samples for positions in each forward that was looked at."""

    name: str
    kind: str
    positions_first: bool
    samples: int
    others: int  # size of the dimension that it takes for samples: the positions
    looks: int
    """Forwards in which it was looked at."""

    @property
    def called(self) -> str:
        return f"{self.name} ({self.kind})" if self.name else self.kind

    @property
    def called_shortly(self) -> str:
        """So that a title has room for the rest."""
        return self.called if len(self.called) <= _NAMED else end_of_name(self.name or self.kind, _NAMED)

    @property
    def mistake(self) -> str:
        """What it takes for what, as a sentence without its subject."""
        made, dimension = ("without", "first") if self.positions_first else ("with", "second")
        return f"made {made} batch_first=True, it takes the {dimension} dimension of its input for positions"

    @property
    def fix(self) -> str:
        other = (
            "Make the layer with batch_first=True, or swap the first two dimensions before it and after it."
            if self.positions_first
            else "Make the layer without batch_first, or give it [samples, positions, width]."
        )
        return f"{other} What reads its output has to agree."


def found(process: Process, limits: Limits) -> list[Layer]:
    """These layers, those first that are called first. None if a layer of the model takes positions for what they are:
    another one may relate samples on purpose."""
    if not process.optimizations or not process.tables["activations"].has("positions"):
        return []
    optimization = process.longest
    drawn = _drawn(optimization, drawn_singly.sizes(process))
    looks: dict[tuple[str, str], list[tuple[Row, int]]] = defaultdict(list)
    for row in process.tables["activations"].records():
        if row["positions"] and row["step"] in drawn:
            samples = drawn[row["step"]]
            if row["positions_outermost"] is False or _beside(row, samples):
                return []
            looks[row["module"] or "", row["kind"]].append((row, samples))
    layers = [_layer(rows) for rows in looks.values() if len(rows) >= limits["looks"] and _along(rows)]
    held = [one.name for one in layers if one.kind in HOLDERS]
    return [one for one in layers if not any(one.name.startswith(f"{name}.") for name in held)]


def _drawn(optimization: Optimization, singly: dict[int, int]) -> dict[int, int]:
    """How many samples were drawn for a forward, by the number of steps that were done before it: of the steps in which
    each model was called once for each batch. `singly`: the samples that the script itself drew."""
    steps, drawn, loader = optimization.steps, {}, optimization.loader
    rows = optimization.process.tables["links"].records()
    models = len({row["model"] for row in rows if row["optimizer"] == optimization.optimizer})
    if not loader:
        alone = zip(*(steps[name] for name in ("step", "batch_size", "model_calls")), strict=True)
        sizes = {int(size) for _, size, calls in alone if size == size and calls == 1}
        if len(sizes) != 1 or set(singly.values()) != sizes or min(sizes) < FEWEST:
            return {}
        size = sizes.pop()
        return {
            int(step) - 1: size for step, calls in zip(steps["step"], steps["model_calls"], strict=True) if calls == 1
        }
    if not loader.get("shuffled") or loader.get("iterable") or not (loader.get("batch_size") or 0) >= FEWEST:
        return {}
    columns = [steps[name] for name in ("step", "loader", "batch_size", "loader_batches", "model_calls")]
    for step, fed, size, batches, calls in zip(*columns, strict=True):
        once = calls in (batches, batches * models)
        if fed == loader["loader"] and once and batches > 0 and size % batches == 0:
            drawn[int(step) - 1] = int(size // batches)
    return drawn


def _beside(row: Row, samples: int) -> bool:
    """Whether samples lie along the dimension that is taken for theirs, one by one or with something else."""
    return bool(row["positions"] != samples and row["rows"] % samples == 0)


def _along(rows: list[tuple[Row, int]]) -> bool:
    """Whether they lie along the positions, in each forward. Where only the size says so, the other one has to stay the
    same, or that of the batch to change with it: positions may be as many as samples by chance."""
    if any(row["positions"] != samples or row["rows"] < 2 for row, samples in rows):
        return False
    if any(row["positions_outermost"] for row, _ in rows):
        return all(row["positions_outermost"] for row, _ in rows)
    if any(row["rows"] % samples == 0 for row, samples in rows):
        return False
    return len({row["rows"] for row, _ in rows}) == 1 or len({samples for _, samples in rows}) > 1


def _layer(rows: list[tuple[Row, int]]) -> Layer:
    row, samples = rows[0]
    first = bool(row["positions_first"])
    return Layer(row["module"] or "", row["kind"], first, samples, int(row["rows"]), len(rows))


def of_probe(process: Process, names: str, samples: int) -> Layer:
    """The layer that a probe speaks of: the first of these names with their classes, or the one that holds it."""
    pairs = [(name.removeprefix("-"), kind) for name, _, kind in (one.rpartition(":") for one in names.split())]
    name, kind = next((one for one in pairs if one[1] in HOLDERS), pairs[0])
    rows = process.tables["activations"].records() if process.tables["activations"].has("positions") else []
    first = [row["positions_first"] for row in rows if row["module"] == name and row["positions"]]
    return Layer(name, kind, bool(first[0]) if first else True, samples, 0, 0)


def finding(process: Process, layers: list[Layer], rule: str, limits: Limits) -> Finding:
    """What the first of these layers shows."""
    layer, optimization = layers[0], process.longest
    shape = [layer.samples, layer.others] if layer.positions_first else [layer.others, layer.samples]
    more = len(layers) - 1
    also = f" So {'does' if more == 1 else 'do'} {plural(more, 'further layer')}." if more else ""
    effect = (
        "The recurrence runs from one sample to the next, not along the positions of each"
        if layer.kind in RECURRENCES
        else "Samples attend to each other, and the positions of one sample do not see each other"
    )
    drawn = "that the loader drew" if optimization.loader else "that the script drew in another order each time"
    place, diff, code = remedy(process, layer)
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"{layer.called_shortly} takes the {layer.samples} samples of a batch for positions",
        summary=(
            f"{layer.called} was given [{shape[0]}, {shape[1]}, …] in each of the {layer.looks} forwards looked at: "
            f"{layer.mistake}, but there lie the {layer.samples} samples {drawn}.{also} {effect}, so that "
            "the answer for a sample depends on those that happen to share its batch."
        ),
        fix=layer.fix,
        fix_code=code,
        first_step=1,
        last_step=int(optimization.steps["step"][-1]),
        evidence=[
            Evidence("size of the dimension taken for positions", layer.samples),
            Evidence(f"samples {drawn}", layer.samples, "samples"),
            Evidence("forwards looked at", layer.looks, "forwards", *limits.against("looks"), role="basis"),
        ],
        location=place,
        seen_at=process.location("training-call") or optimization.backward_location,
        diff=diff,
        false_alarm="Layers that relate the samples of a batch on purpose.",
    )


def remedy(process: Process, layer: Layer) -> tuple[Location | None, Diff | None, str]:
    """The line that makes the layer, its edit where that is all that there is to change, and an example."""
    value = "True" if layer.positions_first else "False"
    sizes = "input_size, hidden_size" if layer.kind in RECURRENCES else "width, heads"
    example = f"nn.{layer.kind}({sizes}, batch_first={value})"
    place = process.module_location(layer.name)
    own = own_statement.at(process, place)
    call = own.only_call(layer.kind) if own is not None else None
    if call is None:  # copies of a layer that was made elsewhere
        makes = recorded_text.matching(process, re.compile(rf"\b{re.escape(layer.kind)}\("))
        own = own_statement.at(process, makes[0]) if len(makes) == 1 else None
        call = own.only_call(layer.kind) if own is not None else None
        place = makes[0] if call is not None else place
    text = own.parsed.with_argument(call, "batch_first", value) if own is not None and call is not None else None
    if own is None or text is None:
        return place, None, example
    return place, None if layer.kind in RECURRENCES else own.changed(text), own.dedented(text)
