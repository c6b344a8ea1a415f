"""What a program hands to a logger is recorded where it is a training loss, or a metric of reinforcement learning."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch

from tracelyze.collectors.hooks import loggers
from tracelyze.collectors.signals.loss.reported_losses import ReportedLosses


@pytest.fixture
def run(monkeypatch: Any) -> Any:
    """A stand-in for wandb's Run."""
    module = types.ModuleType("wandb.sdk.wandb_run")

    class Run:
        def log(self, data: dict[str, Any], step: int | None = None) -> str:
            """Logs."""
            if not data:
                raise ValueError("nothing to log")
            return f"logged {len(data)}"

    module.Run = Run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb.sdk.wandb_run", module)
    monkeypatch.setattr(loggers, "_done", set())
    return Run


def test_a_call_is_passed_on_and_told(run: Any) -> None:
    passed_on: list[Any] = []
    for _ in range(2):  # what is wrapped once is not wrapped again
        loggers.wrap_when_imported(lambda logger, values: passed_on.append((logger, dict(values))))
    assert run().log({"loss": 1.5}, step=3) == "logged 1"
    assert run().log(data={"loss": 2.5}) == "logged 1"
    assert passed_on == [("Run.log", {"loss": 1.5}), ("Run.log", {"loss": 2.5})]
    assert (run.log.__name__, run.log.__doc__) == ("log", "Logs.")


def test_an_error_is_the_librarys_own(run: Any) -> None:
    loggers.wrap_when_imported(lambda logger, values: None)
    with pytest.raises(ValueError, match="nothing to log") as caught:
        run().log({})
    assert not [frame for frame in caught.traceback if frame.path.name == "loggers.py"]


def test_a_trainer_of_transformers_tells_the_metrics_and_not_its_rounded_loss(monkeypatch: Any) -> None:
    module = types.ModuleType("transformers.trainer")

    class Trainer:
        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            logs["epoch"] = 1.0

    module.Trainer = Trainer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers.trainer", module)
    monkeypatch.setattr(loggers, "_done", set())
    signal, rows = reported_losses()
    loggers.wrap_when_imported(signal.reported)
    Trainer().log({"loss": 0.6931, "reward": 0.5, "completions/clipped_ratio": 1.0, "step_time": 0.4}, start_time=0.0)
    Trainer().log(logs={"entropy": 1.5})
    assert [(row["phase"], row["name"], row["value"]) for row in rows] == [
        ("train", "reward", 0.5),
        ("train", "completions/clipped_ratio", 1.0),
        ("train", "entropy", 1.5),
    ]


def test_a_loss_is_kept_apart_from_the_metrics_of_a_tracker() -> None:
    signal, rows = reported_losses()
    signal.reported("Run.log", {"train/loss": 1.5, "train/reward": 0.25, "lr": 0.1, "train/kl": "none"})
    assert [(row["phase"], row["name"]) for row in rows] == [("reported", "train/loss"), ("train", "reward")]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("objective/reward", True),
        ("ppo/mean_reward", True),
        ("charts/episodic_return", True),
        ("Reward/mean", True),
        ("losses/entropy", True),
        ("rollout.kl", True),
        ("eval/mean_reward", False),
        ("reward_scale", False),
        ("kl_coef", False),
        ("rewards/chosen", False),
        ("importance_weights", False),
        ("ratio", False),
    ],
)
def test_a_scripts_own_names_are_known_by_their_last_words(name: str, kept: bool) -> None:
    signal, rows = reported_losses()
    for value in (0.5, 0.25):
        signal.reported("SummaryWriter.add_scalar", {name: value})
    assert [row["name"] for row in rows] == [name] * (2 * kept)


def reported_losses() -> tuple[ReportedLosses, list[dict[str, Any]]]:
    """The signal, and the rows that it writes."""
    rows: list[dict[str, Any]] = []
    signal = ReportedLosses.__new__(ReportedLosses)
    signal.context = types.SimpleNamespace(now=lambda: 0.0, emit=lambda _table, row: rows.append(row))
    signal.progress = types.SimpleNamespace(steps=3)
    signal.program = types.SimpleNamespace(sites=types.SimpleNamespace(here=lambda role: None))
    signal.torch = torch
    signal._names, signal._metrics, signal._rows = set(), {}, 0
    return signal, rows


def writes(name: str, folder: Any) -> Any:
    """How a script writes one number with this library, where it is installed."""
    if name == "mlflow":
        mlflow = pytest.importorskip("mlflow")
        mlflow.set_tracking_uri(f"sqlite:///{folder / 'runs.db'}")
        mlflow.start_run()
        return mlflow.log_metric, mlflow.end_run
    if name == "mlflow, several":
        _, end = writes("mlflow", folder)
        return lambda key, value: sys.modules["mlflow"].log_metrics({key: value}), end
    if name == "tensorboardX":
        writer = pytest.importorskip("tensorboardX").SummaryWriter(str(folder))
        return writer.add_scalar, writer.close
    csv_logger = pytest.importorskip("lightning.pytorch.loggers").CSVLogger(str(folder))
    return lambda key, value: csv_logger.log_metrics({key: value}, step=0), csv_logger.save


@pytest.mark.parametrize(
    ("name", "logger"),
    [
        pytest.param("mlflow", "MlflowClient.log_metric", marks=pytest.mark.starts_programs),
        pytest.param("mlflow, several", "MlflowClient.log_batch", marks=pytest.mark.starts_programs),
        ("tensorboardX", "SummaryWriter.add_scalar"),
        ("lightning", "CSVLogger.log_metrics"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of the libraries themselves
def test_each_librarys_own_writer_tells_once(name: str, logger: str, tmp_path: Any, monkeypatch: Any) -> None:
    write, end = writes(name, tmp_path)
    signal, rows = reported_losses()
    wrapped = [(sys.modules.get(module), kind, method) for module, kind, method in loggers.LOGGERS]
    for module, kind, method in wrapped:  # to be put back as they were
        if module is not None:
            monkeypatch.setattr(getattr(module, kind), method, getattr(getattr(module, kind), method))
    monkeypatch.setattr(loggers, "_done", set())
    loggers.wrap_when_imported(signal.reported)
    if name == "tensorboardX":  # its method was bound before
        write = write.__self__.add_scalar
    write("train/loss", 1.5)
    write("train/reward", 0.25)
    end()
    assert [(row["phase"], row["name"], row["value"], row["logger"]) for row in rows] == [
        ("reported", "train/loss", 1.5, logger),
        ("train", "reward", 0.25, logger),
    ]
