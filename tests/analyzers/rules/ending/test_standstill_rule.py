"""standstill: who can end a wait, and what stands on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.diagnosis import Exit

COUNT = 400  # steps of a process of the workshop, 0.05 s each
STOOD = 40  # seconds
GET = ("train.py:31 main", "queue.py:171 get", "threading.py:327 wait")
LOADER = (
    "train.py:31 main",
    "torch/utils/data/dataloader.py:1291 _try_get_data",
    "multiprocessing/connection.py:947 wait",
    "selectors.py:415 select",
)
RAISED = {"kind": "thread-exception", "name": "ValueError", "time": 19.0, "file": "train.py", "line": 12,
          "source": "raise ValueError('bad shard')", "text": "Traceback\nValueError: bad shard"}  # fmt: skip


def standing(
    make: Any,
    waits: str = "futex",
    stack: tuple[str, ...] = GET,
    *,
    source: str = "x = q.get()",
    others: tuple[str, ...] = (),
    end: str = "vanished",
    seconds: int = STOOD,
    events: tuple[dict[str, Any], ...] = (),
    steps: Any = None,
    **columns: Any,
) -> Any:
    """A process whose training thread stands in line 31 after its 400 steps; `others`: what is written of threads."""
    times = [20.0 + second for second in range(seconds + 1)]
    samples = {
        "time": [10.0, *times],
        "site": [1, *[9] * len(times)],
        "innermost": ["torch/optim/sgd.py:10 step", *[stack[-1]] * len(times)],
        "waits": [None, *[waits] * len(times)],
        "woken": [None, *[100] * len(times)],
        "thread_cpu": [None, *[4.0] * len(times)],
        "cpu_seconds": [3.0, *[4.0] * len(times)],
        "below": [None, *[0] * len(times)],
        "below_cpu": [None, *[0.0] * len(times)],
    }
    samples |= {name: [None, *(value(at) for at in range(len(times)))] for name, value in columns.items()}
    text = "\n".join(["training thread (MainThread), innermost last:", *(f"  {one}" for one in stack), *others])
    dump = {"kind": "stacks", "name": "no progress", "value": 30.0, "time": 20.0 + seconds - 5, "text": text}
    if stack[0].startswith("train.py"):
        dump |= {"file": "train.py", "line": int(stack[0].split(":")[1].split()[0])}
    site = {"site": 9, "role": "sampled", "file": "train.py", "line": 31, "function": "main", "source": source}
    return make.process(
        steps, samples=samples, events=[*events, dump], sites=[site], end=Exit(end, None, "process 1 is still running")
    )


def test_a_queue_without_a_producer_is_waited_for_for_ever(make) -> None:
    ended = ("thread Thread-1 (produce): ended",)
    status, _, finding = make.check("standstill", standing(make, others=ended))
    assert status == "fired"
    assert (finding.severity, finding.confidence) == ("critical", "certain")
    assert finding.title == "The training stands still in line 31: it waits for an item from a queue"
    assert "No step, forward or backward for 40 s after step 400" in finding.summary
    assert "Thread Thread-1 (produce) had ended by then." in finding.summary
    assert finding.location.line == 31
    assert finding.cost.seconds == pytest.approx(40.0)
    assert make.check("standstill", standing(make))[2].confidence == "likely", "who was to put it is not known"


def test_the_line_to_change_is_where_the_producer_failed(make) -> None:
    for end in ("running", "interrupted"):
        process = standing(make, others=("thread prefetch: ended",), events=(RAISED,), end=end)
        finding = make.check("standstill", process)[2]
        assert (finding.confidence, finding.location.line, finding.seen_at.line) == ("certain", 12, 31)
        assert "Thread prefetch had ended with an exception: ValueError: bad shard, in line 12." in finding.summary


def test_a_lock_that_the_thread_holds_itself(make) -> None:
    stack = ("train.py:31 log",)
    process = standing(make, stack=stack, source="with lock:")
    assert make.check("standstill", process)[2].confidence == "certain"
    saver = ("thread saver (futex):", "  threading.py:982 run", "  train.py:8 save")
    two = make.check("standstill", standing(make, stack=stack, source="with lock:", others=saver))[2]
    assert two.confidence == "likely"
    assert "Thread saver waits without an end as well." in two.summary
    assert make.check("standstill", standing(make, stack=stack, source="y = model(x)"))[0] == "passed"


@pytest.mark.parametrize(
    ("waits", "stack", "source", "what"),
    [
        ("wait", ("train.py:31 main", "subprocess.py:1264 wait"), "p.wait()", "another program or process to end"),
        ("recv socket", ("train.py:31 main", "socket.py:706 readinto"), "urlopen(url)", "an answer from the network"),
        ("recv socket", ("train.py:33 main",), "answer = s.recv(", "an answer from the network"),  # of several lines
        ("recv socket", ("train.py:31 main",), "s.recv(100)", "an answer from the network"),
        ("flock file", ("train.py:31 main",), "fcntl.flock(f, fcntl.LOCK_EX)", "a lock on a file"),
        ("read pipe", ("train.py:31 main",), 'input("overwrite? ")', "input, with no terminal attached"),
        ("read pipe", ("train.py:31 main",), "for line in p.stdout:", "output of another program"),
        ("read pipe", ("train.py:31 main", "multiprocessing/connection.py:395 _recv"), "q.get()", "data from another"),
        ("futex", ("train.py:31 main", "multiprocessing/pool.py:765 wait"), "pool.map(f, x)", "results of a pool"),
        ("futex", ("train.py:31 main", "multiprocessing/synchronize.py:95 __enter__"), "with lock:", "shares with"),
        ("poll timed", LOADER, "for x in loader:", "a batch of its DataLoader"),
    ],
)
def test_what_comes_from_outside_may_still_come(make, waits, stack, source, what) -> None:
    def judged(end: str, seconds: int = STOOD) -> Any:
        return make.check("standstill", standing(make, waits, stack, source=source, end=end, seconds=seconds))

    assert what in judged("vanished")[2].title
    assert judged("vanished")[2].confidence == "possible"
    assert judged("interrupted")[2].confidence == "likely", "somebody gave it up"
    assert judged("running")[0] == "passed", "a first answer may take that long"
    assert judged("running", 90)[2].confidence == "possible"
    assert judged("running", 400)[2].confidence == "likely"


@pytest.mark.parametrize(
    ("waits", "stack", "source", "why"),
    [
        ("sleep", ("train.py:31 main",), "time.sleep(600)", "sleeps"),
        ("running", ("train.py:31 main",), "while not done:", "computes"),
        ("futex timed", ("train.py:31 main", "threading.py:629 wait"), "while not stop.wait(10):", "time limit"),
        ("futex timed", GET, "x = q.get(timeout=60)", "time limit"),
        ("read terminal", ("train.py:31 main",), 'input("again? ")', "its user"),
        ("read pipe", ("train.py:31 main", "pdb.py:451 user_line"), "breakpoint()", "its user"),
        ("epoll", ("train.py:31 main", "asyncio/base_events.py:1884 _run_once"), "asyncio.run(main())", "to be asked"),
        ("poll timed", ("train.py:31 main", "socketserver.py:233 serve_forever"), "s.serve_forever()", "to be asked"),
        ("accept socket", ("train.py:31 main", "socket.py:294 accept"), "s.accept()", "to be asked"),
        ("recv socket", ("train.py:31 main", "redis/connection.py:512 read", "socket.py:706 readinto"), "r.blpop()",
         "to be asked"),
        ("futex", ("train.py:31 main", "torch/cuda/__init__.py:900 synchronize"), "torch.cuda.synchronize()", "known"),
        ("futex", ("train.py:31 main", "torch/distributed/distributed_c10d.py:2900 all_reduce"), "dist.all_reduce(x)",
         "known"),
    ],
)  # fmt: skip
def test_what_stands_on_purpose_is_left_alone(make, waits, stack, source, why) -> None:
    for seconds in (STOOD, 900):
        process = standing(make, waits, stack, source=source, seconds=seconds)
        status, reason, _ = make.check("standstill", process)
        assert status == "passed"
        assert why in reason


def test_a_producer_that_may_go_on_is_waited_for(make) -> None:
    for head, *frames in (
        ("thread watch (sleep):", "  train.py:9 watch"),
        ("thread heartbeat (futex timed):", "  train.py:9 beat", "  threading.py:331 wait"),
        ("thread decode (running):", "  train.py:9 decode"),
        ("thread web (poll timed):", "  socketserver.py:233 serve_forever", "  selectors.py:415 select"),
        ("thread unknown:", "  train.py:9 decode"),
    ):
        status, reason, _ = make.check("standstill", standing(make, others=("\n".join([head, *frames]),)))
        assert status == "passed"
        assert "may go on" in reason
    both = ("thread beat (sleep):\n  train.py:9 beat", "thread save-epoch-1: ended")
    assert make.check("standstill", standing(make, others=both))[0] == "passed", "what ended may have been done"
    failed = make.check("standstill", standing(make, others=both, events=(RAISED,)))[2]
    assert failed.confidence == "possible"
    bar = ("thread Thread-3 (futex timed):\n  tqdm/_monitor.py:60 run\n  threading.py:331 wait",)
    assert make.check("standstill", standing(make, others=bar))[2].confidence == "likely", "a bar puts nothing"
    fetching = ("thread fetch (recv socket):\n  train.py:9 fetch\n  socket.py:706 readinto",)
    finding = make.check("standstill", standing(make, others=fetching))[2]
    assert finding.confidence == "possible"
    assert "Thread fetch waits for another process or machine." in finding.summary


def test_a_loop_that_asks_an_empty_queue_again_and_again(make) -> None:
    process = standing(make, "futex timed", source="x = q.get(timeout=2)", events=(RAISED,))
    assert make.check("standstill", process)[2].confidence == "certain"


def test_who_computes_does_not_stand_still(make) -> None:
    for name in ("thread_cpu", "cpu_seconds", "below_cpu"):
        process = standing(make, **{name: lambda second: 4.0 + 0.05 * second})
        status, reason, _ = make.check("standstill", process)
        assert status == "passed"
        assert "computed" in reason
    assert make.check("standstill", standing(make, cpu_seconds=lambda second: 4.0 + 0.001 * second))[0] == "fired"


def test_far_longer_than_what_was_usual_before(make) -> None:
    wait = ("train.py:31 main", "subprocess.py:1264 wait")
    first = [0.01 * step for step in range(1, COUNT // 2 + 1)]
    short = make.steps() | {"time": [*first, *(12.0 + time for time in first)]}
    assert make.check("standstill", standing(make, "wait", wait, steps=short, seconds=40))[0] == "fired"
    long = make.steps() | {"time": [*first, *(17.0 + time for time in first)]}
    status, reason, _ = make.check("standstill", standing(make, "wait", wait, steps=long, seconds=40))
    assert status == "passed"
    assert "had passed before" in reason


def test_the_end_of_the_program_decides(make) -> None:
    for end in ("finished", "exception", "signal"):
        assert make.check("standstill", standing(make, end=end))[0] == "passed"
    assert make.check("standstill", standing(make, seconds=20))[0] == "passed", "too short"
    samples = {"time": [1.0, 2.0], "innermost": ["a.py:1 f"] * 2, "site": [1, 1]}
    status, reason, _ = make.check("standstill", make.process(samples=samples, end=Exit("vanished")))
    assert (status, "went on to the end" in reason) == ("passed", True)
    assert make.check("standstill", make.process(end=Exit("vanished")))[0] == "skipped"
    stopped = standing(make)
    stopped.notes.append("recording stopped at step 30: no space left on device")
    assert make.check("standstill", stopped)[0] == "skipped"


def test_behind_the_last_line_of_the_script(make) -> None:
    held = ("thread Thread-1 (produce) (futex):\n  train.py:6 produce\n  queue.py:140 put\n  threading.py:327 wait",)
    process = standing(make, stack=("threading.py:1590 _shutdown",), others=held, site=lambda second: None)
    finding = make.check("standstill", process)[2]
    assert finding.title == "The training stands still behind its last line: it waits for another thread to end"
    assert "Thread Thread-1 (produce) waits without an end as well." in finding.summary


def test_a_kill_follows_from_the_standstill(make) -> None:
    from tracelyze.analyzers import diagnose

    diagnosis = diagnose(make.run(standing(make)))
    assert {one.rule: one.caused_by for one in diagnosis.findings}["killed"] == "standstill"
