"""Two ranks over gloo, one of which stands still: what is written down meanwhile, and what is made of it."""

from __future__ import annotations

import json
import sys

import pytest

from tests.collectors.conftest import Collect, program
from tracelyze.analyzers import diagnose, load
from tracelyze.collectors.system import flight_recorder


def hanging(collect: Collect, how: str, *independent: str):
    """The run of two ranks that are started apart from each other, the answer of rank-hang, and all findings."""
    command = (program("forked_ranks.py"), "2", *independent, program("hanging.py"), how)
    folder = collect(sys.executable, *command).folder
    diagnosis = diagnose(folder)
    (check,) = [check for check in diagnosis.checks if check.rule == "rank-hang"]
    return folder, check, {finding.rule: finding for finding in diagnosis.findings}


def test_a_rank_that_does_something_else_is_named_with_its_line(collect: Collect) -> None:
    folder, _, found = hanging(collect, "sleeps", "--independent")
    hang = found["rank-hang"]
    assert hang.ranks == [1]
    assert "did not join all_reduce number" in hang.summary
    assert "it was in wait_for_something_else" in hang.summary
    assert hang.location.source == "time.sleep(7.0)"
    evidence = {one.name: one.value for one in hang.evidence}
    assert evidence["sizes of its tensors"] == "[4, 3]"
    assert "all_reduce" in str(evidence["stack of rank 0, which waits"])
    assert found["crash"].caused_by == "rank-hang", "the time-out of the rank that waits"
    assert load(folder).processes[0].signals["collectives"]["state"] == "on"


def test_a_rank_that_has_fewer_batches_is_named(collect: Collect) -> None:
    _, _, found = hanging(collect, "ends", "--independent")
    # Whether the other rank was written down as waiting, or Gloo noticed the closed connection before that.
    assert found["rank-hang"].ranks == [1]
    assert "ended normally after 8 steps" in found["rank-hang"].summary


def test_a_rank_that_leaves_out_a_call_is_named_with_it(collect: Collect) -> None:
    """Gloo aborts the other rank, from a thread without Python, and leaves no message that a run could hold."""
    folder, _, found = hanging(collect, "skips", "--independent")
    hang, aborted = found["rank-hang"], load(folder).processes[0].exit
    assert aborted.detail.startswith("Fatal Python error: Aborted in a library's thread in a collective, in main at")
    assert (hang.ranks, hang.title) == ([1], "Rank 1 left out all_reduce of [4, 3], in which rank 0 waited")
    assert hang.location.source == "model(torch.randn(4, 8)).square().mean().backward()"
    assert "Gloo ends such a process with an abort" in hang.summary
    assert found["killed"].caused_by == "rank-hang"


def test_a_rank_that_asks_a_person_is_named_with_its_line(collect: Collect) -> None:
    hang = hanging(collect, "keyboard")[2]["rank-hang"]
    assert (hang.ranks, hang.location.source) == ([1], 'input("Shall we go on? ")')
    assert "it waited for input from the keyboard at hanging.py" in hang.summary


def test_a_slow_evaluation_on_one_rank_that_ends_is_no_hang(collect: Collect) -> None:
    folder, check, found = hanging(collect, "evaluates", "--independent")
    assert (check.status, check.reason) == ("passed", "No rank of 2 waits in a collective.")
    waits = load(folder).processes[1].tables["collectives"].records()
    assert any(row["state"] == "scheduled" for row in waits), "while it lasted, the other rank was seen to wait"
    assert "crash" not in found


GLOO = {
    "entries": [
        {
            "collective_seq_id": number,
            "input_sizes": [[4]],
            "is_p2p": False,
            "output_sizes": [[4]],
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:all_reduce",
            "retired": number < 3,
            "state": "scheduled",
            "time_created_ns": 10**18,
        }
        for number in (1, 2, 3)
    ],
    "pg_config": {"": {"desc": "", "name": "", "ranks": "[0, 1]"}},
    "pg_status": {
        "0": {"last_completed_collective": "2", "last_enqueued_collective": "3", "last_started_collective": "-1"}
    },
}


def test_what_gloo_calls_scheduled_is_complete_when_it_is_retired() -> None:
    group, *entries = flight_recorder.rows(json.loads(json.dumps(GLOO)))
    assert (group["group"], group["members"], group["enqueued"], group["completed"]) == ("0", "0 1", 3, 2)
    assert [row["state"] for row in entries] == ["completed", "completed", "scheduled"]


@pytest.mark.parametrize("broken", [{}, {"pg_config": {}}, {"pg_config": {"": 3}, "entries": [4], "pg_status": []}])
def test_dumps_that_hold_nothing(broken: dict) -> None:
    assert flight_recorder.rows({"pg_config": {}, **broken}) == []
