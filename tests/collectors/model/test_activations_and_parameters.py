"""What is recorded inside of models: outputs, weights, gradients and updates, against the script's own sums."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.collectors.conftest import Collect, Collected, program, run_plain
from tests.fork_server.client import FRAMEWORKS
from tracelyze.analyzers.recorded.run import Process
from tracelyze.collectors.signals.model.activations import FINITE, INFINITE, MINUS_INFINITE, NAN, kind_of

Rows = list[dict[str, Any]]
EVERY = ("--signal", "activations=every:1", "--signal", "parameters=every:1")


def collected(collect: Collect, kind: str, *options: str) -> Collected:
    done = collect(sys.executable, program("looked_into.py"), kind, options=options)
    assert done.process.returncode == 0, done.process.stderr
    return done


def rows(process: Process, table: str) -> Rows:
    assert [row for row in process.events.records() if row["kind"] == "collector-error"] == []
    return list(process.tables[table].records())


def test_they_agree_with_the_scripts_own_sums(collect: Collect) -> None:
    done = collected(collect, "plain", *EVERY)
    truth = json.loads(done.process.stdout)
    (process,) = done.run.processes
    activations = rows(process, "activations")
    looked = sorted({row["step"] for row in activations})
    assert looked == [1, 2, 3, 4, 5], "all training forwards but the first, which is over before there is a recording"
    for row in activations:
        expected = truth["activations"][row["step"]].get(row["module"])
        if expected is not None:
            assert [row["mean"], row["std"], row["largest"], row["zeros"]] == pytest.approx(expected, abs=1e-5)
        assert row["nonfinite"] == FINITE
    first = [(row["order"], row["module"], row["kind"]) for row in activations if row["step"] == 1]
    assert first == [
        (1, "first", "Linear"),
        (2, "block.0", "ReLU"),
        (3, "block.1", "Linear"),
        (4, "block", "Sequential"),
        (5, "last", "Linear"),
        (6, "", "Net"),
    ]
    parameters = rows(process, "parameters")
    assert sorted({row["step"] for row in parameters}) == [1, 2, 3, 4, 5, 6]
    assert len(parameters) == 6 * 6
    for row in parameters:
        weight, update, gradient, largest = truth["parameters"][row["step"] - 1][row["parameter"]]
        close = {"rel": 1e-4, "abs": 1e-7} if row["elements"] <= 256 else {"rel": 0.3, "abs": 1e-7}
        assert row["weight_norm"] == pytest.approx(weight, **close)
        assert row["update_norm"] == pytest.approx(update, **close)
        assert row["grad_norm"] == pytest.approx(gradient, rel=1e-5)
        assert row["grad_largest"] == pytest.approx(largest, rel=1e-6)
        assert row["lr"] == 0.1
        assert row["grad_finite"]
        assert not row["closure"]
        assert row["since"] == (1 if row["step"] > 1 else None)
        assert row["unchanged_since"] == (None if row["step"] == 1 else pytest.approx(0.0, abs=0.02))


def test_updates_that_16_bit_weights_round_away(collect: Collect) -> None:
    (process,) = collected(collect, "lost", *EVERY).run.processes
    parameters = rows(process, "parameters")
    assert {row["dtype"] for row in parameters} == {"bfloat16"}
    assert min(row["unchanged_reached"] for row in parameters if row["parameter"].endswith("weight")) > 0.95
    assert all(row["grad_norm"] > 0 for row in parameters)


def test_parameters_that_a_step_leaves_alone(collect: Collect) -> None:
    (process,) = collected(collect, "not_applied", *EVERY).run.processes
    parameters = rows(process, "parameters")
    still = {row["parameter"] for row in parameters if row["unchanged"] == 1.0}
    assert {row["unchanged_since"] for row in parameters if row["parameter"] in still} == {None, 1.0}
    assert still == {"first.weight", "first.bias"}
    assert {row["lr"] for row in parameters if row["parameter"] in still} == {0.0}
    assert {row["lr"] for row in parameters if row["parameter"] not in still} == {0.1}
    assert {row["parameter"] for row in parameters} == still | {"block.1.weight", "block.1.bias"}


UNFROZEN = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
model[0].requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(250):
    if step == 30:
        model[0].requires_grad_(True)
    if step == 130:
        model[2].requires_grad_(False)
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
"""


def test_layers_that_are_unfrozen_keep_their_names(collect: Collect) -> None:
    (process,) = collect(sys.executable, "-c", UNFROZEN, options=EVERY).run.processes
    rows = list(process.tables["parameters"].records())
    elements = {"0.weight": 24, "0.bias": 8, "2.weight": 16, "2.bias": 2}
    assert {(row["parameter"], row["elements"]) for row in rows} == set(elements.items())
    assert len({(row["parameter"], row["step"]) for row in rows}) == len(rows)
    assert all(row["update_norm"] < 0.2 * row["weight_norm"] for row in rows if row["parameter"].endswith("weight"))


