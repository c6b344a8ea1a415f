"""Dumps of memory and of collectives: pickles in which nothing may run, and what hangs and failures look like."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import tracelyze
from tracelyze.errors import InputError
from tracelyze.importing.dumps import memory_snapshot, plain_pickle

SHARED = Path(__file__).resolve().parents[3] / "shared" / "recordings"
RECORDINGS = Path(os.environ.get("TRACELYZE_RECORDINGS", SHARED))
GIB = 2**30


class Runs:
    """Whose unpickling would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_in_a_pickle_runs(tmp_path: Path, protocol: int) -> None:
    file, made = tmp_path / "dump.pickle", tmp_path / "made"
    file.write_bytes(pickle.dumps({"pg_config": {}, "version": Runs(made)}, protocol=protocol))
    with pytest.raises(InputError, match="more than plain data") as refused:
        plain_pickle.load(file)
    assert "\n" not in str(refused.value)
    assert not made.exists()


HOSTILE = {
    "global": b"cos\nsystem\n(S'true'\ntR.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "memo of gigabytes": b"\x80\x02}r\xff\xff\xff\xff.",
    "cut off": pickle.dumps({"pg_config": {"0": {}}, "version": "2.9"})[:-4],
    "persistent": b"\x80\x02U\x01aQ.",
    "a length beyond the file": b"\x80\x04X\xff\xff\xff\x7fabc.",
    "nothing on the stack": b"\x80\x02a.",
    "empty": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    file = tmp_path / "x.pickle"
    file.write_bytes(HOSTILE[name])
    with pytest.raises(InputError) as refused:
        plain_pickle.load(file)
    assert "\n" not in str(refused.value)


def test_plain_containers_come_back_as_they_were(tmp_path: Path) -> None:
    data = {"a": [1, -2.5, None, True, "text", (1, (2,)), {}], "b": 2**70}
    for protocol in range(6):
        assert plain_pickle.loads(tmp_path, pickle.dumps(data, protocol=protocol)) == data


