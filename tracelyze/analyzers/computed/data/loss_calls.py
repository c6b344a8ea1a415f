"""Calls of torch's loss functions, line by line: what five rules about their arguments have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.once import measured_once
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Skipped, Threshold
from tracelyze.analyzers.script.editing.remade import everywhere
from tracelyze.analyzers.script.loss import assignment, handed_back
from tracelyze.diagnosis import Confidence, Evidence, Finding, Location, Mark, Severity
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.remedy import Remedy

Row = dict[str, Any]
COMPILED = "CompiledFunction"
WRITTEN = "the hand-written loss"  # a cross-entropy that the script writes out
SCORED = ("cross_entropy", "nll_loss", WRITTEN)
WRITTEN_OUT = "written out"  # another one that the script, or a framework, computes by itself
OWN = "the model's own loss"  # labels given to a model with a fused loss
OF_TOKENS = (*SCORED, OWN)
CALLS = Threshold("calls", 3, "calls", "one or two may be odd: a first try, a last batch of one sample")
SHARE = Threshold("share", 0.9, "share", "a line of code does it at every call or not at all; batches of one differ")
ROUNDING = Threshold(
    "rounding", 0.02, "", "probabilities in bfloat16 (8 bits) sum to 1 within 2^-8 per term; logits do not by chance"
)


@dataclass(frozen=True)
class Line:
    """The looked-at calls of one loss function at one line, `training` with autograd or evaluating. In order."""

    function: str
    site: int | None
    training: bool
    rows: list[Row]
    location: Location | None

    @property
    def where(self) -> str:
        """Whose loss it is, to put behind a noun."""
        return "the training loss" if self.training else "a loss computed without autograd (validation)"


Verdict = Callable[[Row], bool | None]
ToFinding = Callable[[Line, list[Row]], Finding]


def lines(process: Process, functions: Collection[str]) -> list[Line]:
    """The lines that call one of these functions, those of the training first."""
    return [line for line in _all_lines(process) if line.function in functions]


def in_evaluation(process: Process, function: str) -> bool:
    """Whether a line that does not train calls this function."""
    return any(not line.training for line in lines(process, (function,)))


def only_place(process: Process, functions: Collection[str]) -> Location | None:
    """The only line at which the training calls one of these functions."""
    places = list(dict.fromkeys(line.location for line in lines(process, functions) if line.training))
    return places[0] if len(places) == 1 else None


def own_beside_another(process: Process) -> bool:
    """Whether a model puts out a loss of its own in steps whose loss the training writes out of something else that it
    puts out, as for preferences: what it puts out in evaluation is then no loss that the training lowers."""
    steps: dict[str, set[int]] = {OWN: set(), WRITTEN_OUT: set()}
    for row in process.tables["loss_calls"].records():
        if row["training"] and row["function"] in steps:
            steps[row["function"]].add(row["step"])
    return not steps[OWN].isdisjoint(steps[WRITTEN_OUT])


@measured_once
def _all_lines(process: Process) -> list[Line]:
    groups: dict[tuple[str, int | None, bool], list[Row]] = {}
    for row in process.tables["loss_calls"].records():
        groups.setdefault((row["function"], row["site"], bool(row["training"])), []).append(row)
    found = [Line(*key, rows, process.site(key[1])) for key, rows in groups.items()]
    return sorted(found, key=lambda line: not line.training)


def judge(process: Process, functions: Sequence[str], wrong: Verdict, to_finding: ToFinding, limits: Limits) -> Outcome:
    """Findings for the lines at which nearly all calls are `wrong`. A verdict of None: this call shows nothing."""
    findings: list[Finding] = []
    clean = 0
    trained = compiled = False
    for line in lines(process, functions):
        verdicts = [(row, verdict) for row in line.rows if (verdict := wrong(row)) is not None]
        bad = [row for row, verdict in verdicts if verdict]
        compiled |= not verdicts and any(row["made_by"] == COMPILED for row in line.rows)
        if len(bad) >= limits["calls"] and len(bad) >= limits["share"] * len(verdicts):
            findings.append(to_finding(replace(line, rows=[row for row, _ in verdicts]), bad))
        elif verdicts:
            trained |= line.training
            clean += len(verdicts) - len(bad)
    if findings:
        return findings
    torchs = [one for one in functions if not one.startswith("the ")]  # those that the script writes out have no name
    names = " or ".join(torchs) if len(torchs) <= 2 else f"{torchs[0]} or another elementwise loss"
    if trained:
        return Passed(f"{plural(clean, 'call')} of {names} looked at, none of this kind")
    if compiled:
        return Skipped("torch.compile made the input of the loss, and its values alone do not decide it")
    return Skipped(
        f"no call of {names} in training that could be judged: another loss, one written out by the script, or one "
        "inside torch.compile"
    )


@dataclass(frozen=True)
class LossFault:
    """What is wrong with calls of a loss, with the words of the finding about it."""

    title: str
    summary: str
    """What happened."""
    remedy: Remedy
    """Its place: the line to change, if that is another one than the line that computes the loss."""
    evidence: list[Evidence]
    false_alarm: str
    severity: Severity = "critical"
    """At a line of the training: without autograd no weights are harmed, which is a warning."""
    confidence: Confidence = "certain"
    lost: float | None = None
    """The part of the training that the fault makes useless. Where it is not given, all of it if the finding is
    critical, and else nothing: the model learns its task all the same."""
    counted: str = "of them like this"
    """What the wrong calls are, among all that were looked at."""
    repeated: bool = False
    """Whether lines that read like the one to change have the fault, too, as those of a validation."""


def finding(process: Process, line: Line, bad: list[Row], limits: Limits, rule: str, fault: LossFault) -> Finding:
    """The finding about the calls at one line, of which `bad` are wrong.

    `line` has the calls that show whether they are like that: the report counts `bad` among them.
    """
    remedy, where = fault.remedy, timing.placed(process, [row["step"] for row in bad])
    optimization, begin = where.optimization, where.step if line.training else int(bad[0]["step"] or 0)
    alone = optimization is not None and len(process.optimizations) == 1
    part = fault.lost if fault.lost is not None else float(fault.severity == "critical")
    affected = timing.numbers(optimization) >= begin if optimization is not None else np.zeros(0, dtype=bool)
    return Finding(
        rule=rule,
        severity=fault.severity if line.training else "warning",
        confidence=fault.confidence,
        title=fault.title,
        summary=fault.summary,
        fix=remedy.fix + everywhere.said(process, remedy.place or line.location) * fault.repeated,
        fix_code=remedy.code,
        diff=remedy.diff,
        first_step=begin,
        first_second=where.second if line.training else None,
        trainings=[where.name] if line.training and where.name else [],
        evidence=[
            *fault.evidence,
            Evidence("calls looked at", len(line.rows), "calls", *limits.against("calls"), role="basis"),
            Evidence(fault.counted, len(bad), "calls", role="basis"),
        ],
        cost=timing.scaled(timing.cost_of(optimization, affected), part)
        if optimization is not None and alone and line.training and part
        else None,
        location=remedy.place or computed_at(process, line),
        seen_at=line.location,
        charts=pictures.loss(optimization, [Mark(float(begin), "first seen")]) if optimization else [],
        false_alarm=fault.false_alarm,
    )


def computed_at(process: Process, line: Line) -> Location | None:
    """The line that computes the loss, also where the script writes it out and only its backward is known."""
    written = assignment.of(process, line.location)
    if written is None:
        return line.location
    return handed_back.inside(process, written, assignment.name_of(line.location))


def sizes(text: str | None) -> list[int]:
    """The sizes in a column like "32x10"; empty for a scalar."""
    return [int(size) for size in text.split("x")] if text else []


def shown(text: str | None) -> str:
    """The sizes as they read in code: "[32, 10]"."""
    return f"[{', '.join(str(size) for size in sizes(text))}]"


def has_classes(row: Row) -> bool:
    """Whether the input is a batch with at least two classes."""
    shape = sizes(row["input_shape"])
    return len(shape) > 1 and shape[1] > 1


def probabilities(row: Row, rounding: float) -> bool:
    """Whether the input's rows are >= 0 and sum to 1."""
    lowest, error = _number(row["lowest"]), _number(row["sum_error"])
    return lowest >= 0.0 and error <= rounding


def normalised_logs(row: Row, rounding: float) -> bool:
    """Whether the input's rows are log-probabilities of all classes."""
    return _number(row["log_sum_error"]) <= rounding


def _number(value: float | None) -> float:
    return math.nan if value is None else value
