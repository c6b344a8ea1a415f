"""Every labelled training gets the diagnosis that its label asks for: these roots, and nothing else.

A representative part runs by default; `TRACELYZE_ALL_TRAININGS=1` runs all of them (about twenty minutes on two cores).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from .judge import diagnose
from .manifest import FOLDER, TRAININGS, Training

EVERYTHING = os.environ.get("TRACELYZE_ALL_TRAININGS", "") not in ("", "0")
CHOSEN = [training for training in TRAININGS if training.fast or EVERYTHING]


@pytest.mark.parametrize("training", CHOSEN, ids=lambda training: training.name)
def test_diagnosis_matches_the_label(training: Training, tmp_path: Path) -> None:
    judgement = diagnose(training, tmp_path)
    assert not judgement.problems, "\n".join(f"{p.kind}: {p.rule}: {p.why}" for p in judgement.problems)
    if "optim" in training.script.read_text(encoding="utf-8"):
        assert judgement.diagnosis["run"]["steps"] > 0
    if training.healthy:
        assert judgement.diagnosis["verdict"] in ("ok", "info")
    places = [finding["location"] for finding in judgement.findings]
    assert judgement.located is not False, f"none of {training.lines} in {places}"


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


def test_scripts_do_not_know_that_they_are_observed() -> None:
    for training in TRAININGS:
        assert "tracelyze" not in training.script.read_text(encoding="utf-8").lower(), training.name
