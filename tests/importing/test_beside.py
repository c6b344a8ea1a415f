"""Files given beside a run or alone: what each is taken for, what is read and refused; stacks of hung ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tracelyze
from tracelyze import cli
from tracelyze.errors import InputError
from tracelyze.fleet import discovery
from tracelyze.importing.job_logs import beside, xids

KERNEL = """\
[ 7063.243710] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=986
[ 7063.247300] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,task=python,pid=63214,uid=0
[ 7063.247407] Memory cgroup out of memory: Killed process 63214 (python) total-vm:3149468kB, anon-rss:164992kB, \
file-rss:52176kB, shmem-rss:92kB, UID:0 pgtables:1372kB oom_score_adj:986
[ 7063.263325] oom_reaper: reaped process 63214 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:92kB
[680111.646286] NVRM: Xid (PCI:0000:10:1c): 63, pid=1850, Row Remapper: New row marked for remapping, reset gpu
[680112.646286] NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[680113.000001] python[1850]: segfault at 0 ip 00007f3b1c0 sp 00007ffd1 error 4 in libtorch_cpu.so[7f3b1a000000+1]
"""

# What py-spy 0.4.3 printed of a program that waits for a lock.
TEXT = """\
Process 2665: /usr/bin/python3 /home/me/train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 2665 (idle): "MainThread"
    acquire (threading.py:302)
    load_batch (train.py:5)
        Arguments:
            lock: <_thread.lock at 0x7f21d31f8ac0>
    train (train.py:10)
    <module> (train.py:13)
Thread 2707 (active+gil): "pin"
    Thread.run (threading.py:982)
    Thread._bootstrap_inner (threading.py:1045)
    Thread._bootstrap (threading.py:1002)