def entry(group: str, sequence: int, state: str = "scheduled", operation: str = "all_reduce", line: int = 40) -> Any:
    frames = [
        {"filename": "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "line": 1, "name": "x"},
        {"filename": "/home/me/train.py", "line": line, "name": "step"},
    ]
    return {
        "pg_id": int(group),
        "process_group": [group, f"group {group}"],
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{operation}",
        "input_sizes": [[1024]],
        "output_sizes": [[1024]],
        "state": state,
        "is_p2p": False,
        "time_created_ns": 10**18 + sequence,
        "frames": frames,
    }


def dump(entries: list[Any], groups: dict[str, list[int]], status: dict[str, int] | None = None) -> dict[str, Any]:
    return {
        "version": "2.10",
        "pg_config": {name: {"name": name, "desc": f"group {name}", "ranks": str(m)} for name, m in groups.items()},
        "pg_status": {
            name: {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": last}
            for name, last in (status or {}).items()
        },
        "entries": entries,
    }


def hang(folder: Path, dumps: dict[int, dict[str, Any]], form: str = "pickle") -> Any:
    folder.mkdir()
    for rank, one in dumps.items():
        data = pickle.dumps(one, protocol=2) if form == "pickle" else json.dumps(one, sort_keys=True).encode()
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    diagnosis = tracelyze.diagnose(folder, select=["rank-hang"])
    return diagnosis.checks[0].status, next(iter(diagnosis.findings), None)


ALL = {"0": [0, 1, 2, 3]}


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_rank_that_did_not_join_is_named(tmp_path: Path, form: str) -> None:
    dumps = {rank: dump([entry("0", 6, "completed"), entry("0", 7)], ALL) for rank in (0, 1, 3)}
    dumps[2] = dump([entry("0", 6, "completed", line=12)], ALL)
    status, finding = hang(tmp_path / "dumps", dumps, form)
    assert status == "fired"
    assert finding.ranks == [2]
    assert "did not join all_reduce number 7" in finding.summary
    assert (finding.location.file, finding.location.line) == ("/home/me/train.py", 40)
    assert "[1024]" in [evidence.value for evidence in finding.evidence]


def test_a_rank_that_waits_for_the_guilty_one_is_not_named(tmp_path: Path) -> None:
    groups = {"0": [0, 1, 2, 3], "1": [2, 3]}
    dumps = {rank: dump([entry("0", 7)], ALL) for rank in (0, 1)}
    dumps[2] = dump([entry("0", 6, "completed"), entry("1", 4)], groups)  # behind in 0: it waits for rank 3 in 1
    dumps[3] = dump([entry("0", 6, "completed"), entry("1", 3, "completed")], groups)
    assert hang(tmp_path / "dumps", dumps)[1].ranks == [3]


def test_a_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    status, finding = hang(tmp_path / "dumps", {rank: dump([entry("0", 7)], ALL) for rank in (0, 1, 3)})
    assert (status, finding.ranks) == ("fired", [2])
    assert "left no dump" in finding.summary


def test_a_rank_whose_device_stands_is_named(tmp_path: Path) -> None:
    dumps = {rank: dump([entry("0", 7, "completed"), entry("0", 8)], ALL) for rank in (0, 1, 3)}
    dumps[2] = dump([entry("0", 7), entry("0", 8)], ALL)  # it joined both; the first never ended there alone
    assert hang(tmp_path / "dumps", dumps)[1].ranks == [2]


def test_ranks_that_moved_on_are_not_accused(tmp_path: Path) -> None:
    done = {rank: dump([entry("0", 7, "completed")], ALL) for rank in range(4)}
    assert hang(tmp_path / "done", done)[0] == "passed"
    together = {rank: dump([entry("0", 7)], ALL) for rank in range(4)}  # all joined: it is under way
    assert hang(tmp_path / "together", together)[0] == "passed"
    source = {rank: dump([entry("0", 7, "scheduled", "broadcast")], ALL) for rank in (1, 2, 3)}
    source[0] = dump([entry("0", 7, "completed", "broadcast")], ALL)  # a broadcast's source may be done before
    assert hang(tmp_path / "source", source)[0] == "passed"


def test_a_damaged_dump_is_left_out_and_its_rank_named(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    dumps = {rank: dump([entry("0", 7)], ALL) for rank in (0, 1, 2)}
    assert hang(folder, dumps)[1].ranks == [3]
    (folder / "nccl_trace_rank_3").write_bytes(pickle.dumps(dump([entry("0", 7)], ALL), protocol=2)[:-20])
    diagnosis = tracelyze.diagnose(folder)
    assert any("Left out" in note for note in diagnosis.run.notes)
    assert diagnosis.findings[0].ranks == [3]


@pytest.mark.parametrize(("name", "guilty"), [("gpu_error_1st", [12, 14]), ("lock_gil_2nd", [10, 15])])
def test_real_hangs(name: str, guilty: list[int]) -> None:
    folder = RECORDINGS / "hangs" / name
    if not folder.exists():
        pytest.skip("no recordings: set TRACELYZE_RECORDINGS to the folder that holds them")
    diagnosis = tracelyze.diagnose(folder)
    assert [(finding.rule, finding.ranks) for finding in diagnosis.findings] == [("rank-hang", guilty)]


def snapshot(trace: list[dict[str, Any]], live: int, reserved: int) -> bytes:
    segment = {"device": 0, "total_size": reserved, "allocated_size": live, "blocks": []}
    return pickle.dumps({"segments": [segment], "device_traces": [trace], "allocator_settings": {}})


FRAMES = [
    {"filename": "??", "line": 0, "name": "c10"},
    {"filename": "/home/me/train.py", "line": 90, "name": "forward"},
]
OOM = {"action": "oom", "size": 5 * GIB, "device_free": 0, "frames": FRAMES}


@pytest.mark.parametrize(
    ("after", "live", "reserved", "says"),
    [
        ([], 74, 74, "capacity, not fragmentation"),
        # Everything was freed before the dump: the free memory in its segments says nothing of the failure.
        ([{"action": "free_completed", "size": 60 * GIB}], 14, 74, "capacity, not fragmentation"),
        ([], 60, 74, "in pieces: fragmentation"),
    ],
)
def test_a_failed_allocation(tmp_path: Path, after: list[Any], live: int, reserved: int, says: str) -> None:
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(snapshot([OOM, *after], live * GIB, reserved * GIB))
    diagnosis = tracelyze.diagnose(file)
    (finding,) = diagnosis.findings
    assert finding.rule == "out-of-memory"
    assert says in finding.summary
    assert (finding.location.file, finding.location.line) == ("/home/me/train.py", 90)


def test_the_lines_that_hold_most_are_named(tmp_path: Path) -> None:
    """Also what was freed between the failure and the dump, and not what was allocated in between."""

    def block(address: int, gib: int, line: int) -> dict[str, Any]:
        frames = [{"filename": "/x/torch/nn/linear.py", "line": 1}, {"filename": "/home/me/train.py", "line": line}]
        return {"address": address, "addr": address, "size": gib * GIB, "frames": frames, "state": "active_allocated"}

    held = [block(1, 8, 12), block(2, 8, 12), block(3, 30, 77)]
    after = [{"action": "alloc"} | block(3, 30, 77), {"action": "free_completed"} | block(4, 40, 31)]
    segment = {"device": 0, "total_size": 80 * GIB, "allocated_size": 46 * GIB, "blocks": held}
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[OOM, *after]]}))
    (finding,) = tracelyze.diagnose(file).findings
    said = [evidence.value for evidence in finding.evidence if evidence.name == "held by live tensors then"]
    assert said == [
        "40 GiB in 1 tensor, from /home/me/train.py:31",
        "16 GiB in 2 tensors, from /home/me/train.py:12",
    ]
    file.write_bytes(pickle.dumps({"segments": [segment], "device_traces": []}))
    notes = tracelyze.diagnose(file).run.notes
    assert any("live in this snapshot: 30 GiB in 1 tensor, from /home/me/train.py:77" in note for note in notes)


