"""The comparison of two runs or two traces: the contract between analyzers and reports, and, serialised, the JSON.

A is what was before, B is what came after: differences are B minus A. Additions are allowed within a schema version;
renames are a new one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from tracelyze.diagnosis import Chart

SCHEMA_VERSION: Final = 1
OTHER_LOSS: Final = 0.1  # share: another seed moves a training loss by a few percent

Verdict = Literal["slower", "faster", "same", "unknown"]
Kind = Literal["trace", "run"]
Significance = Literal["more", "less", "noise", "unknown"]
Key = Literal[
    "", "step", "usual-step", "computing", "communication", "copy", "loader-wait", "recording", "memory", "loss"
]
"""What programs ask a change for, whatever it is called: the whole step, the step without slow ones, its parts."""
Fate = Literal["new", "worse", "same", "better", "fixed", "unknown"]

FATES: Final[tuple[Fate, ...]] = ("new", "worse", "fixed", "better", "same", "unknown")


@dataclass(frozen=True)
class Side:
    """One of the two: its path, what it is, and its facts. `step_ms` is the mean time of a step, None if unknown."""

    path: str
    kind: Kind
    steps: int
    ranks: int
    step_ms: float | None
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """One quantity on both sides, None where a side does not have it.

    `noise`: by how much the two may differ without meaning anything, in the same unit; None where that is unknown.
    `significance`: more or less beyond that; `noise`: not beyond it, or too little to matter; `unknown` without it.
    `share`: the difference as a share of A's step, for times. `detail`: what stands behind it, for people. `key`: what
    it is, where the headline or a limit of `--fail-on` asks for it.
    """

    name: str
    before: float | None
    after: float | None
    unit: str
    noise: float | None = None
    significance: Significance = "unknown"
    share: float | None = None
    detail: str = ""
    key: Key = ""

    @property
    def difference(self) -> float:
        """After minus before; what a side does not have counts as nothing."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True)
class Section:
    """Changes of one kind, the largest first. `id`: step, causes, classes, operators, kernels, recorded, loss."""

    id: str
    title: str
    about: str
    changes: list[Change]


@dataclass(frozen=True)
class FindingChange:
    """What became of one finding. `before` and `after`: the share of time it costs on each side, None if unknown."""

    rule: str
    fate: Fate
    title: str
    severity: str
    before: float | None = None
    after: float | None = None


@dataclass(frozen=True)
class SettingChange:
    """A setting that differs. `group`: command, optimizer, schedule, loader, versions, machine, environment."""

    group: str
    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Comparison:
    """The whole answer. `ratio`: mean step time of B over that of A, None if unknown. `headline`: the answer in a
    line; `lead`: the sentences that belong beside it, empty if there is no more to say.

    `charts` draw A and B over each other, where both are recorded runs.
    """

    a: Side
    b: Side
    verdict: Verdict
    headline: str
    ratio: float | None
    sections: list[Section]
    findings: list[FindingChange]
    settings: list[SettingChange]
    notes: list[str] = field(default_factory=list)
    tracelyze_version: str = ""
    schema_version: int = SCHEMA_VERSION
    charts: list[Chart] = field(default_factory=list)
    lead: str = ""

    @property
    def other_loss(self) -> float | None:
        """By which share the training loss of B differs from that of A, where that is beyond noise and a tenth."""
        loss = next((one for one in self.section("loss") if one.key == "loss"), None)
        if loss is None or loss.significance not in ("more", "less") or not loss.before or loss.before < 0:
            return None
        share = loss.difference / loss.before
        return share if abs(share) >= OTHER_LOSS else None

    def section(self, identifier: str) -> list[Change]:
        """The changes of one section; empty if there is none."""
        return next((section.changes for section in self.sections if section.id == identifier), [])

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract as plain data, with the difference of each change."""
        data = asdict(self)
        for section, rows in zip(self.sections, data["sections"], strict=True):
            for change, row in zip(section.changes, rows["changes"], strict=True):
                row["difference"] = change.difference
        order = ("schema_version", "tracelyze_version", "verdict", "headline", "lead", "ratio", "a", "b")
        return {key: data[key] for key in (*order, "sections", "findings", "settings", "notes", "charts")}
