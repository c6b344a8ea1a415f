"""Records a labelled training, has it diagnosed, and holds the diagnosis against the label.

Everything goes through the command line, as a user would: `tracelyze collect`, then `tracelyze diagnose --format json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tracelyze.catalogue.entries import entries

from .manifest import Training

ROOT: Final = Path(__file__).resolve().parents[2]
COLLECT_TIMEOUT: Final = 300.0
DIAGNOSE_TIMEOUT: Final = 120.0

Kind = Literal["miss", "false alarm", "not explained", "wrong cause", "exit code", "failed"]


@dataclass(frozen=True)
class Problem:
    """One disagreement between label and diagnosis: which rule, what it said, and why."""

    kind: Kind
    rule: str
    why: str


@dataclass
class Judgement:
    """What became of one labelled training. `located` is None where no line is labelled or none was given."""

    training: Training
    problems: list[Problem] = field(default_factory=list)
    diagnosis: dict[str, Any] = field(default_factory=dict)
    uncovered: list[str] = field(default_factory=list)
    located: bool | None = None
    collect_seconds: float = 0.0
    diagnose_seconds: float = 0.0

    @property
    def known(self) -> set[str]:
        """Rules that the diagnosis has an answer of, be it that they could not be evaluated."""
        return {check["rule"] for check in self.diagnosis.get("checks", [])}

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Findings of severity warning or critical."""
        found = self.diagnosis.get("findings", [])
        return [finding for finding in found if finding["severity"] != "info"]

    @property
    def mild_roots(self) -> set[str]:
        """Root causes of severity info that never are more than that."""
        mild = {entry.id for entry in entries() if entry.severity == "info"}
        found = [finding for finding in self.diagnosis.get("findings", []) if finding["caused_by"] is None]
        return {finding["rule"] for finding in found} & mild

    @property
    def roots(self) -> list[str]:
        """Rules that were named as root causes."""
        return [finding["rule"] for finding in self.findings if finding["caused_by"] is None]


Run = Callable[[list[str], Path, float], "subprocess.CompletedProcess[str]"]


def run(command: list[str], folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """Runs `command` in `folder` with this checkout importable; raises subprocess.TimeoutExpired."""
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=timeout, check=False
    )


def environment() -> dict[str, str]:
    """One thread, and this checkout importable."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(filter(None, paths)))


def diagnose(training: Training, folder: Path, run: Run = run) -> Judgement:
    """Records and judges one training; its run directory stays in `folder`. `run` runs both commands."""
    judgement = Judgement(training)
    recorded = folder / "run"
    again = ["-m", "benchmarks.reseeded", str(training.seed)] if training.seed else []
    program = [sys.executable, *again, str(training.script), *training.args]
    started = time.monotonic()
    try:
        collected = run(
            [sys.executable, "-m", "tracelyze", "collect", "--out", str(recorded), *training.collect, "--", *program],
            folder,
            COLLECT_TIMEOUT,
        )
        judgement.collect_seconds = time.monotonic() - started
        started = time.monotonic()
        answered = run(
            [sys.executable, "-m", "tracelyze", "diagnose", str(recorded), "--format", "json"], folder, DIAGNOSE_TIMEOUT
        )
        judgement.diagnose_seconds = time.monotonic() - started
    except subprocess.TimeoutExpired as late:
        judgement.problems.append(Problem("failed", "", f"no answer after {late.timeout:.0f} s: {late.cmd[3]}"))
        return judgement
    code = collected.returncode if collected.returncode >= 0 else 128 - collected.returncode
    if code != training.exit_code:
        last = collected.stderr.strip().splitlines()[-1:]
        why = f"exit code {code}, expected {training.exit_code}: {' '.join(last)}"
        judgement.problems.append(Problem("exit code", "", why))
    if answered.returncode != 0:
        judgement.problems.append(Problem("failed", "", f"diagnose: {answered.stderr.strip()[-400:]}"))
        return judgement
    judgement.diagnosis = json.loads(answered.stdout)
    judge(judgement)
    return judgement


def judge(judgement: Judgement) -> None:
    """Adds to `judgement` what the diagnosis got wrong, fault by fault and finding by finding."""
    training = judgement.training
    expected: set[str] = set()
    for root in training.roots:
        names = root.split("|")
        expected.update(names)
        hits = [name for name in names if name in judgement.roots or name in judgement.mild_roots]
        if not judgement.known.intersection(names):
            judgement.uncovered.append(root)
        elif not hits:
            judgement.problems.append(missed(judgement, names))
        elif len(set(hits)) > 1:
            judgement.problems.append(Problem("not explained", hits[1], f"one fault, several roots: {', '.join(hits)}"))
    for finding in judgement.findings:
        judgement.problems.extend(unexpected(finding, expected, training))
    judgement.located = located(judgement, expected)


def missed(judgement: Judgement, names: list[str]) -> Problem:
    """Why none of the alternatives `names` is among the roots."""
    for finding in judgement.diagnosis["findings"]:
        if finding["rule"] in names:
            if finding["caused_by"] is not None:
                return Problem("wrong cause", finding["rule"], f"put down to {finding['caused_by']}")
            return Problem("miss", finding["rule"], f"severity is only {finding['severity']}: {finding['summary']}")
    reasons = [
        f"{check['rule']} {check['status']}: {check['reason']}"
        for check in judgement.diagnosis["checks"]
        if check["rule"] in names
    ]
    return Problem("miss", names[0], "; ".join(reasons))


def unexpected(finding: dict[str, Any], expected: set[str], training: Training) -> Iterable[Problem]:
    """The problem with one finding, if there is one."""
    rule, cause = finding["rule"], finding["caused_by"]
    if rule in expected or rule in training.extras:
        return
    words = f"{finding['title']}: {finding['summary']}"
    if cause is None:
        if rule in training.consequences:
            causes = " or ".join(sorted(expected))
            row = "is a row missing in tracelyze/analyzers/consequences?"
            yield Problem("not explained", rule, f"not put down to {causes}: {row} {words}")
        else:
            yield Problem("false alarm", rule, words)
    elif rule not in training.consequences:
        yield Problem("false alarm", rule, f"caused by {cause}: {words}")


def located(judgement: Judgement, expected: set[str]) -> bool | None:
    """True if a finding of an expected rule points at a labelled line of the script, False if it points elsewhere."""
    if not judgement.training.lines:
        return None
    source = judgement.training.script.read_text(encoding="utf-8").splitlines()
    answers: list[bool] = []
    for finding in judgement.findings:
        place = finding["location"]
        if finding["rule"] not in expected or place is None or place["line"] < 1:
            continue
        same_file = Path(place["file"]).name == judgement.training.script.name
        text = source[place["line"] - 1].strip() if same_file and place["line"] <= len(source) else ""
        answers.append(any(line in text for line in judgement.training.lines))
    return all(answers) if answers else None
