"""Copies of the trained model that are evaluated in its place: do they follow it, by their weights or their losses?"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.names import names_in
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats, Mask, Table
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Diff

    Indices = npt.NDArray[np.intp]


_HEAD: Final = re.compile(r"\s*(?:async\s+)?def\b")
_NO_GRAPH: Final = re.compile(r"\b(?:no_grad|inference_mode)\b|\bset_grad_enabled\(False\)")


@dataclass(frozen=True)
class Standing:
    """A copy whose sampled weights stand still while those of the model move."""

    rows: Indices  # its passes in the table evals
    moved: float  # share of the model's way that the copy has made since the first sample
    steps: Floats  # of the process, at which its weights were sampled
    per_step: float  # part of what lies between it and the model that it makes in a step; 0 unless it does so steadily
    put_in: bool = False  # into the trained model itself, for each evaluation
    of_the_start: float = 0.0  # share of the weights it began with that is still in it; 0 unless it moves steadily

    @property
    def pace(self) -> str:
        """A sentence on an average that is updated all the time; empty for any other copy."""
        if self.per_step <= 0:
            return ""
        back = float(f"{1 / self.per_step:.1g}")
        decay = 1 - float(f"{1 / back:.2g}")
        return f"It moves as if with a decay of about {decay:.10g} per step, which averages over {back:,.0f} steps."


def judged_by_weights(process: Process, limits: Limits) -> Standing | float | None:
    """A copy that stands still; else the share of the model's way that the copies made; None if that is not known.

    Not where the model itself is evaluated, too: a copy beside it may be a baseline, or the best one so far.
    """
    rows = np.flatnonzero(_evaluated(process))
    table = process.tables.get("copies")
    if not len(rows) or table is None or not len(table) or process.training:
        return None
    standing, shares = [], []
    for model in np.unique(process.evals["model"][rows]):
        own = table["model"] == model
        share = share_of_the_way(table, own, limits)
        if share is None:
            return None
        shares.append(share)
        if hardly_moves(process, table, own, limits) or (table["changed"][own][1:] == 0).all():
            of_model = rows[process.evals["model"][rows] == model]
            pace, start = per_step(table, own), of_the_start(table, own)
            standing.append(Standing(of_model, share, table["step"][own], pace, of_the_start=start))
    return standing[0] if len(standing) == len(shares) else max(shares)


def share_of_the_way(table: Table, own: Mask, limits: Limits) -> float | None:
    """How far the evaluated weights have moved, by how far the model has; None of a few samples."""
    steps, way = table["step"][own], table["of_moved"][own]
    if len(steps) < limits["passes"] or steps[-1] - steps[0] < limits["steps"] or not way[-1] > 0:
        return None
    return float(table["moved"][own][-1] / way[-1])


def hardly_moves(process: Process, table: Table, own: Mask, limits: Limits) -> bool:
    """Whether the evaluated weights stay behind a model that learns."""
    way, apart = table["of_moved"][own][-1], table["apart"][own]
    if apart[-1] / way < limits["behind"]:
        return False
    if table["moved"][own][-1] / way > limits["follows"]:
        held = of_the_start(table, own) >= limits["start"]
        return held and _as_bad_as_it_began(process, int(table["model"][own][0]), limits)
    # The losses of a GAN need not fall while it learns; its generator goes away from a copy that stands.
    return _has_learned(process, limits) or bool(apart[-1] >= limits["parts"] * apart[0] > 0)


def _as_bad_as_it_began(process: Process, model: int, limits: Limits) -> bool:
    """Whether the loss of an average ends nearer to that of the start than to that of the model, which has learned."""
    evals, ends = process.evals, ends_of_the_loss(process, limits)
    losses = evals["loss"][(evals["model"] == model) & (evals["trained"] == 0) & (evals["losses"] > 0)]
    losses = losses[np.isfinite(losses)]
    if not len(losses) or ends is None or len(process.trainings) > 1:
        return False
    start, end = ends
    return bool(0 < end <= (1 - limits["fell"]) * start and losses[-1] >= start - limits["falls"] * (start - end))


def of_the_start(table: Table, own: Mask) -> float:
    """The share of the weights of the first sample that an averaged copy still holds at the last one."""
    pace, steps = per_step(table, own), table["step"][own]
    return float((1 - pace) ** (steps[-1] - steps[0])) if 0 < pace < 1 else 0.0


def per_step(table: Table, own: Mask) -> float:
    """The share of its distance to the model that an averaged copy moves in a step: about 1 - decay. 0 unless it moves
    in all samples."""
    on, steps = np.diff(table["moved"][own]), np.diff(table["step"][own])
    if not ((table["changed"][own][1:] > 0).all() and (on > 0).all() and (steps > 0).all()):
        return 0.0
    parts = on / steps / np.fmax(table["apart"][own][1:], 1e-30)
    return float(np.median(parts))


def validated_beside(process: Process) -> bool:
    """Whether the trained model, too, is called to be evaluated.

    Not one that answers in train mode with nearly every step and has no loss: it makes what another model learns from,
    as the generator of a GAN does.
    """
    evals = process.evals
    as_trained = (evals["grad_mode"] == validation.GRAD) & (evals["model_in_train"] == 1)
    evaluated = (evals["trained"] == 1) & ~as_trained
    for model in np.unique(evals["model"][evaluated]):
        own = evaluated & (evals["model"] == model) & (evals["model_in_train"] == 1)
        if int(own.sum()) * validation.RARE > len(process.steps) and not np.nansum(evals["losses"][own]):
            evaluated &= ~own
    return bool(evaluated.any())


def _evaluated(process: Process) -> Mask:
    """Passes of rarely called copies over data of their own, shape [evals]; none beside passes of the model.

    A copy that is called on a batch of the training is a teacher or a reference.
    """
    evals = process.evals
    references = process.tables.get("references")
    compared = {row["reference"] for row in (references.records() if references is not None else ())}
    loader = evals["loader"]
    same = np.isfinite(loader) & np.isin(loader, validation.training_loaders(process))
    measures = (np.isfinite(loader) & ~same) | (np.nan_to_num(evals["losses"]) > 0)
    measures |= (evals["forwards"] >= 2) | ~validation.of_training_size(process)
    rare = validation.rare_copies(process) & ~np.isin(evals["model"], list(compared))
    return np.asarray(rare & measures & ~same & (not validated_beside(process)), dtype=bool)


def _has_learned(process: Process, limits: Limits) -> bool:
    level = ends_of_the_loss(process, limits)
    return level is not None and level[0] > 0 and level[1] <= limits["falls"] * level[0]


def ends_of_the_loss(process: Process, limits: Limits) -> tuple[float, float] | None:
    """Training loss at its start and its end; None if the run is short."""
    loss = process.longest.steps["loss"]
    known = loss[np.isfinite(loss)]
    count = int(limits["ends"])
    return None if len(known) < limits["steps"] else (float(np.median(known[:count])), float(np.median(known[-count:])))


def level_of_the_start(process: Process, losses: Floats, limits: Limits) -> tuple[float, float] | None:
    """Training loss at its start and its end, if the copy stays at the former in all its validations.

    A copy that overfits leaves that level, and one that has converged is below it.
    """
    ends = ends_of_the_loss(process, limits) if len(process.trainings) == 1 else None
    if ends is None or not (np.diff(losses) < 0).all():
        return None
    start, end = ends
    if start <= 0 or end > limits["falls"] * start:
        return None
    near = np.abs(losses - start) <= limits["near"] * start
    moves = float(np.ptp(losses)) > limits["follows"] * (start - end)
    return (start, end) if near.all() and not moves else None


UPDATE = "Update the average after every optimizer step, and choose its decay to fit the length of the run"
LOWER = "Lower its decay, or ramp it up from a low value, to fit the length of the run"
UNMOVED = "is to update it: see that it runs in each step, for this copy, and that its decay is below 1"
_IF = re.compile(r"\s*if (?P<condition>[^:#]*(?:[<>]|[=!]=)[^:#]*):\s*(?:#.*)?$")  # a comparison
_MIXES = re.compile(r"\.mul_\(.+\)\.add_\(.+\balpha\s*=")
ANEW = "gives the loop variable a new tensor and leaves the average as it was: write into it"
ENTRY = "puts a new tensor into the dictionary that state_dict() returned, and leaves the copy as it was: write into it"
_ENTRY: Final = re.compile(r"^\s*(?P<state>\w+)\[(?P<key>\w+)\]\s*=(?!=).*\b(?P=state)\[(?P=key)\]")


def remedy(process: Process, line: Location | None, updated: bool) -> tuple[str, str]:
    """Words and an example. `line`: the one that updates the average; `updated`: it does so, and too slowly."""
    own = parsed_line.parse(line.source) if line is not None and not updated else None
    made = own.statement if own is not None else None
    if line is not None and own is not None and isinstance(made, ast.Assign) and _is_new(made):
        code = f"{own.text_of(made.targets[0])}.copy_({own.text_of(made.value)})  # under torch.no_grad()"
        return f"Line {line.line} {ENTRY if isinstance(made.targets[0], ast.Subscript) else ANEW}.", code
    fix = f"{LOWER if updated else UPDATE}: it averages over about 1 / (1 - decay) steps."
    if line is not None and not updated:
        return f"Line {line.line} {UNMOVED}. {_condition(process, line)}{fix}", ""
    return fix, example(line if updated else None)


def _condition(process: Process, line: Location) -> str:
    """What is said of the `if` right around a line; empty without one."""
    lines = recorded_text.of_function(process, line)
    depth = recorded_text.indent_of(lines.get(line.line, ""))
    outer = [at for at in lines if at < line.line and lines[at].strip() and recorded_text.indent_of(lines[at]) < depth]
    found = _IF.match(lines[max(outer)]) if outer else None
    return f"It runs only where `{found['condition']}` (line {max(outer)}): print both sides. " if found else ""


def mixing(process: Process) -> Location | None:
    """The line that updates an average: one that the collector knows, else the only recorded one that scales a tensor
    in place and adds a part of another to it."""
    known = script_lines.only(process, "average")
    if known is not None:
        return known
    found = recorded_text.matching(process, _MIXES)
    return found[0] if len(found) == 1 else _of_a_dictionary(process)


def _of_a_dictionary(process: Process) -> Location | None:
    """The only line that mixes into an entry of what state_dict() returned, where no recorded line loads that."""
    found = recorded_text.matching(process, _ENTRY)
    name = _ENTRY.match(found[0].source) if len(found) == 1 else None
    if name is None:
        return None
    text = "\n".join(recorded_text.everything(process))
    taken = re.search(rf"\b{name['state']}\s*=\s*[\w.]+\.state_dict\(\)", text)
    return found[0] if taken and not re.search(rf"\bload_state_dict\(\s*{name['state']}\b", text) else None


def written_into(process: Process, line: Location | None) -> Diff | None:
    """The statement that gives the average a new tensor, with what it computes written into the average, where the text
    around it says that no graph is recorded; a tensor that requires gradients could not be written into else."""
    own = own_statement.at(process, line)
    made = own.parsed.statement if own is not None else None
    if line is None or own is None or not isinstance(made, ast.Assign) or not _is_new(made):
        return None
    text = {number: said for number, said in recorded_text.around(process, line).items() if number <= line.line}
    begin = max((number for number, said in text.items() if _HEAD.match(said)), default=min(text, default=line.line))
    while text.get(begin - 1, "").lstrip().startswith("@"):
        begin -= 1
    if not any(number >= begin and _NO_GRAPH.search(said) for number, said in text.items()):
        return None
    return own.changed(f"{own.parsed.text_of(made.targets[0])}.copy_({own.parsed.text_of(made.value)})")


def _is_new(made: ast.Assign) -> bool:
    """Whether a variable, or an entry of one, is given what is computed of it: by operators, or by a method that leaves
    it as it is."""
    target, value = made.targets[0], made.value
    target = target.value if isinstance(target, ast.Subscript) else target
    name, first = target.id if isinstance(target, ast.Name) else "", ""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        first, value = value.func.attr, value.func.value
    itself = first in ("mul", "lerp") and isinstance(value, ast.Name) and value.id == name
    used = names_in(value)
    return bool(name) and (itself or (isinstance(value, ast.BinOp) and not first and name in used))


def example(line: Location | None) -> str:
    """An example of an average whose decay grows: in place of the decay of this line, which updates it, or whole."""
    if line is not None:
        return (
            f"decay = min(0.999, (1 + step) / (10 + step))  # short at first, then long: the decay of line {line.line}"
        )
    return (
        "optimizer.step()\ndecay = min(0.999, (1 + step) / (10 + step))   # short at first, then long\n"
        "with torch.no_grad():\n    for kept, current in zip(ema.parameters(), model.parameters()):\n"
        "        kept.lerp_(current, 1 - decay)"
    )
