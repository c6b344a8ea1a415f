"""Charts of the evidence. What a report does with one follows from its fields; titles, names and labels are words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Over = Literal["", "steps", "profiled-steps", "ranks"]
"""What the x axis counts: steps of the training, steps that a profiler numbered, ranks; empty for anything else."""

Unit = Literal["", "ms", "s", "MiB", "GiB", "share"]
"""What a value of 1 is; `share`: of a whole, written in percent. Empty: a bare number, which the y axis names."""


@dataclass(frozen=True)
class Line:
    """One line of a chart; None is a gap. NaN and Inf are drawn as gaps, so name them in a mark.

    `bars`: parts of a whole at each x; all lines of this style in a chart stand on top of each other.
    `kind`: one of KINDS where the line is the time that went into it, else empty.
    """

    name: str
    y: list[float | None]
    style: Literal["line", "points", "steps", "bars"] = "line"
    kind: str = ""


@dataclass(frozen=True)
class Mark:
    """A labelled position on the x axis: the onset of the fault, an evaluation, an exception.

    `kind`: `finding` is the onset of a finding of the run, `not-finite` where a value was NaN or Inf.
    """

    x: float
    label: str
    kind: Literal["", "finding", "not-finite"] = ""


@dataclass(frozen=True)
class Chart:
    """A picture of the evidence, already thinned to at most a few hundred points.

    `x` is shared by all lines; `threshold` is a horizontal line; `marks` are vertical ones, the onset first. `about`
    qualifies the title: the rank, what the loss is. `healthy`: the side of the threshold on which runs are healthy,
    where that is known. `log_y` asks for a logarithmic axis where the values span enough for one. `shows`: what reports
    take numbers from, whatever it is called in words; the first line of a step's time is that of the whole step.
    `over`: what the x axis counts; `unit`: that of the values. `rank`, and `training` where a process makes several:
    whose values these are, where they are of one.
    """

    title: str
    x_label: str
    y_label: str
    x: list[float]
    lines: list[Line]
    marks: list[Mark] = field(default_factory=list)
    threshold: float | None = None
    threshold_label: str = ""
    log_y: bool = False
    about: str = ""
    healthy: Literal["", "above", "below"] = ""
    shows: Literal["", "loss", "step-time", "memory", "ranks"] = ""
    over: Over = ""
    unit: Unit = ""
    rank: int | None = None
    training: str = ""
