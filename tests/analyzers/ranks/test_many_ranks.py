"""A run of many ranks is judged as a run of few: by a map over its process folders and one reduction."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracelyze import schema
from tracelyze.analyzers import diagnose, engine, load
from tracelyze.analyzers.computed.optimization import objectives
from tracelyze.analyzers.ranks import cores
from tracelyze.analyzers.ranks.summary import Plan, Task, judge_folder, unpacked
from tracelyze.analyzers.rules import RULES

SAMPLES = Path(__file__).resolve().parents[3] / "sample_traces"
RANKS = ("healthy", "missing-zero-grad", "fp16-overflow", "missing-zero-grad", "healthy")
SMALL = 10 * 1024  # bytes that the summary of a rank may have, with the texts of its findings


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every rank did what another sample did; rank 4 was restarted after a crash."""
    folder = tmp_path_factory.mktemp("ranks") / "run"
    for rank, name in enumerate(RANKS):
        (source,) = (SAMPLES / name).glob("rank*")
        process = folder / f"rank{rank:05d}-attempt{int(rank == 4)}-pid{rank + 1}"
        shutil.copytree(source, process)
        facts = json.loads((process / schema.PROCESS_FILE).read_text())
        facts |= {"rank": rank, "attempt": int(rank == 4), "pid": rank + 1, "launcher": f"node {rank}"}
        (process / schema.PROCESS_FILE).write_text(json.dumps(facts))
    dead = shutil.copytree(process, folder / "rank00004-attempt0-pid77")
    facts |= {"attempt": 0, "pid": 77}
    (dead / schema.PROCESS_FILE).write_text(json.dumps(facts))
    (folder / schema.RUN_FILE).write_text(json.dumps({"schema_version": 1, "command": ["torchrun", "train.py"]}))
    return folder


@pytest.fixture(scope="module")
def expected(run: Path) -> dict[str, object]:
    """What a run of few processes is told."""
    return diagnose(run).to_dict()


def in_pieces(judge: Callable[[Task], bytes], tasks: Sequence[Task]) -> list[bytes]:
    """As an engine elsewhere would do it: everything is sent, and comes back in bytes."""
    return [pickle.loads(pickle.dumps(judge))(pickle.loads(pickle.dumps(task))) for task in tasks]


def test_few_and_many_processes_have_the_same_diagnosis(run, expected, monkeypatch) -> None:
    monkeypatch.setattr(engine, "FEW", 2)
    assert diagnose(run).to_dict() == expected
    assert any(finding["charts"] for finding in expected["findings"])
    assert any("was restarted" in note for note in expected["run"]["notes"])


def test_any_map_will_do(run, expected, monkeypatch) -> None:
    assert diagnose(run, mapper=in_pieces).to_dict() == expected
    monkeypatch.setattr(engine, "FEW", 2)
    assert diagnose(run, mapper=in_pieces).to_dict() == expected


def test_a_loaded_run_has_the_same_diagnosis(run, expected) -> None:
    assert diagnose(load(run)).to_dict() == expected


def test_the_summary_of_a_rank_is_small(run) -> None:
    plan = Plan(tuple(rule.id for rule in RULES), charts=False)
    for folder in sorted(run.glob("rank*")):
        sent = judge_folder(Task(str(folder), plan))
        assert len(sent) < SMALL, folder
        assert unpacked(sent).rank == int(folder.name[4:9])


@pytest.mark.starts_programs
def test_cores_share_a_run(run, expected) -> None:
    assert diagnose(run, workers=2).to_dict() == expected


def _dies_elsewhere(task: Task) -> bytes:
    """Judges nothing, and ends every process but the one with the tests."""
    if "PYTEST_CURRENT_TEST" in os.environ and os.environ.get("JUDGED_IN") == str(os.getpid()):
        return task.folder.encode()
    os._exit(3)


@pytest.mark.starts_programs
def test_a_worker_that_dies_costs_nothing_but_time(monkeypatch) -> None:
    monkeypatch.setenv("JUDGED_IN", str(os.getpid()))
    tasks = [Task(str(number), Plan(())) for number in range(10)]
    assert list(cores.shared(_dies_elsewhere, tasks, workers=2)) == [str(number).encode() for number in range(10)]


def test_small_runs_start_no_process() -> None:
    tasks = [Task(str(number), Plan(())) for number in range(200)]
    assert list(cores.shared(lambda task: task.folder.encode(), tasks, work=1_000_000))[-1] == b"199"


def test_a_rule_of_ones_own_is_judged_here(run) -> None:
    own = replace(RULES[0], id="own", check=lambda process, limits: RULES[0].check(process, limits))
    assert [check.rule for check in diagnose(run, rules=[own]).checks] == ["own"]


def test_rows_and_masks_that_are_kept_belong_to_nobody(run: Path) -> None:
    """A rule that changes what it was given changes nothing for the next one."""
    process = load(run).processes[0]
    first = next(iter(process.steps.records()))
    was, first["loss"] = dict(first), -1.0
    assert repr(next(iter(process.steps.records()))) == repr(was)
    mask = process.events.matches("kind", "exit")
    assert not mask.flags.writeable
    assert process.events.matches("kind", "exit").tolist() == [text == "exit" for text in process.events.text("kind")]
    process.forget()
    assert repr(next(iter(process.steps.records()))) == repr(was)


@pytest.mark.parametrize("count", [17, 18, 400])
def test_medians_of_neighbouring_losses(count: int) -> None:
    losses = np.random.default_rng(count).normal(size=count)
    expected = [np.median(losses[at : at + objectives.AROUND]) for at in range(count - objectives.AROUND + 1)]
    assert objectives._medians(losses).tolist() == expected
