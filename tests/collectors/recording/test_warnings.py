"""What is computed on the program's tensors warns of nothing."""

from __future__ import annotations

import sys

import pytest

from tests.collectors.conftest import Collect, program


def test_nothing_is_warned_of(collect: Collect) -> None:
    """A warning of ours would be an error here, and the signal switched off."""
    done = collect(sys.executable, "-W", "error", program("warned.py"))
    assert done.process.returncode == 0, done.process.stderr
    (_, norm), *others = [line.split(" ", 1) for line in done.process.stdout.splitlines()]
    assert [idiom for idiom in others if idiom[1] != "ended"] == []
    assert done.own_stderr == ""
    (process,) = done.run.processes
    assert [row["text"] for row in process.events.records() if row["kind"] == "collector-error"] == []
    looked_at = [row for row in process.tables["activations"].records() if row["alert"]]
    assert {row["weights_finite"] for row in looked_at if row["module"] == "" and row["step"] < 30} == {True}
    looks = [row for row in process.tables["parameters"].records() if row["parameter"] == "turn"]
    assert looks[0]["weight_norm"] == pytest.approx(float(norm), rel=1e-5)
    assert (looks[0]["elements"], looks[0]["unchanged"]) == (8, 0.0)
