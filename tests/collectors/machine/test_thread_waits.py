"""What the kernel says of a thread: whether it computes, sleeps, polls, or waits without an end."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tracelyze.collectors.system import thread_waits

pytestmark = pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="this kernel does not say it")


@contextmanager
def waiting(what: Callable[[], object]) -> Iterator[int]:
    """A thread that is within `what`, by its Python identifier."""
    thread = threading.Thread(target=what, daemon=True)
    thread.start()
    time.sleep(0.2)
    assert thread.ident is not None
    yield thread.ident


def test_an_endless_wait_is_told_from_one_that_gives_up() -> None:
    box: queue.Queue[int] = queue.Queue()
    with waiting(box.get) as endless:
        first, second = thread_waits.state(endless), thread_waits.state(endless)
        assert first["waits"] == "futex"
        assert (first["woken"], first["thread_cpu"]) == (second["woken"], second["thread_cpu"]), "it was not woken"
        box.put(1)
    with waiting(lambda: threading.Event().wait(2.0)) as timed:
        assert thread_waits.state(timed)["waits"] == "futex timed"


def test_a_sleep_is_a_sleep() -> None:
    with waiting(lambda: time.sleep(1.0)) as thread:
        assert thread_waits.state(thread)["waits"] == "sleep"


def test_what_is_read_has_a_kind_and_no_name() -> None:
    read, write = os.pipe()
    with waiting(lambda: os.read(read, 1)) as thread:
        assert thread_waits.state(thread)["waits"] == "read pipe"
        os.write(write, b"x")
    assert thread_waits._kind("/home/somebody/data.bin") == "file"
    assert thread_waits._kind("/dev/pts/3") == "terminal"


@pytest.mark.starts_programs
def test_a_wait_for_another_program() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with waiting(child.wait) as thread:
        state = thread_waits.state(thread)
        assert state["waits"] == "wait"
        assert state["below"] >= 1
        assert thread_waits._processor_time(str(child.pid)) is not None
        child.communicate(b"\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("running", "running"),
        ("202 0x55f1351baa10 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd329c6d80 0x7ff8a7ca3f16", "futex"),
        ("202 0x55f1351baa10 0x189 0x0 0x7ffd329c6d80 0x0 0xffffffff 0x7ffd329c6d80 0x7ff8a7ca3f16", "futex timed"),
        ("7 0x7ffd329c6d80 0x1 0xffffffff 0x0 0x0 0x0 0x0 0x0", "poll"),
        ("7 0x7ffd329c6d80 0x1 0x1388 0x0 0x0 0x0 0x0 0x0", "poll timed"),
        ("23 0x0 0x0 0x0 0x0 0x7ffd329c6d80 0x0 0x0 0x0", "sleep"),
        ("16 0x3 0x0 0x0 0x0 0x0 0x0 0x0 0x0", "call 16"),
    ],
)
def test_the_words_for_a_line_of_the_kernel(line: str, words: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(thread_waits, "CALLS", thread_waits.X86)
    assert thread_waits._waits(line.split()) == words


def test_an_unknown_thread_says_nothing() -> None:
    assert not {"waits", "woken", "thread_cpu"} & thread_waits.state(-1).keys()
