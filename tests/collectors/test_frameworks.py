"""Frameworks as they are: what is recorded agrees with what they say themselves, and nothing of theirs changes."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.conftest import PROGRAMS, environment, needs, program
from tests.fork_server import client
from tracelyze.analyzers import diagnose
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.recorded.run_directory import load
from tracelyze.diagnosis import Finding

FOLDER = PROGRAMS / "frameworks"
TWO_RANKS = (program("forked_ranks.py"), "2")


@dataclass(frozen=True)
class Told:
    """One run of a program: what it printed (a line per rank), and its run directory if it was recorded."""

    process: subprocess.CompletedProcess[str]
    folder: Path

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.process.stdout.splitlines() if line.startswith('{"digest"')]
        assert found, self.process.stderr
        return sorted(found, key=lambda line: int(line.get("rank", 0)))

    @property
    def digests(self) -> list[str]:
        return [line["digest"] for line in self.lines]

    @property
    def warnings(self) -> list[str]:
        """What went to stderr, without the collector's lines and without times, process numbers and ports."""
        kept = [line for line in self.process.stderr.splitlines() if not line.startswith("[tracelyze]")]
        return [re.sub(r"\d+", "0", line) for line in kept]

    @cached_property
    def processes(self) -> list[Process]:
        return load(self.folder).processes

    @property
    def process_(self) -> Process:
        (only,) = self.processes
        return only

    def steps(self, optimizer: int = 0) -> list[dict[str, Any]]:
        return [row for row in self.process_.steps.records() if row["optimizer"] == optimizer]

    @cached_property
    def findings(self) -> list[Finding]:
        return [finding for finding in diagnose(self.folder).findings if finding.severity != "info"]

    def assert_healthy(self) -> None:
        assert [(finding.rule, finding.summary) for finding in self.findings] == []
        for process in self.processes:
            assert [row["text"] for row in process.events.records() if row["kind"] == "collector-error"] == []
            assert process.exit.kind == "finished"

    def assert_only(self, rule: str, source: str) -> None:
        """One root cause, at this line of the program."""
        (root,) = [finding for finding in self.findings if finding.caused_by is None]
        assert root.rule == rule
        assert root.location is not None
        assert Path(root.location.file).parent == FOLDER
        assert root.location.source == source


