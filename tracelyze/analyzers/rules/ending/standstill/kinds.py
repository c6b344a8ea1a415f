"""What a thread waits for, by the functions below its line, by that line, and by the system call it is in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Reach = Literal["threads", "outside"]
"""Who can end the wait: another thread of the program alone, or something outside of the process."""


@dataclass(frozen=True)
class Kind:
    """`what`: what the thread waits for, to follow "it waits for". `polls`: a wait with a time limit that its own
    function begins again. `lock`: of a thing that the thread itself may hold."""

    name: str
    what: str
    reach: Reach
    fix: str
    code: str = ""
    polls: bool = False
    lock: bool = False


_SENTINEL: Final = """def produce():
    try:
        ...  # as before
    except Exception as error:
        q.put(error)  # the loop raises what it gets
    finally:
        q.put(None)  # the end of the data

item = q.get(timeout=600)  # queue.Empty instead of a wait without an end"""
_FIX_QUEUE: Final = (
    "Let the producer say that it ends: a sentinel in a finally, its exception if there was one. Give get() a timeout, "
    "so that a producer that is gone is an error. Make the producer's own error go away first."
)

LOADER: Final = Kind(
    "loader", "a batch of its DataLoader", "outside",
    "Find the line of the dataset that hangs: run it with num_workers=0, or look into the worker (py-spy dump). "
    "Give what it waits for a time limit, and the DataLoader a timeout, so that a worker that hangs is an error. "
    "Make locks, sockets and database connections in worker_init_fn, not before the workers are forked.",
    "loader = DataLoader(dataset, num_workers=2, timeout=300)  # seconds for one batch; 0 waits for ever",
    polls=True,
)  # fmt: skip
POOL: Final = Kind(
    "pool", "results of a pool of processes", "outside",
    "Ask for results with a time limit: a worker of multiprocessing.Pool that dies takes its task along "
    "without a word. concurrent.futures.ProcessPoolExecutor raises BrokenProcessPool instead.",
    "results = pool.map_async(work, items).get(timeout=600)",
)  # fmt: skip
FUTURE: Final = Kind(
    "future", "the result of an executor's task", "threads",
    "Do not let a task wait for another one of the same executor: with all its threads waiting nobody is left to work. "
    "Give result() a timeout.",
    "value = future.result(timeout=600)",
)  # fmt: skip
PROCESS_QUEUE: Final = Kind(
    "process-queue", "data from another process", "outside",
    "Let the other process say that it ends (a sentinel in a finally), and give get() a timeout. Check that it lives: "
    "one that is killed leaves no message.",
    "item = q.get(timeout=600)  # queue.Empty instead of a wait without an end",
)  # fmt: skip
PROGRAM: Final = Kind(
    "program", "another program or process to end", "outside",
    "Give the call a timeout, and close the input of the program if it reads any: one that waits for input, or for "
    "somebody to read its output (a pipe that is full), never ends.",
    "subprocess.run(command, timeout=600, stdin=subprocess.DEVNULL, check=True)",
)  # fmt: skip
SHARED: Final = Kind(
    "shared", "what it shares with other processes", "outside",
    "A process that is killed while it holds a lock never releases it. Wait with a time limit, and check that the "
    "other processes live.",
    "if not lock.acquire(timeout=600):\n    raise TimeoutError(\"the lock was not released\")",
)  # fmt: skip
OUTPUT: Final = Kind(
    "output", "output of another program", "outside",
    "Read with a time limit, and make sure that the writing end is closed when the writer has ended.",
)  # fmt: skip
NETWORK: Final = Kind(
    "network", "an answer from the network", "outside",
    "Give the connection a time limit: by default sockets, urllib and requests wait for ever for a server that has "
    "gone silent. Do not let a training depend on it: catch the error and go on.",
    "requests.post(url, json=values, timeout=10)  # or socket.setdefaulttimeout(10)",
)  # fmt: skip
FILE_LOCK: Final = Kind(
    "file-lock", "a lock on a file", "outside",
    "Find out which process holds the file (lslocks, fuser) and end it, or ask for the lock without waiting.",
    "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError if another process holds it",
)  # fmt: skip
KEYBOARD: Final = Kind(
    "keyboard", "input, with no terminal attached", "outside",
    "Take the answer from an option of the command line: in a batch job nobody types.",
)  # fmt: skip
QUEUE: Final = Kind("queue", "an item from a queue", "threads", _FIX_QUEUE, _SENTINEL)
FULL: Final = Kind(
    "full-queue", "room in a queue that is full", "threads",
    "Whoever takes items from the queue has stopped: find out why, and give put() a timeout.",
    "q.put(item, timeout=600)  # queue.Full instead of a wait without an end",
)  # fmt: skip
JOIN: Final = Kind(
    "join", "another thread to end", "threads",
    "Tell the thread to end before you wait for it: set an event that it checks, or take items until its put() "
    "returns. A thread made with daemon=True does not hold up the end of the program.",
    "stop.set()\nthread.join(timeout=60)",
)  # fmt: skip
EVENT: Final = Kind(
    "event", "a signal from another thread", "threads",
    "Let the other thread set it in a finally, so that an error there is no wait without an end here, and give wait() "
    "a timeout.",
    "if not ready.wait(timeout=600):\n    raise TimeoutError(\"the other thread did not answer\")",
)  # fmt: skip
LOCK: Final = Kind(
    "lock", "a lock that is not released", "threads",
    "A lock that the same thread already holds blocks it for ever: take it in one place, or make it a threading.RLock. "
    "Where there are two locks, take them in the same order everywhere. Release them by `with`, also after an error.",
    "lock = threading.RLock()  # may be taken again by the thread that holds it",
    lock=True,
)  # fmt: skip

