"""What test_truth.py does, for the loops of frameworks, of several ranks and of torch.compile."""

from __future__ import annotations

import sys

from tests.collectors.conftest import Collect, Collected, needs, program
from tests.collectors.test_truth import compared
from tests.fork_server.client import FRAMEWORKS
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.rule import Limits
from tracelyze.analyzers.rules.accumulation.unscaled_accumulation import rule as unscaled_accumulation
from tracelyze.diagnosis import Finding

RANK_ENDS = "rank\n"


def assert_true(done: Collected) -> None:
    """What each process recorded is what it said."""
    assert done.process.returncode == 0, done.process.stderr
    said = [one for one in done.process.stdout.split(RANK_ENDS) if one]
    wrong = [compared(process, one) for process, one in zip(done.run.processes, said, strict=True)]
    assert {
        f"{idiom} of {rank}": lines for rank, one in enumerate(wrong) for idiom, lines in one.items() if lines
    } == {}


def unscaled(part: Process) -> list[Finding]:
    """What the rule unscaled-accumulation finds in one training."""
    rule = unscaled_accumulation.RULE
    found = rule.check(part, Limits(rule.thresholds))
    return [found] if isinstance(found, Finding) else list(found) if isinstance(found, list) else []


@needs("transformers", "accelerate")
def test_trainer(collect: Collect) -> None:
    done = collect(sys.executable, program("truth_trainer.py"), modules=FRAMEWORKS)
    assert_true(done)
    (process,) = done.run.processes
    *healthy, faulty = process.trainings
    assert [unscaled(part) for part in healthy] == [[], [], [], []]
    (finding,) = unscaled(faulty)  # a compute_loss that ignores num_items_in_batch
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    assert "loss_is_scaled_for_ga" in finding.fix_code
    assert finding.location is not None
    assert finding.location.function.endswith("compute_loss")


@needs("accelerate")
def test_accelerate(collect: Collect) -> None:
    assert_true(collect(sys.executable, program("truth_accelerate.py"), modules=FRAMEWORKS))


@needs("lightning")
def test_lightning(collect: Collect) -> None:
    assert_true(collect(sys.executable, program("truth_lightning.py"), modules=FRAMEWORKS))


@needs("ignite")
def test_ignite(collect: Collect) -> None:
    assert_true(collect(sys.executable, program("truth_ignite.py")))


@needs("transformers", "trl", "peft", "datasets")
def test_tuning(collect: Collect) -> None:
    assert_true(collect(sys.executable, program("truth_tuning.py")))


def test_two_ranks(collect: Collect) -> None:
    assert_true(collect(sys.executable, program("truth_ranks.py"), modules=FRAMEWORKS))


def test_compiled(collect: Collect) -> None:
    assert_true(collect(sys.executable, program("truth_compiled.py"), modules=FRAMEWORKS))
