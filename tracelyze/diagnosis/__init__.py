"""The diagnosis: the contract between analyzers and reports, and, serialised, the JSON output.

Everything a report shows is in here: findings with their evidence, charts and fixes, the checks that passed or could
not be made, and the facts of the run. Additions are allowed within a schema version; renames are a new one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, get_args

from tracelyze.diagnosis.charts import Chart as Chart
from tracelyze.diagnosis.charts import Line as Line
from tracelyze.diagnosis.charts import Mark as Mark
from tracelyze.diagnosis.charts import Over as Over
from tracelyze.diagnosis.charts import Unit as Unit
from tracelyze.diagnosis.pictures import Lane as Lane
from tracelyze.diagnosis.pictures import Listing as Listing
from tracelyze.diagnosis.pictures import Picture as Picture
from tracelyze.diagnosis.pictures import Timeline as Timeline
from tracelyze.diagnosis.places import Diff as Diff
from tracelyze.diagnosis.places import Excerpt as Excerpt
from tracelyze.diagnosis.places import Location as Location

SCHEMA_VERSION: Final = 1

Severity = Literal["critical", "warning", "info"]
Verdict = Literal["critical", "warning", "info", "ok", "unknown"]
"""`unknown`: nothing was found because nothing, or too little, could be checked."""
Confidence = Literal["certain", "likely", "possible"]
Counted = Literal["step", "epoch"]
Status = Literal["fired", "passed", "skipped"]
Why = Literal["not-applicable", "needs-more"]
"""Why a check was skipped: the run does not do what the rule is about, or more has to be recorded to know."""

SEVERITIES: Final[tuple[Severity, ...]] = ("critical", "warning", "info")
CONFIDENCES: Final[tuple[Confidence, ...]] = ("certain", "likely", "possible")
_RANKS: Final[dict[str, int]] = {severity: rank for rank, severity in enumerate(SEVERITIES)}


def severity_rank(severity: str) -> int:
    """Place of a severity in their order, 0 for the gravest; KeyError if it is none."""
    return _RANKS[severity]


def at_least(severity: str, bar: str) -> bool:
    """Whether a severity is as grave as `bar`, or graver."""
    return severity_rank(severity) <= severity_rank(bar)


KINDS: Final = {
    "compute": "computing",
    "communication": "communication",
    "copy": "copies and fills",
    "garbage": "garbage collection",
    "input": "waiting for the data loader",
    "sync": "waiting in a synchronisation",
    "allocator": "device memory allocation",
    "communication-call": "host inside communication calls",
    "copy-call": "host inside copy calls",
    "checkpoint": "saving or logging",
    "optimizer": "optimizer",
    "launch": "runtime calls",
    "operator": "operators",
    "python": "Python code",
    "preparation": "host work before the first kernel",
    "device": "launch latency, waiting on the device",
    "unrecorded": "nothing recorded",
    "communication-wait": "waiting for other ranks",
}
"""What the time of a step goes into, with what a legend calls it. A colour in a report means one of these."""

Measure = Literal["", "share", "us", "ms", "s", "bytes", "KiB", "MiB", "GiB", "MiB/step", "steps"]
"""Units that reports convert, write in their own way, or compare. `steps` are those of the training."""

Role = Literal["", "setting", "basis", "message", "expected", "most"]
"""What evidence is beside a measured number: an argument as the program's code calls it (`setting`); how much was
looked at, or a qualification of what stands above it (`basis`); what the program said of itself (`message`); a number
whose `threshold` is the one that it should be, and no limit (`expected`), or the most with which the rule fires
(`most`)."""

_MEASURES: Final[dict[str, Measure]] = {one: one for one in get_args(Measure)}


@dataclass(frozen=True)
class Evidence:
    """One number that speaks for a finding. `threshold` is what it was held against, `source` why that number.

    `unit`: one of Measure, or in words what is counted. `of`: in words, of what a share is one. `role`: what else it
    is than a number that speaks for itself. Reports go by these, and never by `name`.
    """

    name: str
    value: float | int | str | None
    unit: str = ""
    threshold: float | int | str | None = None
    source: str = ""
    role: Role = ""
    of: str = ""

    @property
    def measure(self) -> Measure:
        """The unit where it is one that programs know; empty for a bare number, and where things are counted."""
        return _MEASURES.get(self.unit, "")

    @property
    def fires_at(self) -> str:
        """The side of the threshold on which the rule fires, ">=" or "<="; empty where nothing was compared, and where
        it is not known: below a threshold rules fire by declaration only (`most`), since many numbers that stand beside
        a limit do not decide alone. A bare number that equals its threshold may be on either side; a count reached it.
        """
        value, threshold = self.value, self.threshold
        if self.role == "expected" or not isinstance(value, float | int) or not isinstance(threshold, float | int):
            return ""
        if self.role == "most":
            return "<=" if value <= threshold else ""
        counted = bool(self.unit) and self.measure in ("", "steps")
        return ">=" if value > threshold or (value == threshold and counted) else ""


@dataclass(frozen=True)
class Cost:
    """What the fault cost so far: seconds, and their share (0 to 1) of `of`, the base that a report names once."""

    seconds: float | None
    share: float | None
    of: str = "the training time"


EndCause = Literal[
    "unknown", "signal", "memory-likely", "memory-unlikely",
    "oom-kill", "xid", "segfault", "time-limit", "preempted", "node-failure", "memory-limit",
]  # fmt: skip
"""What ended a process from outside, as far as is known: the last line are causes that another log names."""


@dataclass(frozen=True)
class Ending:
    """What a finding about a process that was ended from outside leaves open, for the analyzers; no JSON holds it.

    `what`: its title without a cause. `guess`: the sentence of its summary about memory, which a known cause replaces.
    """

    what: str
    cause: EndCause = "unknown"
    guess: str = ""


@dataclass(frozen=True)
class Setting:
    """The argument whose value a fix changes, for the analyzers; no JSON holds it.

    `names`: what calls name it; none where any name of the line may be it. `values`: what the run had it at, as far as
    that was measured, in each way in which the script may have written it; `ranges` that it must lie in, where that is
    all that is known; any number where neither is. `instead`: the value that the fix gives it, as code; empty where
    that is not known, or where more than the value changes. `called`: a pattern of names by which the script may call
    it that the line which uses it does not have, as the function that computes a schedule.
    """

    names: tuple[str, ...]
    values: tuple[float | bool, ...]
    instead: str = ""
    ranges: tuple[tuple[float, float], ...] = ()
    called: str = ""


Trait = Literal[
    "reason-known", "padding-seen", "of-targets", "cut-at-a-plateau", "too-small", "no-numbers", "two-ranges",
    "in-validation",
    "left-early",
]  # fmt: skip
"""What decides between findings which explains which, for the analyzers; no JSON holds it.