def test_double_precision(collect: Collect) -> None:
    (process,) = collected(collect, "double", *EVERY).run.processes
    assert {row["dtype"] for row in rows(process, "parameters")} == {"float64"}
    assert {row["dtype"] for row in rows(process, "activations")} == {"float64"}


def test_the_first_module_that_is_not_finite_is_found_when_the_loss_is_not(collect: Collect) -> None:
    options = ("--signal", "activations=every:1000000")
    (process,) = collected(collect, "overflows", *options).run.processes
    broken = [row for row in rows(process, "activations") if row["nonfinite"] != FINITE]
    assert broken, "although it was to look at the first forward only"
    assert all(row["alert"] for row in broken)
    first = min(broken, key=lambda row: (row["step"], row["order"]))
    assert first["module"] in ("first", "block.1"), "all weights are NaN after the first such step"
    assert first["weights_finite"] is False


def test_the_lines_of_the_module_that_is_not_finite_first(collect: Collect) -> None:
    (process,) = collected(collect, "squares", *EVERY).run.processes
    assert any(row["nonfinite"] == INFINITE and row["module"] == "1" for row in rows(process, "activations"))
    sites = {row["role"]: row for row in process.sites.records() if row["role"] in ("broken-forward", "powers")}
    assert {role: (row["source"], row["name"]) for role, row in sites.items()} == {
        "broken-forward": ("def forward(self, x):", "1"),
        "powers": ("return centred * centred", "1"),
    }
    (process,) = collected(collect, "plain", *EVERY).run.processes
    assert not process.locations("broken-forward")


def test_the_lines_around_a_layer_that_was_given_nan(collect: Collect) -> None:
    (process,) = collected(collect, "given", *EVERY).run.processes
    sites = [row for row in process.sites.records() if row["role"] in ("broken-forward", "powers")]
    assert [(row["role"], row["source"], row["name"]) for row in sites] == [
        ("broken-forward", "def forward(self, x):", "proj.0"),
        ("powers", "scores = x @ x.T", "proj.0"),
        ("powers", "return self.proj(scores.softmax(-1) @ x)", "proj.0"),
    ]


def test_the_lines_around_a_function_that_was_given_nan(collect: Collect) -> None:
    (process,) = collected(collect, "squashed", *EVERY).run.processes
    sites = [row for row in process.sites.records() if row["role"] in ("broken-forward", "powers")]
    assert [(row["role"], row["function"], row["name"]) for row in sites[:2]] == [
        ("broken-forward", "forward", "ReLU after 0.proj"),
        ("powers", "forward", "ReLU after 0.proj"),
    ]


def test_odd_models_are_survived(collect: Collect) -> None:
    (process,) = collected(collect, "unusual", *EVERY).run.processes
    modules = {row["module"] for row in rows(process, "activations")}
    assert {"odd", "last", ""} <= modules
    assert {row["parameter"] for row in rows(process, "parameters")} == {
        "odd.inner.weight",
        "odd.inner.bias",
        "last.weight",
        "last.bias",
    }


def test_one_that_fails_is_switched_off_and_nothing_else(collect: Collect) -> None:
    done = collected(collect, "failing", *EVERY)
    (process,) = done.run.processes
    assert done.own_stderr == ""
    signals = process.facts["signals"]
    assert {name for name, state in signals.items() if state["state"] == "failed"} == {"activations", "parameters"}
    assert "TypeError" in signals["activations"]["traceback"]
    assert len(process.steps) == 6


def test_looking_everywhere_at_every_step_changes_no_weight_and_no_random_number(collect: Collect) -> None:
    names = ("activations", "parameters", "batches", "gradient_norm", "gradient_lifecycle")
    options = tuple(part for name in names for part in ("--signal", f"{name}=every:1"))
    loops = (sys.executable, "-W", "ignore", program("loops.py"))
    done = collect(*loops, options=options, modules=FRAMEWORKS)
    plain = run_plain(*loops, modules=FRAMEWORKS)
    assert done.process.stdout == plain.stdout
    assert len(done.own_stderr.splitlines()) == len(plain.stderr.splitlines()), "torch's own warnings, no more"
    (process,) = done.run.processes
    assert [row for row in process.events.records() if row["kind"] == "collector-error"] == []


def test_they_can_be_switched_off(collect: Collect) -> None:
    (process,) = collected(collect, "plain", "--no-signal", "activations,parameters").run.processes
    assert rows(process, "activations") == rows(process, "parameters") == []


def test_what_a_sum_says_of_its_terms() -> None:
    inf = float("inf")
    assert [kind_of(total) for total in (1.0, float("nan"), inf, -inf)] == [FINITE, NAN, INFINITE, MINUS_INFINITE]


def test_of_models_behind_the_first_only_what_is_taken_for_positions(collect: Collect) -> None:
    (process,) = collected(collect, "in_turn", *EVERY).run.processes
    activations = rows(process, "activations")
    last = [(row["order"], row["kind"], row["positions"], row["rows"]) for row in activations if row["step"] == 5]
    assert last == [(1, "Linear", None, None), (2, "LSTM", 32, 6)]
