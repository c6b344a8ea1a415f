"""What is recorded against what the program says of itself, column by column."""

from __future__ import annotations

import json
import sys

import pytest

from .conftest import Collect, program


def test_the_loss_of_a_step_is_what_the_program_optimizes(collect: Collect) -> None:
    done = collect(sys.executable, program("truth.py"))
    assert done.process.returncode == 0, done.process.stderr
    (process,) = done.run.processes
    rows = list(process.steps.records())
    for optimizer, line in enumerate(done.process.stdout.splitlines()):
        idiom, _, truth = line.partition(" ")
        recorded = [row["loss"] for row in rows if row["optimizer"] == optimizer]
        assert recorded == pytest.approx(json.loads(truth), rel=1e-5), idiom
