"""Weights and modes of models that from_pretrained of transformers returns, which sets weights past load_state_dict."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.collectors.conftest import program, run_plain
from tracelyze.analyzers import diagnose

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.starts_programs
PROGRAM = program("frameworks/transformers_pretrained.py")
RULES = ("repeated-initialization", "train-in-eval-mode")


@pytest.mark.parametrize("how", ["filled", "frozen"])
def test_an_initialisation_after_from_pretrained(collect: Any, how: str) -> None:
    """`frozen`: no optimizer holds what was loaded."""
    collected = collect(sys.executable, PROGRAM, how)
    if how == "filled":
        assert collected.process.stdout == run_plain(sys.executable, PROGRAM, how).stdout
    (finding,) = diagnose(collected.run, select=RULES).findings
    assert (finding.rule, finding.severity) == ("repeated-initialization", "critical")
    assert finding.location.source == "model.apply(fill)"
    assert finding.summary.startswith("from_pretrained set 16 weights"), "the new head is none of them"
    assert "BertForSequenceClassification.from_pretrained(folder, num_labels=2)" in finding.fix_code


def test_a_pretrained_part_that_stays_in_eval_mode(collect: Any) -> None:
    (finding,) = diagnose(collect(sys.executable, PROGRAM, "part").run, select=RULES).findings
    assert (finding.rule, finding.severity) == ("train-in-eval-mode", "warning")
    assert finding.fix_code == "self.encoder = BertModel.from_pretrained(folder)\nself.encoder.train()"
    assert finding.location.source == "self.encoder = BertModel.from_pretrained(folder)"
    assert (finding.first_step, finding.last_step) == (1, 8)


@pytest.mark.parametrize("how", ["head", "upper half", "part trained", "part evaluated", "part frozen"])
def test_what_is_meant(collect: Any, how: str) -> None:
    """A head or upper layers begin anew; a part is evaluated by itself, or gets no gradients, as the teacher does."""
    assert not diagnose(collect(sys.executable, PROGRAM, how).run, select=RULES).findings


def test_a_file_of_safetensors(collect: Any) -> None:
    (process,) = collect(sys.executable, PROGRAM, "head").run.processes
    (row,) = [one for one in process.tables["checkpoints"].records() if one["action"] == "save"]
    assert (row["file"], row["step"], row["missing"], row["untouched"]) == ("model.safetensors", 8, 0, 0)
    assert row["held"] == row["compared"] > 16