class Programs:
    """Runs programs of the folder `frameworks`, plain and recorded, in processes that have torch in memory.

    `started`: in processes of their own from the beginning.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self.started = False

    def plain(self, name: str, *arguments: str, launcher: Sequence[str] = ()) -> Told:
        return self._run([sys.executable, *launcher, str(FOLDER / name), *arguments])

    def recorded(self, name: str, *arguments: str, launcher: Sequence[str] = ()) -> Told:
        wrapper = [sys.executable, "-m", "tracelyze", "collect", "--out", str(self._place / "run"), "--"]
        return self._run([*wrapper, sys.executable, *launcher, str(FOLDER / name), *arguments])

    def _run(self, command: list[str]) -> Told:
        if self.started:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=600, cwd=self._place, env=environment(), check=False
            )
        else:
            done = client.shared(client.FRAMEWORKS).run(command, environment(), cwd=self._place)
        assert done.returncode == 0, done.stderr
        return Told(done, self._place / "run")


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]


# Hugging Face Trainer


@needs("transformers", "accelerate")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_trainer(precision: str, programs: Programs) -> None:
    plain = programs.plain("transformers_trainer.py", precision)
    recorded = programs.recorded("transformers_trainer.py", precision, "callback")
    assert recorded.digests == plain.digests
    assert recorded.warnings == plain.warnings
    recorded.assert_healthy()
    (said,) = recorded.lines
    rows = recorded.steps()
    assert len(rows) == said["steps"]
    assert set(column(rows, "backwards")) == {2}
    # Trainer logs the sum over the accumulated losses of this model, tracelyze the mean.
    assert [2 * loss for loss in column(rows, "loss")] == pytest.approx(said["losses"], rel=1e-4)
    assert column(rows, "grad_norm") == pytest.approx(said["norms"], rel=1e-4)
    assert column(rows, "lr") == pytest.approx(said["rates"], rel=1e-6)
    assert set(column(rows, "autocast")) == {2 if precision == "bf16" else 0}
    passes = list(recorded.process_.evals.records())
    assert column(passes, "loss") == pytest.approx(said["evals"], rel=1e-3)
    assert set(column(passes, "samples")) == {32}
    assert set(column(passes, "purpose")) == {"validation"}
    assert None not in {row["trained"] for row in recorded.process_.tables["batches"].records()}
    assert set(column(rows, "batch_size")) == {16}
    assert "SeedableRandomSampler" in column(list(recorded.process_.loaders.records()), "sampler")
    framework = recorded.process_.facts["framework"]
    assert (framework["name"], framework["accumulation"]) == ("transformers", 2)
    assert framework["settings"]["learning_rate"] == 0.001
    logged = list(recorded.process_.scalars.records())
    assert [row["value"] for row in logged if (row["phase"], row["name"]) == ("train", "loss")] == said["losses"]
    assert [row["value"] for row in logged if (row["phase"], row["name"]) == ("eval", "loss")] == said["evals"]
    for file in recorded.folder.rglob("*"):
        assert not file.is_file() or b"hf_QQQQ" not in file.read_bytes()


@needs("transformers", "accelerate")
def test_trainer_with_a_loss_that_turns_nan(programs: Programs) -> None:
    recorded = programs.recorded("transformers_trainer.py", "nan")
    recorded.assert_only("loss-nonfinite", "found = super().compute_loss(model, inputs, **more)")


# Accelerate


@needs("accelerate")
def test_accelerate(programs: Programs) -> None:
    plain = programs.plain("accelerate_loop.py")
    programs.started = True  # one framework that is imported after the hooks, with torch, by a new interpreter
    recorded = programs.recorded("accelerate_loop.py")
    assert recorded.digests == plain.digests
    assert recorded.warnings == plain.warnings
    recorded.assert_healthy()
    (said,) = recorded.lines
    rows = recorded.steps()
    assert column(rows, "loss") == pytest.approx(said["losses"], rel=1e-6)
    assert set(column(rows, "backwards")) == {2}
    assert set(column(rows, "loss_divisor")) <= {2.0, None}
    assert set(column(rows, "clips")) == {1}
    passes = list(recorded.process_.evals.records())
    assert column(passes, "loss") == pytest.approx(said["evals"], rel=1e-6)
    assert set(column(passes, "forwards")) == {4}, "its loader is one batch ahead: the last one belongs to it, too"
    assert set(column(passes, "loader")) == {1}
    assert set(column(rows, "batch_size")) == {16}
    assert {(row["loader"], row["trained"]) for row in recorded.process_.tables["batches"].records()} == {
        (0, True),
        (1, False),
    }


@needs("lightning")
def test_fabric(programs: Programs) -> None:
    """The mode is switched on the model, which Fabric's own module does not see."""
    plain = programs.plain("fabric_loop.py")
    recorded = programs.recorded("fabric_loop.py")
    assert recorded.digests == plain.digests
    assert recorded.warnings == plain.warnings
    recorded.assert_healthy()
    (said,) = recorded.lines
    assert column(recorded.steps(), "loss") == pytest.approx(said["losses"], rel=1e-6)
    assert set(column(recorded.steps(), "model_in_train")) == {True}
    passes = list(recorded.process_.evals.records())
    assert column(passes, "loss") == pytest.approx(said["evals"], rel=1e-6)
    assert set(column(passes, "model_in_train")) == {False}
    assert set(column(passes, "trained")) == {True}


@needs("accelerate")
@pytest.mark.parametrize(
    ("fault", "rule", "source"),
    [
        ("no-zero-grad", "missing-zero-grad", "accelerator.backward(loss)"),
        (
            "train-mode",
            "eval-in-train-mode",
            "seen = [criterion(model(inputs), targets).item() for inputs, targets in valid]",
        ),
    ],
)
def test_faults_with_accelerate(fault: str, rule: str, source: str, programs: Programs) -> None:
    programs.recorded("accelerate_loop.py", fault).assert_only(rule, source)


# Lightning


@needs("lightning")
def test_lightning(programs: Programs) -> None:
    plain = programs.plain("lightning_module.py", "two-loaders")
    recorded = programs.recorded("lightning_module.py", "two-loaders", "callback")
    assert recorded.digests == plain.digests
    assert recorded.warnings == plain.warnings
    recorded.assert_healthy()
    (said,) = recorded.lines
    rows = recorded.steps()
    pairs = zip(said["losses"][::2], said["losses"][1::2], strict=True)
    assert column(rows, "loss") == pytest.approx([(a + b) / 2 for a, b in pairs], rel=1e-6)
    assert len(rows) == said["steps"]
    assert set(column(rows, "backwards")) == {2}
    assert set(column(rows, "clip_max_norm")) == {1.0}
    passes = list(recorded.process_.evals.records())
    assert column(passes, "purpose") == ["sanity check"] + ["validation"] * 6
    assert column(passes[1:], "loss") == pytest.approx(said["evals"], rel=1e-6), "one pass over both loaders"
    framework = recorded.process_.facts["framework"]
    assert (framework["name"], framework["accumulation"]) == ("lightning", 2)
    assert framework["settings"]["hparams.hidden"] == 32
    assert framework["settings"]["hparams.api_key"] == "[redacted]"
    epochs = [row["value"] for row in recorded.process_.scalars.records() if row["name"] == "epoch"]
    assert epochs == [0, 1, 2, 3, 4, 5]


