"""What is recorded of losses, parameters, schedulers and scalers whose use is known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.conftest import Collect, environment, program, run_plain
from tests.fork_server import client
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.recorded.run_directory import load

PARTS = (
    "functional_and_module",
    "softmaxes",
    "compiled",
    "transforms",
    "left_out",
    "unused",
    "scheduled",
    "retained",
    "scaled",
)
Rows = list[dict[str, Any]]


class Recorded:
    def __init__(self, folder: Path) -> None:
        self.plain = run_plain(sys.executable, program("mechanisms.py"), modules=client.FRAMEWORKS).stdout
        wrapper = [sys.executable, "-m", "tracelyze", "collect", "--out", str(folder), "--"]
        done = client.shared(client.FRAMEWORKS).run([*wrapper, sys.executable, program("mechanisms.py")], environment())
        done.check_returncode()
        self.collected = done.stdout
        self.process: Process = load(folder).processes[0]

    def rows(self, table: str, **wanted: Any) -> Rows:
        """Rows of a table with these values."""
        rows = self.process.tables[table].records()
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]

    def calls(self, source: str, function: str) -> Rows:
        """Looked-at calls of a loss at the line with this text."""
        sites = {row["site"] for row in self.process.sites.records() if source in (row["source"] or "")}
        return [row for row in self.rows("loss_calls", function=function) if row["site"] in sites]

    def optimizer(self, part: str) -> int:
        return PARTS.index(part)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("mechanisms") / "run")


def test_nothing_changes_and_nothing_fails(recorded: Recorded) -> None:
    assert recorded.collected == recorded.plain
    assert recorded.rows("events", kind="collector-error") == []


def test_a_loss_is_seen_as_function_and_as_module(recorded: Recorded) -> None:
    module = recorded.calls("criterion(m(x()), labels())", "cross_entropy")
    function = recorded.calls("criterion(m(x()), labels())", "nll_loss")
    assert min(len(module), len(function)) >= 15
    for row in module:
        assert (row["input_shape"], row["target_shape"], row["made_by"]) == ("12x4", "12", "Addmm")
        assert row["target_integer"]
        assert row["training"]
        assert row["log_sum_error"] > 0.01
        assert 0 <= row["target_lowest"] <= row["target_highest"] <= 3
        assert 0 < row["value"] < 5
    for row in function:
        assert (row["made_by"], row["made_dim"], row["made_whole"]) == ("LogSoftmax", 1, True)
        assert row["log_sum_error"] < 1e-5
        assert row["highest"] <= 0


def test_the_softmax_behind_views_and_clamps_is_found(recorded: Recorded) -> None:
    rows = recorded.calls(".softmax(-1).view(12, 4)", "cross_entropy")
    assert {(row["made_by"], row["made_dim"]) for row in rows} == {("Softmax", None)}
    assert max(row["sum_error"] for row in rows) < 1e-4
    assert min(row["lowest"] for row in rows) > 0


def test_a_compiled_model_hides_what_it_did(recorded: Recorded) -> None:
    rows = recorded.rows("loss_calls", made_by="CompiledFunction")
    assert len(rows) >= 15
    assert max(row["sum_error"] for row in rows) < 1e-4


def test_transforms_and_modes_are_left_alone(recorded: Recorded) -> None:
    assert recorded.calls("F.mse_loss(model(x()), torch.zeros(12, 4))", "mse_loss") == []
    assert recorded.calls("F.cross_entropy(model(row), label)", "cross_entropy") == []
    inside = recorded.rows("loss_calls", function="smooth_l1_loss")
    assert len(inside) >= 15, "of what torch.func.grad differentiates, shapes alone are read"
    seen = {(row["input_shape"], row["target_shape"], row["training"], row["value"]) for row in inside}
    assert seen == {("12x1", "12", True, None)}
    keywords = recorded.rows("loss_calls", function="huber_loss")
    assert {(row["input_shape"], row["target_shape"]) for row in keywords} == {("12x4", "")}


def test_tensors_in_no_optimizer_are_counted(recorded: Recorded) -> None:
    row = [row for row in recorded.rows("reach", optimizer=None) if row["missed"]][-1]
    assert (row["missed"], row["missed_elements"], row["shared_model"], row["fed_by_trained"]) == (2, 42, 0, 0)
    assert row["names"] == "weight, bias"


def test_tensors_without_gradient_are_named(recorded: Recorded) -> None:
    last = {row["optimizer"]: row for row in recorded.rows("reach")}
    unused = last[recorded.optimizer("unused")]
    assert (unused["held"], unused["missed"], unused["missed_elements"]) == (4, 2, 12)
    for part in set(PARTS) - {"unused"}:
        assert last[recorded.optimizer(part)]["missed"] == 0


def test_schedulers_within_schedulers(recorded: Recorded) -> None:
    last = {row["scheduler"]: row for row in recorded.rows("schedules")}
    outer = [row for row in last.values() if not row["inner"]]
    assert [(row["name"], row["steps"]) for row in outer] == [("SequentialLR", 40)]
    assert {row["optimizer"] for row in last.values()} == {recorded.optimizer("scheduled")}
    assert {row["name"] for row in last.values()} == {"SequentialLR", "ConstantLR", "ExponentialLR"}


def test_retained_graphs_and_anomaly_mode(recorded: Recorded) -> None:
    for part in ("retained", "scheduled"):
        rows = recorded.rows("steps", optimizer=recorded.optimizer(part))
        assert {(row["graph_retained"], row["anomaly_mode"]) for row in rows} == {(part == "retained",) * 2}


def test_both_halves_of_a_scaler(recorded: Recorded) -> None:
    rows = recorded.rows("steps", optimizer=recorded.optimizer("scaled"))
    seen = [(row["losses_scaled"], row["scaler_use"]) for row in rows]
    assert seen == [(1, 0)] * 10 + [(1, 2)] * 10 + [(0, 2)] * 10
    assert {row["scaler_use"] for row in recorded.rows("steps", optimizer=0)} == {None}


def test_losses_without_a_value_end_no_signal(collect: Collect) -> None:
    done = collect(sys.executable, program("valueless.py"))
    assert done.process.stdout == run_plain(sys.executable, program("valueless.py")).stdout
    (process,) = done.run.processes
    assert [name for name, entry in process.signals.items() if entry["state"] == "failed"] == []
    known = process.steps.known("loss")
    assert list(known[:130]) == [False] * 130
    assert list(known[130:]) == [True] * 130, "the next training's losses are recorded"
    assert process.evals.known("loss").sum() == 3