"""


def frame(name: str, file: str, line: int) -> dict[str, Any]:
    whole = f"/usr/lib/python3.11/{file}"
    return {
        "name": name,
        "filename": whole,
        "module": None,
        "short_filename": file,
        "line": line,
        "locals": None,
        "is_entry": False,
        "is_shim_entry": False,
    }


def thread(name: str, frames: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"pid": 2665, "thread_id": 139783251973824, "thread_name": name, "os_thread_id": 2707, "active": False,
            "owns_gil": False, "frames": frames, "process_info": None, **more}  # fmt: skip


JSON = json.dumps(
    [
        thread("pin", [frame("Thread.run", "threading.py", 982)], active=True, owns_gil=True),
        thread("MainThread", [frame("acquire", "threading.py", 302), frame("load_batch", "train.py", 5)]),
    ],
    indent=2,
)


def notes(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    diagnosis = tracelyze.diagnose(path)
    assert not diagnosis.findings
    assert diagnosis.verdict == "unknown"
    return "\n".join(diagnosis.run.notes)


def test_a_log_of_the_kernel_alone(tmp_path: Path) -> None:
    said = notes(tmp_path / "dmesg.txt", KERNEL)
    assert "read as a log of the kernel" in said
    assert "dmesg.txt, line 3: the kernel killed process 63214 (python), which held 161 MiB" in said
    assert "line 5: the driver of the GPU 0000:10:1c reported XID 63: a row of GPU memory was marked" in said
    assert "line 6: the driver of the GPU 0000:05:00 reported XID 79: the GPU has fallen off the bus" in said
    assert "line 7: the kernel noted a segmentation fault of process 1850 in libtorch_cpu.so" in said
    assert "give it beside a run: tracelyze diagnose RUN --beside dmesg.txt" in said


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_dump_of_py_spy_alone(tmp_path: Path, form: str) -> None:
    said = notes(tmp_path / "dump.out", TEXT if form == "text" else JSON)
    assert "read as a dump of py-spy" in said
    assert "process 2665: " in said
    assert "MainThread (idle) stood in load_batch (train.py:5)" in said
    assert "pin (active+gil) stood in Thread.run (threading.py:982)" in said


def test_slurm_ends_a_job_whose_output_is_all_there_is(tmp_path: Path) -> None:
    log = tmp_path / "slurm-41239.out"
    steps = "".join(f"step {number} loss {3 / number:.3f}\n" for number in range(1, 30))
    end = "slurmstepd: error: *** JOB 41239 ON fnode01 CANCELLED AT 2016-11-30T11:22:57 DUE TO TIME LIMIT ***\n"
    log.write_text(f"\rloading  10%\rloading 100%\n{steps}{end}", encoding="utf-8")
    diagnosis = tracelyze.diagnose(log, select=["killed"])
    (finding,) = diagnosis.findings
    assert finding.title == "Ended by a signal: time limit of the job"
    assert "slurm-41239.out, line 31: SLURM ended the job at its time limit" in finding.summary
    assert finding.fix.startswith("Ask for more time (sbatch --time)")


ALL = "[0, 1, 2]"


def dumps(folder: Path) -> None:
    """Ranks 0 and 1 wait in an all_reduce that rank 2 did not join."""
    folder.mkdir()
    for rank in range(3):
        last = 6 if rank == 2 else 7
        entries = [
            {"pg_id": 0, "process_group": ["0", "all"], "collective_seq_id": number, "p2p_seq_id": 0, "is_p2p": False,
             "profiling_name": "nccl:all_reduce", "input_sizes": [[8]], "output_sizes": [[8]], "frames": [],
             "state": "completed" if number < 7 else "scheduled", "time_created_ns": number}
            for number in range(5, last + 1)
        ]  # fmt: skip
        told = {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "all", "ranks": ALL}}, "entries": entries}
        (folder / f"nccl_trace_rank_{rank}").write_text(json.dumps(told), encoding="utf-8")


@pytest.mark.parametrize("lying", [True, False])
def test_stacks_of_ranks_beside_the_dumps_of_a_hang(tmp_path: Path, lying: bool) -> None:
    dumps(tmp_path / "dumps")
    stacks = tmp_path / "dumps" / "beside" if lying else tmp_path / "stacks"
    stacks.mkdir()
    (stacks / "rank2.txt").write_text(TEXT, encoding="utf-8")
    (stacks / "rank_0.json").write_text(JSON, encoding="utf-8")
    diagnosis = tracelyze.diagnose(tmp_path / "dumps", select=["rank-hang"], beside=() if lying else [stacks])
    (finding,) = diagnosis.findings
    assert finding.ranks == [2]
    assert "By rank2.txt, rank 2 stood in load_batch (train.py:5)." in finding.summary
    assert (finding.location.file, finding.location.line) == ("train.py", 5)
    shown = {one.name: one.value for one in finding.evidence}
    assert shown["stack of rank 2, by py-spy (rank2.txt)"].endswith("train.py:5 load_batch\nthreading.py:302 acquire")
    assert "stack of rank 0, by py-spy (rank_0.json)" in shown


def test_lines_are_numbered_as_an_editor_does(tmp_path: Path) -> None:
    file = tmp_path / "slurm-7.out"
    file.write_bytes(b"a\r50%\r100%\r\nsrun: error: Node failure on cn106\n")
    (found,) = beside.read([file])
    assert [(event.line, event.kind) for event in found.events] == [(2, "node-failure")]
    assert found.job == "7"


def test_a_text_in_which_nobody_speaks_is_told(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("srun python train.py\nKilled\n", encoding="utf-8")
    (found,) = beside.read([file])
    assert "neither the kernel nor SLURM speaks" in beside.said(found)[0]


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("core.4711", b"\x7fELF\x02\x01\x01\x00", "T508"),
        ("absent.txt", None, "T201"),
        ("cut.json", JSON[:-20].encode(), "T503"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path: Path, name: str, data: bytes | None, code: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as refused:
        beside.read([tmp_path / name])
    assert refused.value.code == code
    assert "\n" not in str(refused.value)


def test_hostile_lines_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "dmesg.txt"
    lines = [
        "[Sat Feb 31 09:00:22 2024] Killed process 1 (x) total-vm:1kB, anon-rss:1kB",
        "Feb 30 09:00:22 h kernel: Killed process 1 (x) total-vm:1kB, anon-rss:1kB",
        "9999-99-99T99:99:99Z h kernel: NVRM: Xid (PCI:0): 1",
        f"[{'9' * 400}.0] NVRM: Xid (PCI:0000:01:00): 79",
        f"[ 1.000000] NVRM: Xid (PCI:0000:01:00): {'9' * 400}",
        "[ 1.000000] NVRM: Xid (PCI:0000:01:00): 99999, pid=1, what",
        "[ 2.000000] Killed process 5 ((((x) total-vm:1kB, anon-rss:999999999999999kB",
        "[ 3.000000] " + "Killed process " * 5_000,
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    (found,) = beside.read([file])
    assert {event.line for event in found.events} <= {5, 6, 7}


def test_every_xid_is_told_in_words() -> None:
    for number, (happened, advice) in xids.XIDS.items():
        assert not happened.endswith("."), number
        assert advice.endswith("."), number
    assert "catalogue" in xids.meaning(1)[1]


def test_the_command_line_takes_files_beside_a_run(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    dumps(tmp_path / "dumps")
    (tmp_path / "rank2.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "dmesg.txt").write_text(KERNEL, encoding="utf-8")
    given = [word for name in ("rank2.txt", "dmesg.txt") for word in ("--beside", str(tmp_path / name))]
    monkeypatch.setattr("sys.argv", ["tracelyze", "diagnose", str(tmp_path / "dumps"), "--no-html", *given])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    said = " ".join(capsys.readouterr().out.split())
    assert "rank 2 stood in load_batch (train.py:5)" in said
    assert "beside the run: dmesg.txt, a log of the kernel with 4 lines" in said


def test_a_fleet_of_recordings_leaves_out_what_surrounds_them(tmp_path: Path) -> None:
    (tmp_path / "dmesg.txt").write_text(KERNEL, encoding="utf-8")
    (tmp_path / "a.log").write_text("step 1 loss 2.0\nstep 2 loss 1.5\n", encoding="utf-8")
    assert discovery.runs_below([str(tmp_path)]) == [str(tmp_path / "a.log")]