@needs("lightning")
def test_lightning_with_a_loss_that_turns_nan(programs: Programs) -> None:
    recorded = programs.recorded("lightning_module.py", "nan")
    recorded.assert_only("loss-nonfinite", "loss = F.cross_entropy(self(x), y)")


@needs("lightning")
def test_manual_optimisation_with_two_optimizers(programs: Programs) -> None:
    plain = programs.plain("lightning_module.py", "manual")
    recorded = programs.recorded("lightning_module.py", "manual")
    assert recorded.digests == plain.digests
    assert recorded.warnings == plain.warnings
    recorded.assert_healthy()
    (said,) = recorded.lines
    for optimizer in (0, 1):
        rows = recorded.steps(optimizer)
        assert column(rows, "loss") == pytest.approx([pair[optimizer] for pair in said["losses"]], rel=1e-6)
        assert set(column(rows, "backwards")) == {1}
    assert set(column(recorded.steps(1), "clips")) == {1}


@needs("lightning")
def test_manual_optimisation_that_never_clears_one_optimizer(programs: Programs) -> None:
    recorded = programs.recorded("lightning_module.py", "manual", "no-zero-grad")
    recorded.assert_only("partial-zero-grad", "self.manual_backward(cost)")


# torch itself


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks(parallel: str, programs: Programs) -> None:
    plain = programs.plain("parallel_loop.py", parallel, launcher=TWO_RANKS)
    recorded = programs.recorded("parallel_loop.py", parallel, launcher=TWO_RANKS)
    assert recorded.digests == plain.digests
    recorded.assert_healthy()
    assert [process.rank for process in recorded.processes] == [0, 1]
    norms = []
    for process, said in zip(recorded.processes, recorded.lines, strict=True):
        rows = list(process.steps.records())
        assert column(rows, "loss") == pytest.approx(said["losses"], rel=1e-5)
        assert set(column(rows, "backwards")) == {2}
        assert set(column(rows, "grads_carried")) == {0}
        passes = list(process.evals.records())
        assert column(passes, "loss") == pytest.approx(said["evals"], rel=1e-5)
        norms.append(column(rows, "grad_norm"))
    assert norms[0] == norms[1], "the norm over all ranks, as the clip returned it"


@pytest.mark.parametrize(("parallel", "source"), [("ddp", 1), ("fsdp", 3)])
def test_norms_of_two_ranks_that_do_not_clip(parallel: str, source: int, programs: Programs) -> None:
    """DDP's ranks have the same gradients. FSDP2's have parts, whose norms add up in squares; nobody communicates."""
    plain = programs.plain("parallel_loop.py", parallel, "unclipped", launcher=TWO_RANKS)
    recorded = programs.recorded("parallel_loop.py", parallel, "unclipped", launcher=TWO_RANKS)
    assert recorded.digests == plain.digests
    recorded.assert_healthy()
    rows = [list(process.steps.records()) for process in recorded.processes]
    assert {row["grad_norm_source"] for one in rows for row in one} == {source}
    norms = [column(one, "grad_norm") for one in rows]
    told = recorded.lines[0]["norms"]
    assert len(told) == len(norms[0]) > 20
    whole = [math.hypot(*parts) for parts in zip(*norms, strict=True)] if source == 3 else norms[1]
    assert whole == pytest.approx(told, rel=1e-4)
    if source == 3:
        assert norms[0] != norms[1], "each rank has a part of its own"


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_that_never_clear(parallel: str, programs: Programs) -> None:
    recorded = programs.recorded("parallel_loop.py", parallel, "no-zero-grad", launcher=TWO_RANKS)
    recorded.assert_only("missing-zero-grad", "(loss / 2).backward()")


@pytest.mark.parametrize("kind", ["compile", "compile-step", "fused", "foreach"])
def test_what_torch_offers_for_speed(kind: str, programs: Programs) -> None:
    plain = programs.plain("torch_loop.py", kind)
    recorded = programs.recorded("torch_loop.py", kind)
    assert recorded.digests == plain.digests
    assert recorded.warnings == plain.warnings
    recorded.assert_healthy()
    (said,) = recorded.lines
    rows = recorded.steps()
    assert column(rows, "loss") == pytest.approx(said["losses"], rel=1e-6)
    passes = list(recorded.process_.evals.records())
    assert column(passes, "loss") == pytest.approx(said["evals"], rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "rule", "source"),
    [
        (
            ("fused", "fp16"),
            "fp16-without-scaler",
            'with torch.autocast("cpu", torch.float16, enabled="fp16" in sys.argv):',
        ),
        (("compile", "nan"), "loss-nonfinite", "loss.backward()"),
        (
            ("compile", "train-mode"),
            "eval-in-train-mode",
            "seen = [F.cross_entropy(called(inputs), targets).item() for inputs, targets in valid]",
        ),
    ],
)
def test_faults_under_them(arguments: tuple[str, ...], rule: str, source: str, programs: Programs) -> None:
    programs.recorded("torch_loop.py", *arguments).assert_only(rule, source)