_BELOW: Final = (
    (re.compile(r"(^|/)torch/utils/data/"), LOADER),
    (re.compile(r"^multiprocessing/pool\.py"), POOL),
    (re.compile(r"^concurrent/futures/"), FUTURE),
    (re.compile(r"^(subprocess|multiprocessing/(popen_\w+|process))\.py"), PROGRAM),
    (re.compile(r"^multiprocessing/synchronize\.py"), SHARED),
    (re.compile(r"^multiprocessing/(queues|connection|managers)\.py|^torch/multiprocessing/"), PROCESS_QUEUE),
    (re.compile(r"^(ssl|socket|http/client|urllib/\w+|(urllib3|requests|httpx|httpcore)/.+)\.py"), NETWORK),
    (re.compile(r"^queue\.py:\d+ put$"), FULL),
    (re.compile(r"^queue\.py:\d+ (get|join)$"), QUEUE),
    (re.compile(r"^threading\.py:\d+ (join|_join|_wait_for_tstate_lock|_shutdown)$"), JOIN),
    (re.compile(r"^threading\.py:\d+ wait$"), EVENT),
    (re.compile(r"^threading\.py:\d+ (acquire|__enter__)$"), LOCK),
)  # fmt: skip
_USER: Final = re.compile(
    r"(^|/)(pdb|bdb|code|cmd|codeop)\.py|(^|/)(ipdb|debugpy|pudb|IPython|ipykernel|prompt_toolkit|ptpython|bpython)/"
)
_ASKED: Final = re.compile(
    r"(^|/)(socketserver|http/server|asyncio|wsgiref|xmlrpc/server)\b"
    r"|^(redis|celery|rq|kombu|pika|kafka|zmq|paho|grpc|ray|tornado|uvicorn|gunicorn|werkzeug|flask|gradio|streamlit)/"
)
_ANSWERS: Final = "accept", "epoll", "select", "poll", "pause"
_LOCKS: Final = re.compile(r"^(async )?with [\w.\[\]\"']+( as \w+)?\s*:|\.acquire\(")
_INPUT: Final = re.compile(r"\binput\(|\bsys\.stdin\b")


def of(frames: list[str], line: str, source: str, waits: str) -> tuple[Kind | None, str]:
    """The kind of a wait; else None and, in words, why the program may stand there on purpose.

    `frames`: the stack, innermost last. `line`: the program's own innermost line, as "file:line"; empty where it has
    none. `source`: its statement. `waits`: the system call.
    """
    own = _below(frames, line)
    call, _, rest = waits.partition(" ")
    if any(map(_USER.search, own)):
        return None, "it waits for its user, in a debugger or a prompt"
    if call in ("running", "sleep"):
        return None, "it computes" if call == "running" else "it sleeps for a set time"
    if any(map(_ASKED.search, own)):
        return None, "it waits to be asked, as a server or a worker does"
    kind = next((kind for pattern, kind in _BELOW if any(map(pattern.search, own))), None)
    if kind is None and _INPUT.search(source):
        return (KEYBOARD, "") if rest in ("pipe", "file", "socket") else (None, "it waits for its user")
    if kind is None and not own:
        kind = _in_own_line(source, call, rest)
    if call in _ANSWERS and kind in (None, NETWORK):
        return None, "it waits to be asked, as a server or a worker does"
    return kind, "" if kind else "what it waits for is not known"


def _below(frames: list[str], line: str) -> list[str]:
    """The frames of libraries that the innermost line of the program has called, innermost last."""
    own = [index for index, frame in enumerate(frames) if line and frame.startswith(f"{line} ")]
    return frames[own[-1] + 1 :] if own else frames


def _in_own_line(source: str, call: str, rest: str) -> Kind | None:
    """The kind of a wait in a function that has no frame of Python's, called in this line."""
    if call == "futex":
        return LOCK if _LOCKS.search(source) else None
    if call in ("flock", "lockf"):
        return FILE_LOCK
    if call == "wait":
        return PROGRAM
    if call in ("recv", "connect", "send") or (call == "read" and rest == "socket"):
        return NETWORK
    return OUTPUT if (call, rest) == ("read", "pipe") else None