def test_a_snapshot_without_a_failure_says_so(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(snapshot([{"action": "alloc", "size": GIB}], GIB, 2 * GIB))
    diagnosis = tracelyze.diagnose(file)
    assert diagnosis.findings == []
    assert any("no allocation failed" in note for note in diagnosis.run.notes)


def test_levels_are_replayed_backwards() -> None:
    trace = [
        OOM,
        {"action": "alloc", "size": 3},
        {"action": "free_completed", "size": 10},
        {"action": "segment_free", "size": 20},
    ]
    assert memory_snapshot.level_at(trace, 0, memory_snapshot.Level(5, 40)) == memory_snapshot.Level(12, 60)


@pytest.mark.parametrize(("name", "rules"), [("full.pickle", ["out-of-memory"]), ("medium_128_inference.pickle", [])])
def test_real_snapshots(name: str, rules: list[str]) -> None:
    file = RECORDINGS / "memory" / name
    if not file.exists():
        pytest.skip("no recordings: set TRACELYZE_RECORDINGS to the folder that holds them")
    assert [finding.rule for finding in tracelyze.diagnose(file).findings] == rules


def pair(operation: str, sequence: int, group: str = "0") -> Any:
    """A send or a receive of batch_isend_irecv, as torch writes it: its state never changes."""
    told = entry(group, 0, "scheduled", operation, 55)
    return told | {"is_p2p": True, "p2p_seq_id": sequence}


def test_a_rank_that_did_not_send_is_named_and_not_those_behind_it(tmp_path: Path) -> None:
    def stage(rank: int, sends: int) -> dict[str, Any]:  # of a pipeline: what comes from the left goes to the right
        left = [f"recv {rank}<-{rank - 1}"] * 3 if rank else []
        right = [f"send {rank}->{rank + 1}"] * sends if rank < 3 else []
        return dump([pair(operation, number) for number, operation in enumerate([*left, *right], 1)], ALL)

    dumps = {0: stage(0, 3), 1: stage(1, 2), 2: stage(2, 2), 3: stage(3, 0)}
    status, finding = hang(tmp_path / "dumps", dumps)
    assert (status, finding.ranks) == ("fired", [1])
    assert (
        "Rank 1 has not sent what would end recv 2<-1 number 3 of group 0, which rank 2 had enqueued" in finding.summary
    )
    assert hang(tmp_path / "moved", {rank: stage(rank, 3) for rank in range(4)})[0] == "passed"


def test_ranks_that_receive_from_each_other_are_both_named(tmp_path: Path) -> None:
    both = {0: dump([pair("recv 0<-1", 1)], {"0": [0, 1]}), 1: dump([pair("recv 1<-0", 1)], {"0": [0, 1]})}
    assert hang(tmp_path / "dumps", both)[1].ranks == [0, 1]


def test_sends_that_were_overwritten_are_not_counted(tmp_path: Path) -> None:
    groups = {"0": [0, 1]}
    cut = {0: dump([pair("send 0->1", 900)], groups), 1: dump([pair("recv 1<-0", n) for n in (899, 900)], groups)}
    assert hang(tmp_path / "cut", cut)[0] == "passed"
    gone = {0: dump([entry("0", 1, "completed")], groups), 1: dump([pair("recv 1<-0", 1)], groups)}
    assert hang(tmp_path / "gone", gone)[0] == "passed", "its sends may have been left out of the dump"


def test_ranks_that_wait_in_different_collectives_are_told_apart(tmp_path: Path) -> None:
    """One of four skipped a collective and waits in the next one: all have enqueued as many."""
    dumps = {rank: dump([entry("0", 6, "completed"), entry("0", 7)], ALL) for rank in (0, 1, 3)}
    dumps[2] = dump([entry("0", 6, "completed"), entry("0", 7, operation="broadcast", line=51)], ALL)
    status, finding = hang(tmp_path / "order", dumps)
    assert (status, finding.ranks) == ("fired", [2])
    assert finding.title == "Rank 2 waits in broadcast, the others in all_reduce"
    assert (finding.location.line, finding.seen_at.line) == (51, 40)
    sizes = {rank: dump([entry("0", 7) | {"input_sizes": [[9 if rank == 2 else 8]]}], ALL) for rank in range(4)}
    finding = hang(tmp_path / "sizes", sizes)[1]
    assert finding.ranks == [2]
    assert "rank 2 enqueued all_reduce of [[9]]" in finding.summary
    uneven = {0: dump([entry("0", 7)], {"0": [0, 1]}), 1: dump([entry("0", 7, operation="barrier")], {"0": [0, 1]})}
    finding = hang(tmp_path / "two", uneven)[1]
    assert finding.ranks == [0, 1], "of two, nothing tells which one left the path"
    gathered = {
        rank: dump([entry("0", 7, operation="all_gather") | {"input_sizes": [[rank]]}], ALL) for rank in ALL["0"]
    }
    assert hang(tmp_path / "uneven", gathered)[0] == "passed", "each rank may bring its own size"


def test_sends_that_gloo_does_not_record_make_a_hang_only_possible(tmp_path: Path) -> None:
    """Its count of operations is none of collectives, and a rank that did not come may wait for what was not sent."""
    name = {"profiling_name": "gloo:all_reduce"}
    groups: dict[str, list[int]] = {"": []}
    dumps = {
        rank: dump([entry("0", 6) | name | {"retired": True}, entry("0", 7) | name], groups, {"0": 12})
        for rank in (0, 1)
    }
    dumps[2] = dump([entry("0", 6) | name | {"retired": True}], groups, {"0": 12})
    finding = hang(tmp_path / "pairs", dumps)[1]
    assert (finding.ranks, finding.confidence) == ([2], "possible")
    assert "records no sends and receives" in finding.summary
    for one, last in ((dumps[0], 7), (dumps[1], 7), (dumps[2], 6)):
        one["pg_status"]["0"]["last_enqueued_collective"] = last
    assert hang(tmp_path / "none", dumps)[1].confidence == "likely"
