"""Every labelled training gets the diagnosis that its label asks for: these roots, and nothing else.

A representative part runs by default; `TRACELYZE_ALL_TRAININGS=1` runs all of them (about twenty minutes on two cores).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.fork_server import client
from tracelyze.catalogue.entries import entries

from . import repaired
from .judge import diagnose, environment
from .judge import run as judge_run
from .manifest import FOLDER, TRAININGS, Training

# Diagnoses that no labelled training shows. The list may only get shorter.
WITHOUT_A_TRAINING = {
    # need a device, or a profiler's trace of one
    "allocator-stalls", "exposed-communication", "fp32-on-tensor-cores", "host-bound", "memory-fragmentation",
    "memory-headroom", "memory-underused", "optimizer-for-loop", "out-of-memory", "pageable-copies",
    "sync-stalls",
    # need a cluster's dumps, or several processes that train for long
    "clip-differs-by-rank", "data-parallel", "rank-hang",
    # on one machine the exchange of gradients takes too little
    "small-batch-per-rank",
    # are told from the metrics of reinforcement learning libraries
    "completions-truncated", "reward-collapse",
    # take ten minutes of training before they speak: less is a demo or a test
    "no-checkpoint", "no-validation",
    # are about time that is lost, five seconds at least in one run, and about processors, which differ by machine
    "epoch-boundary-stall", "slow-steps", "too-many-workers",
}  # fmt: skip
EVERYTHING = os.environ.get("TRACELYZE_ALL_TRAININGS", "") not in ("", "0")
CHOSEN = [training for training in TRAININGS if training.fast or EVERYTHING]


def run(command: list[str], folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    return client.shared().run(command, environment(), cwd=folder, timeout=timeout)


@pytest.mark.starts_programs
@pytest.mark.parametrize("training", CHOSEN, ids=lambda training: training.name)
def test_diagnosis_matches_the_label(training: Training, tmp_path: Path) -> None:
    judgement = diagnose(training, tmp_path, run)
    assert not judgement.problems, "\n".join(f"{p.kind}: {p.rule}: {p.why}" for p in judgement.problems)
    never_steps = training.roots == ("updates-not-applied",) and training.args[-1:] == ("no-step",)
    if "optim" in training.script.read_text(encoding="utf-8") and not never_steps and training.exit_code == 0:
        assert judgement.diagnosis["run"]["steps"] > 0
    if training.healthy:
        # Of a training without an optimizer nothing is known, and that is said.
        unknown = () if "optim" in training.script.read_text(encoding="utf-8") else ("unknown",)
        assert judgement.diagnosis["verdict"] in ("ok", "info", *unknown)
    places = [finding["location"] for finding in judgement.findings]
    assert judgement.located is not False, f"none of {training.lines} in {places}"
    for finding in judgement.diagnosis["findings"]:
        if finding["diff"] is None:
            foreign = repaired.passed_off(training, finding)
            assert not foreign, f"{finding['rule']}: the example passes these off as the script's names: {foreign}"
    proposed = [finding for finding in judgement.diagnosis["findings"] if finding["diff"] is not None]
    for number, finding in enumerate(proposed):
        better = repaired.applied(training, finding["diff"], tmp_path / str(number))
        if EVERYTHING or training.name in repaired.RUN_AGAIN:
            again = diagnose(better, tmp_path / str(number), run)
            assert not [one for one in again.problems if one.kind in ("exit code", "failed")], finding["diff"]
            if training.name in repaired.RUN_AGAIN:
                assert finding["rule"] not in again.roots, "what was repaired is still found"
    assert proposed or training.name not in repaired.RUN_AGAIN, "no edit is proposed any more"


def test_trainings_that_run_again_are_among_those_that_run() -> None:
    assert set(repaired.RUN_AGAIN) <= {training.name for training in CHOSEN}


@pytest.mark.starts_programs
def test_a_process_that_is_started_gives_the_same_diagnosis(tmp_path: Path) -> None:
    """What the fork server leaves out of a start changes no check: one training, through the command line itself."""
    training = next(training for training in TRAININGS if training.fast and training.roots == ("missing-zero-grad",))
    answers = []
    for name, way in (("started", judge_run), ("forked", run)):
        (tmp_path / name).mkdir()
        diagnosis = diagnose(training, tmp_path / name, way).diagnosis
        answers.append({check["rule"]: check["status"] for check in diagnosis["checks"]})
    assert answers[0] == answers[1] != {}


def test_every_script_is_labelled_once() -> None:
    names = [training.name for training in TRAININGS]
    assert len(set(names)) == len(names)
    scripts = [path for folder in ("healthy", "faulty", "pairs") for path in FOLDER.glob(f"{folder}/*.py")]
    assert {training.script for training in TRAININGS} == set(scripts)


def test_labelled_lines_stand_in_the_scripts() -> None:
    for training in TRAININGS:
        source = training.script.read_text(encoding="utf-8")
        for line in training.lines:
            assert line in source, f"{training.name}: {line}"


def test_every_diagnosis_has_a_faulty_training() -> None:
    """A rule counts as done when it tells real runs apart (CONTRIBUTING.md); its look-alikes: tests/rule_outcomes.py."""
    roots = {name for training in TRAININGS for root in training.roots for name in root.split("|")}
    known = {entry.id for entry in entries()}
    without = known - roots
    assert without - WITHOUT_A_TRAINING == set(), "add a faulty script to tests/trainings and label it in manifest.py"
    assert WITHOUT_A_TRAINING - without == set(), "these have a training now, or are gone: take them off the list"


def test_scripts_do_not_know_that_they_are_observed() -> None:
    for training in TRAININGS:
        assert "tracelyze" not in training.script.read_text(encoding="utf-8").lower(), training.name
