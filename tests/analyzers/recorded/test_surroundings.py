"""Logs of the kernel and of SLURM, and py-spy dumps, beside a run: what is taken for a cause, and what is not.

The lines are real ones, from public reports, NVIDIA's and SLURM's own sources; process ids, jobs and times are set.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tracelyze.analyzers import diagnose
from tracelyze.diagnosis import Diagnosis, Exit
from tracelyze.importing.job_logs import beside

ZERO = datetime(2024, 4, 20, 9, 0, 0, tzinfo=UTC).timestamp()  # of a run whose last row is 20 s later
BOOT = 7000.0  # when the run began, in seconds since boot
HOST = "cn106"
OOM = (
    "Memory cgroup out of memory: Killed process {pid} (python) total-vm:3149468kB, anon-rss:1649920kB, "
    "file-rss:52176kB, shmem-rss:92kB, UID:0 pgtables:1372kB oom_score_adj:986"
)
XID = "NVRM: Xid (PCI:0000:ca:00): 31, pid={pid}, name=python, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS"
FALLEN = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
GONE = Exit("vanished", None, "the process left no exit record")
INITIAL = "pid:[4026531836]"


def process(make: Any, end: Exit = GONE, events: list[dict[str, Any]] | None = None, **facts: Any) -> Any:
    known = {
        "pid": 4711,
        "pid_namespace": INITIAL,
        "host": HOST,
        "clock": {"zero": ZERO, "unix": ZERO, "monotonic": BOOT},
    }
    return make.process(end=end, events=events, facts={**known, **facts})


def joined(make: Any, tmp_path: Path, text: str, one: Any = None, job: str = "", name: str = "log.txt") -> Diagnosis:
    file = tmp_path / name
    file.write_text(text + "\n", encoding="utf-8")
    run = make.run(one or process(make))
    if job:
        object.__setattr__(run, "manifest", {**run.manifest, "job": f"SLURM_JOB_ID={job}.0"})
    return diagnose(run, select=["killed", "crash", "out-of-memory"], beside=beside.read([file]))


@pytest.mark.parametrize(
    "prefix",
    [
        f"[ {BOOT + 22:.6f}] ",
        "[Sat Apr 20 09:00:22 2024] ",
        "Apr 20 09:00:22 cn106 kernel: ",
        "Apr 20 09:00:22 cn106 kernel: [ 7022.123456] ",
        "2024-04-20T11:00:22+02:00 cn106 kernel: ",
        "2024-04-20T11:00:22,518050+02:00 ",
        "[Sat Apr 20 16:00:22 2024] ",  # a local time, of whatever zone: the process is the same
    ],
)
def test_a_kill_for_memory_is_the_cause_by_process_and_time(make, tmp_path: Path, prefix: str) -> None:
    found = joined(make, tmp_path, prefix + OOM.format(pid=4711))
    (finding,) = found.findings
    assert finding.title == "The program was killed after step 400: the kernel killed it for memory"
    assert "log.txt, line 1, 2 s after the last that is known of it: the kernel killed process 4711" in finding.summary
    assert "which held 1.57 GiB" in finding.summary
    assert finding.fix.startswith("Give the job more host memory")
    assert finding.evidence[0].name == "log.txt, line 1"
    assert any("line 1 fits the end of this run" in note for note in found.run.notes)


def test_the_clock_of_a_line_is_told(make, tmp_path: Path) -> None:
    def said(text: str) -> str:
        return joined(make, tmp_path, text).findings[0].summary

    assert "right to some seconds" in said(f"[ {BOOT + 22:.6f}] " + OOM.format(pid=4711))
    assert "its clock must be 7 h ahead of UTC" in said("[Sat Apr 20 16:00:22 2024] " + OOM.format(pid=4711))
    assert "It is the same process" in said("2024-04-20T11:00:22+02:00 cn106 kernel: " + OOM.format(pid=4711))


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (f"[ {BOOT + 22:.6f}] " + OOM.format(pid=4712), {}),  # another process
        (f"[ {BOOT + 4000:.6f}] " + OOM.format(pid=4711), {}),  # the same id, an hour later
        ("Apr 20 09:00:22 cn107 kernel: " + OOM.format(pid=4711), {}),  # another machine
        (f"[ {BOOT + 22:.6f}] " + OOM.format(pid=4711), {"clock": {"zero": ZERO}}),  # the boot is not known
        ("[Sat Apr 20 09:07:22 2024] " + OOM.format(pid=4711), {}),  # no zone is 7 minutes off
        ("[Sat Apr 20 16:00:22 2024] " + FALLEN, {}),  # neither process nor zone
        (f"[ {BOOT + 22:.6f}] " + FALLEN, {"clock": {}}),  # a run without times
    ],
)
def test_what_does_not_fit_is_no_cause(make, tmp_path: Path, line: str, facts: dict[str, Any]) -> None:
    found = joined(make, tmp_path, line, process(make, **facts))
    (finding,) = found.findings
    assert finding.title == "The program was killed after step 400 and left no message"
    assert "log.txt" not in finding.summary
    assert any("none fits the end of this run" in note for note in found.run.notes)


def test_in_a_container_only_the_time_is_compared(make, tmp_path: Path) -> None:
    line = f"[ {BOOT + 22:.6f}] " + OOM.format(pid=998877)
    (finding,) = joined(make, tmp_path, line, process(make, pid_namespace="pid:[4026532999]")).findings
    assert finding.title.endswith("left no message")
    assert "Only the time fits, so this is possible and not proven" in finding.summary


def test_an_xid_explains_a_crash_on_the_gpu(make, tmp_path: Path) -> None:
    def crash(text: str) -> Any:
        raised = [{"time": 20.5, "kind": "exception", "name": text.split(":", maxsplit=1)[0], "text": text}]
        return process(make, Exit("exception", 1, text), raised)

    cuda = crash("torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    (finding,) = joined(make, tmp_path, f"[ {BOOT + 20.1:.6f}] " + XID.format(pid=4711), cuda).findings
    assert "XID 31: page fault in GPU memory" in finding.summary
    assert "It is the same process" in finding.summary
    (finding,) = joined(make, tmp_path, f"[ {BOOT + 19:.6f}] " + FALLEN, cuda).findings
    assert "XID 79: the GPU has fallen off the bus" in finding.summary
    (finding,) = joined(make, tmp_path, f"[ {BOOT + 19:.6f}] " + FALLEN, crash("KeyError: 'image'")).findings
    assert "XID" not in finding.summary


def test_a_loading_worker_that_the_kernel_killed(make, tmp_path: Path) -> None:
    text = "RuntimeError: DataLoader worker (pid 4790) is killed by signal: Killed. "
    raised = [{"time": 20.5, "kind": "exception", "name": "RuntimeError", "text": text}]
    crashed = process(make, Exit("exception", 1, text), raised)
    (finding,) = joined(make, tmp_path, f"[ {BOOT + 20:.6f}] " + OOM.format(pid=4790), crashed).findings
    assert "the kernel killed process 4790" in finding.summary
    assert "It is the same process" in finding.summary


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("slurmstepd: error: *** JOB 41239 ON fnode01 CANCELLED AT 2024-04-20T11:00:20 DUE TO TIME LIMIT ***",
         "time limit of the job"),
        ("slurmstepd: error: *** STEP 41239.0 ON fnode01 CANCELLED AT 2024-04-20T09:00:21 DUE TO PREEMPTION ***",
         "preempted by another job"),
        (("slurmstepd: error: *** JOB 41239 ON fnode01 CANCELLED AT 2024-04-20T09:00:21 DUE TO NODE FAILURE, SEE "
         "SLURMCTLD LOG FOR DETAILS ***"), "a node failed"),
        ("slurmstepd: error: *** JOB 41239 ON fnode01 CANCELLED AT 2024-04-20T09:00:21 ***", "cancelled by SLURM"),
        ("[2024-04-20T09:00:21.500] [41239.0] error: *** STEP 41239.0 ON cn106 CANCELLED AT 2024-04-20T09:00:21 ***",
         "cancelled by SLURM"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=41239.0. Some of the step tasks have been OOM Killed.",
         "memory limit of the job"),
        (("slurmstepd: error: Detected 1 oom-kill event(s) in step 41239.0 cgroup. Some of your processes may have "
         "been killed by the cgroup out-of-memory handler."), "memory limit of the job"),
        (("srun: error: cn106: task 4: Out Of Memory\nslurmstepd: error: Detected 1 oom_kill event in StepId=41239.0. "
         "Some of the step tasks have been OOM Killed."), "memory limit of the job"),
    ],
)  # fmt: skip
def test_slurm_ended_the_job(make, tmp_path: Path, line: str, short: str) -> None:
    (finding,) = joined(make, tmp_path, f"step 400 loss 0.31\n{line}", job="41239").findings
    timed = "CANCELLED AT" in line
    assert finding.title == f"The program was killed after step 400: {'' if timed else 'most likely '}{short}"
    assert ("the line has no time" in finding.summary) == (not timed)
    assert "It is the same job" in finding.summary
    (other,) = joined(make, tmp_path, line, job="41240").findings
    assert other.title.endswith("left no message"), "another job"


def test_a_line_with_a_time_comes_before_one_without(make, tmp_path: Path) -> None:
    text = (
        "slurmstepd: error: *** JOB 41239 ON cn106 CANCELLED AT 2024-04-20T09:00:21 DUE TO TIME LIMIT ***\n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=41239.0. Some of the step tasks have been OOM Killed."
    )
    (finding,) = joined(make, tmp_path, text, job="41239").findings
    assert finding.title.endswith(": time limit of the job")
    assert [one.name for one in finding.evidence[:2]] == ["log.txt, line 1", "log.txt, line 2"]


def test_what_srun_says_of_a_task_is_no_cause(make, tmp_path: Path) -> None:
    text = "srun: error: cn106: task 0: Killed"
    (finding,) = joined(make, tmp_path, text, job="41239", name="slurm-41239.out").findings
    assert finding.title.endswith("left no message")
    assert "srun reports of task 0 on cn106: Killed" in finding.summary


def test_without_a_job_number_slurm_may_be_the_cause(make, tmp_path: Path) -> None:
    line = "slurmstepd: error: *** JOB 41239 ON fnode01 CANCELLED AT 2024-04-20T{} DUE TO TIME LIMIT ***"
    (finding,) = joined(make, tmp_path, line.format("09:00:21")).findings
    assert finding.title.endswith("left no message")
    assert "possible and not proven; its time is taken as UTC" in finding.summary
    (finding,) = joined(make, tmp_path, line.format("10:30:00")).findings
    assert "SLURM" not in finding.summary


def test_a_step_that_slurm_ends_after_a_crash_is_no_cause(make, tmp_path: Path) -> None:
    raised = [{"time": 20.5, "kind": "exception", "name": "KeyError", "text": "KeyError: 'image'"}]
    crashed = process(make, Exit("exception", 1, "KeyError: 'image'"), raised)
    text = (
        "srun: error: cn106: task 0: Exited with exit code 1\n"
        "slurmstepd: error: *** STEP 41239.0 ON cn106 CANCELLED AT 2024-04-20T09:00:22 ***"
    )
    (finding,) = joined(make, tmp_path, text, crashed, job="41239").findings
    assert "SLURM" not in finding.summary


def test_a_run_that_ended_well_needs_no_cause(make, tmp_path: Path) -> None:
    well = process(make, Exit("finished", 0))
    found = joined(make, tmp_path, f"[ {BOOT + 22:.6f}] " + OOM.format(pid=4711), well)
    assert not found.findings
    assert any("nothing in this run asks for a cause" in note for note in found.run.notes)
