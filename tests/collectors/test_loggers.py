"""What a program hands to TensorBoard or Weights & Biases is recorded where it is a training loss."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from tracelyze.collectors.hooks import loggers


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