`reason-known`: what keeps an output constant is known, and keeps the loss up as well; `padding-seen`: it is a mask of
attention. `of-targets`: running statistics of a network whose answers training learns from. `cut-at-a-plateau`: a
learning rate that was cut as the loss that it watches stood. `too-small`: gradients that were divided too often have
none of the effects of sums. `no-numbers`: an exception that speaks of names, files, types and shapes, which wrong
numbers do not raise. `two-ranges`: inputs that are normalised in training or in validation alone: what validation
measures is then no overfitting. `in-validation`: a loss that stands where validation measures it, and falls in
training."""

INTERNAL: Final = ("ending", "setting", "traits")
"""Fields of a finding by which analyzers tell each other something: no JSON holds them."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. Words are plain text; only `fix_code`, `excerpt` and `diff` are code.

    `fix_code` is an example of the repair, not an edit of the reader's own lines; `diff` is one, where the rule knows
    it. `verify` says how to see that the repair worked. `excluded` lists the healthy explanations of the same evidence
    that were ruled out, a short sentence each. `first_at`: the onset in wall time, ISO 8601 in UTC.

    `location` is the line to change, where that is known, and `seen_at` then the line where the harm was seen; else
    `location` is the line where it was seen, and `seen_at` None. `excerpt` shows the lines around `location`.

    `first_step` and `last_step` are inclusive step numbers; `first_second` is the onset on the run's clock.
    `ranks`: those that it holds for or accuses; a rule that names none means the rank that was judged, and the engine
    fills it in. `trainings` names those that it holds for, in a run of several ("training 3 of 5", "thread fold-2").
    `caused_by` is the id of the rule whose finding explains this one, or None for a root cause. `counts`: what the
    numbers of steps count, epochs in a log that has no steps."""

    rule: str
    severity: Severity
    confidence: Confidence
    title: str
    summary: str
    fix: str
    fix_code: str = ""
    first_step: int | None = None
    last_step: int | None = None
    first_second: float | None = None
    ranks: list[int] = field(default_factory=list)
    trainings: list[str] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    cost: Cost | None = None
    location: Location | None = None
    caused_by: str | None = None
    charts: list[Chart] = field(default_factory=list)
    false_alarm: str = ""
    verify: str = ""
    excerpt: Excerpt | None = None
    diff: Diff | None = None
    excluded: list[str] = field(default_factory=list)
    first_at: str | None = None
    seen_at: Location | None = None
    ending: Ending | None = None
    setting: Setting | None = None
    traits: frozenset[Trait] = frozenset()
    counts: Counted = "step"


@dataclass(frozen=True)
class Check:
    """What became of one rule: it fired, passed (and on what evidence), or could not be evaluated (and why).

    `why`: the kind of reason of a skipped check, None for all others. `command` records what a check
    needs, where a command can. `traceback`: of a rule that failed; JSON leaves it out where it is empty.
    """

    rule: str
    status: Status
    reason: str
    title: str = ""
    why: Why | None = None
    command: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Exit:
    """How the program ended. `kind`: finished, exception, interrupted, signal, vanished, running, unknown."""

    kind: str
    code: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class SignalFacts:
    """What became of one thing that the collector records, and what it cost.

    `state`: on, off, failed. `share` of the time between first and last step; `every`: steps between two samples of a
    sampled signal, since step `turned_down_at` more than usual because of its cost, if that is not None.
    """

    name: str
    state: str
    reason: str = ""
    seconds: float | None = None
    share: float | None = None
    every: int | None = None
    turned_down_at: int | None = None
    traceback: str = ""


@dataclass(frozen=True)
class TrainingFacts:
    """One training of a run that made several. `seconds`: from its first to its last step; `loss`: its last one."""

    name: str
    rank: int
    steps: int
    seconds: float | None = None
    optimizer: str = ""
    loss: float | None = None


@dataclass(frozen=True)
class Agreement:
    """Whether the ranks of a job are alike in one thing, which are not, and since which step.

    `state`: agree; odd, as they should not be; own: they differ, and may. `ranks`: those that are unlike most others,
    all of them where there is no majority. `rule`: the check that judges it, if there is one.
    """

    name: str
    state: Literal["agree", "odd", "own"]
    said: str
    ranks: list[int] = field(default_factory=list)
    since: int | None = None
    rule: str = ""


@dataclass(frozen=True)
class RunFacts:
    """What the reader has to know about the run itself. `overhead` is the collector's own share of the step time once
    the run had settled, `overhead_per_step` its mean seconds in each of these steps, `overhead_at_start` the seconds
    before that: imports, and first steps, which are all sampled.
    `trainings` lists them where the run made several. `steps`: of the longest, or what a log holds up to `last_step`.
    `imported`: another program recorded it.
    `counts`: what the numbers of its steps count. `commit` is that of the program's
    folder, `clean`: nothing was changed.
    """

    path: str
    command: list[str]
    started_at: str | None
    duration_s: float | None
    steps: int
    ranks: int
    exit: Exit
    environment: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    overhead: float | None = None
    overhead_per_step: float | None = None
    overhead_at_start: float | None = None
    signals: list[SignalFacts] = field(default_factory=list)
    trainings: list[TrainingFacts] = field(default_factory=list)
    commit: str = ""
    clean: bool | None = None
    last_step: int | None = None
    imported: bool = False
    counts: Counted = "step"

    def turned_down(self) -> list[SignalFacts]:
        """Signals that looked less often than usual, because the collector keeps within a budget."""
        return [signal for signal in self.signals if signal.state == "on" and signal.turned_down_at is not None]


@dataclass(frozen=True)
class Diagnosis:
    """The whole answer. Findings are ordered: root causes first, then by severity, confidence and cost.

    `verdict_reason`: a sentence that says why the verdict is unknown, or, where it is ok or info, what of the training
    was not seen; empty for all others. `docs_url`: where reports link to for the pages of rules; empty for no links.
    `ranks`: in what those of a job agree, absent for a run of one. `picture` is no part of the JSON: a thousand slices
    say nothing that the findings do not.
    """

    run: RunFacts
    verdict: Verdict
    findings: list[Finding]
    checks: list[Check]
    charts: list[Chart] = field(default_factory=list)
    tracelyze_version: str = ""
    schema_version: int = SCHEMA_VERSION
    picture: Picture | None = None
    verdict_reason: str = ""
    docs_url: str = ""
    ranks: list[Agreement] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The JSON contract as plain data, keys in the order of the contract."""
        data = asdict(replace(self, picture=None))
        for finding, row in zip(self.findings, data["findings"], strict=True):
            for name in INTERNAL:
                del row[name]
            for evidence, entry in zip(finding.evidence, row["evidence"], strict=True):
                entry["unit"] = f"{evidence.unit} of {evidence.of}" if evidence.of else evidence.unit
                entry["measure"] = evidence.measure
                entry["fires_at"] = evidence.fires_at
        for check in data["checks"]:
            if not check["traceback"]:
                del check["traceback"]
        head = ("schema_version", "tracelyze_version", "run", "verdict", "verdict_reason")
        rest = ("findings", "checks", "charts", *(["ranks"] if self.ranks else []), "docs_url")
        return {key: data[key] for key in (*head, *rest)}

    def roots(self) -> list[Finding]:
        """Findings that nothing else explains."""
        return [finding for finding in self.findings if finding.caused_by is None]

    def consequences(self, rule: str) -> list[Finding]:
        """Findings that are explained by `rule`, directly or through others, in order of onset."""
        known = {rule}
        while more := {one.rule for one in self.findings if one.caused_by in known} - known:
            known |= more
        later = (one for one in self.findings if one.caused_by in known)
        return sorted(later, key=lambda one: (one.first_step is None, one.first_step or 0))
