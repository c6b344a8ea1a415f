"""Notes of a process that makes batches of a dataset: whether its generators of random numbers were used, in which
states they began a pass, and how much memory only this process has.

A loader's worker writes its notes into a page of memory that it shares with the training process since it was forked. A
worker of multiprocessing's fork server, the default from Python 3.14 on, is no child of the training process: it opens
the page by a path. Where there are no workers, the training process notes the same of itself.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import random
import sys
import types
import weakref
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.program.loading import lone_rows, timed_lines
from tracelyze.collectors.tensors.safe_computing import may_compute, unseen

KINDS: Final = ("python", "numpy", "torch", "own")
FETCHES_READ: Final = 4  # fetches of a pass around which the generators are read
MEMORIES: Final = 24  # readings of memory, after 1, 2, 4, ... fetches of a worker
# Indices of words in a worker's part of the page. FIRST and SECOND begin a word for each of KINDS.
PASSES, FETCHES, MOVED = 0, 1, 2
FIRST: Final = MOVED + 1
SECOND: Final = FIRST + len(KINDS)
COUNT: Final = SECOND + len(KINDS)
MEMORY: Final = COUNT + 1
WORDS: Final = MEMORY + MEMORIES
MOST_OBJECTS, DEEPEST = 200, 3  # of a dataset that are searched for generators
MOST_GENERATORS = 8
SPACE: Final = timed_lines.SPACE + lone_rows.SPACE  # bytes of a worker's part for what it says in words
Words = Any  # a memoryview or an array of 64-bit words

enrolled: ByIdentity[Notes] = ByIdentity()
"""The notes of the training process itself, by the fetcher that makes its batches."""


timed: ByIdentity[timed_lines.TimedLines] = ByIdentity()
"""What is to time a batch of a fetcher, until it has."""


class Page:
    """Shared by a training process and the workers of one loader that it is about to start."""

    def __init__(self, workers: int, memory: mmap.mmap | None = None, path: str = "") -> None:
        whole = memoryview(mmap.mmap(-1, _size(workers)) if memory is None else memory)
        self._words = whole[: max(1, workers) * WORDS * 8].cast("Q")
        self._said = whole[max(1, workers) * WORDS * 8 :]
        self.workers, self.path = workers, path

    def of(self, worker: int) -> Words:
        """The part of a worker."""
        return self._words[worker * WORDS : (worker + 1) * WORDS]

    def said(self, worker: int) -> Any:
        """The part in which a worker writes the line that it was seen in."""
        return self._said[worker * SPACE : (worker + 1) * SPACE]

    def told(self) -> list[timed_lines.Timed]:
        """Where its workers were."""
        told = [timed_lines.of_bytes(bytes(self.said(worker)[: timed_lines.SPACE])) for worker in range(self.workers)]
        return [one for one in told if one is not None]

    def lone_rows(self) -> list[lone_rows.Found]:
        """What they saw of fields with one row for all samples."""
        return [lone_rows.of_bytes(bytes(self.said(one)[timed_lines.SPACE :])) for one in range(self.workers)]


def page_with_a_path(workers: int) -> Page:
    """A page that other processes of this user find, as long as it exists. Raises OSError where the system has none."""
    file = os.memfd_create("tracelyze")
    os.ftruncate(file, _size(workers))
    page = Page(workers, mmap.mmap(file, _size(workers)), f"/proc/{os.getpid()}/fd/{file}")
    weakref.finalize(page, os.close, file)
    return page


def _size(workers: int) -> int:
    return max(1, workers) * (WORDS * 8 + SPACE)


class Forking:
    """State of this process: the page of the workers that it is starting; in a worker, its notes."""

    page: Page | None = None
    notes: Notes | None = None
    fetcher: Any = None  # the one whose pass the notes are of
    spent = 0.0  # seconds that notes took in the training process itself


class Notes:
    """The notes of one process on one pass over a dataset."""

    def __init__(self, torch: Any, dataset: Any, words: Words, memory: bool) -> None:
        self._torch, self._dataset, self.words, self._memory = torch, dataset, words, memory
        self._before: list[int] = []
        self._own: list[Any] = []
        self.only_counts = False  # The first batches of the pass have been made, and memory is not read.
        words[PASSES] += 1
        words[FETCHES] = words[MOVED] = 0

    def begins(self) -> None:
        """A batch is about to be made."""
        number = self.words[FETCHES]
        if number < FETCHES_READ:
            self._own = self._generators()
            self._before = self._states()
            if number < 2:
                start = FIRST if number == 0 else SECOND
                for index, state in enumerate(self._before):
                    self.words[start + index] = state

    def ends(self) -> None:
        """A batch has been made."""
        words = self.words
        number = words[FETCHES]
        if number < FETCHES_READ and self._before:
            own, self._own = self._own, self._generators()
            after = self._states()
            moved = [a != b for a, b in zip(self._before, after, strict=True)]
            if [id(one) for one in own] != [id(one) for one in self._own]:
                # The dataset makes its generator on first use.
                words[FIRST + 3], moved[3] = after[3], False
            for index, one in enumerate(moved):
                words[MOVED] |= one << index
            self._before, self._own = [], []
        words[FETCHES] = number + 1
        self.only_counts = number + 1 >= FETCHES_READ and not self._memory
        made = words[COUNT] + 1
        if self._memory and made & (made - 1) == 0 and made.bit_length() <= MEMORIES:
            words[MEMORY + made.bit_length() - 1] = private_bytes()
        words[COUNT] = made

    def _generators(self) -> list[Any]:
        """The generators that the dataset holds, without the global ones, which it may hold under names of its own."""
        numpy = sys.modules.get("numpy.random")
        shared = (self._torch.default_generator, getattr(getattr(numpy, "mtrand", None), "_rand", None))
        return [one for one in generators(self._dataset) if not any(one is other for other in shared)]

    def _states(self) -> list[int]:
        numpy = sys.modules.get("numpy.random")
        found = [python_state()]
        found.append(0 if numpy is None else numpy_state(numpy))
        torch = self._torch
        with unseen(torch):
            known = may_compute(torch)
            found.append(_torch_state(torch, torch.default_generator) if known else 0)
            own = [_state(torch, one) for one in self._own if known or not isinstance(one, torch.Generator)]
        found.append(_digest(array("Q", own).tobytes()) if own else 0)
        return found


def joined(path: str, workers: int, worker_init_fn: Any) -> Any:
    """In a worker of the fork server: open the page of the training process. Returns the last argument as it is."""
    with contextlib.suppress(OSError, ValueError), open(path, "r+b", buffering=0) as file:
        Forking.page = Page(workers, mmap.mmap(file.fileno(), _size(workers)))
    return worker_init_fn


_JOIN: Final = (
    f"getattr(__import__('sys').modules.get({__name__!r}), 'joined', lambda *given: given[-1])(path, workers, function)"
)
"""What a worker evaluates as it is given its arguments; without hooks in it, nothing but the script's own function."""


class Joining:
    """Stands for a loader's worker_init_fn while the fork server starts its workers: pickled, it becomes that function
    in the worker, which opens the page as it unpickles it."""

    def __init__(self, page: Page, worker_init_fn: Any) -> None:
        self._page, self._function = page, worker_init_fn

    def __reduce__(self) -> tuple[Any, ...]:
        page = self._page
        return eval, (_JOIN, {"path": page.path, "workers": page.workers, "function": self._function})


def tell(seen: timed_lines.TimedLines) -> None:
    """In a worker: leave where its batch was made, and whose rows were in it, to the training process."""
    info, found = sys.modules["torch"].utils.data.get_worker_info(), seen.found()
    if info is None or Forking.page is None or info.id >= Forking.page.workers:
        return
    lone = seen.lone_rows.to_bytes() if seen.lone_rows is not None and seen.lone_rows.found else b""
    for begin, content in ((0, timed_lines.to_bytes(found) if found else b""), (timed_lines.SPACE, lone)):
        Forking.page.said(info.id)[begin : begin + len(content)] = content


def starts(words: Words) -> tuple[str, str, str | None]:
    """Generators that moved while batches were made, their states at the first of them, and at the second."""
    moved = [index for index in range(len(KINDS)) if words[MOVED] >> index & 1]
    first, second = ([words[place + index] for index in moved] for place in (FIRST, SECOND))
    return " ".join(KINDS[index] for index in moved), _text(first), _text(second) if words[FETCHES] > 1 else None


def memory(words: Words) -> str | None:
    """Bytes of a worker's own after 1, 2, 4, ... batches, as a JSON list."""
    count = int(words[COUNT]).bit_length()
    return json.dumps([int(value) for value in words[MEMORY : MEMORY + min(count, MEMORIES)]]) if count else None


def in_worker(torch: Any, fetcher: Any) -> Notes | None:
    """The notes of the worker that this process is; None in other processes, and for a dataset within its dataset."""
    page, info = Forking.page, torch.utils.data.get_worker_info()
    if page is None or info is None or fetcher.dataset is not info.dataset or info.id >= page.workers:
        return None
    if Forking.fetcher is not fetcher:
        Forking.fetcher = fetcher
        Forking.notes = Notes(torch, fetcher.dataset, page.of(info.id), memory=True)
        timed[fetcher] = timed_lines.TimedLines(fetcher.collate_fn)
    return Forking.notes


def generators(dataset: Any) -> list[Any]:
    """Generators of random numbers that a dataset holds, or finds in its module, or what it holds in theirs.

    They may be attributes of a class, too: worker_init_fn has no other way to give a worker one of its own.
    """
    method = getattr(type(dataset), "__getitem__", None)
    holders = [dataset, *_held(dataset)]
    kinds = dict.fromkeys(kind for one in holders for kind in type(one).__mro__ if not _of_library(kind))
    modules = [sys.modules.get(name) for name in dict.fromkeys(kind.__module__ for kind in kinds)]
    spaces = [getattr(one, "__globals__", None) for one in (method, *holders) if isinstance(one, types.FunctionType)]
    spaces += [getattr(one, "__dict__", None) for one in (*modules, *kinds)]
    found: dict[int, Any] = {}
    for values in (*(list(space.values()) for space in spaces if space), holders):
        found.update((id(value), value) for value in values if _is_generator(value))
    return list(found.values())[:MOST_GENERATORS]


def _of_library(kind: type[Any]) -> bool:
    """Whether a class is one of Python's, torch's or NumPy's, which have hundreds of attributes and no generator."""
    return str(kind.__module__).partition(".")[0] in ("builtins", "torch", "numpy", "typing", "collections", "abc")


def _held(root: Any) -> Iterator[Any]:
    seen, level = {id(root)}, [root]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for one in level:
            attributes = getattr(one, "__dict__", None)
            values = list(attributes.values()) if type(attributes) is dict else []
            if isinstance(one, (list, tuple)):
                values += one[:16]
            for value in values[:64]:
                if id(value) not in seen and len(seen) < MOST_OBJECTS:
                    seen.add(id(value))
                    yield value
                    inner.append(value)
        level = inner


def _is_generator(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, random.Random) or (
        kind.__name__ in ("Generator", "RandomState") and kind.__module__.startswith(("numpy.random", "torch"))
    )


def _state(torch: Any, generator: Any) -> int:
    if isinstance(generator, random.Random):
        return _digest(array("q", generator.getstate()[1]).tobytes())
    if isinstance(generator, torch.Generator):
        return _torch_state(torch, generator) if generator.device.type == "cpu" else 0
    if type(generator).__name__ == "RandomState":
        return numpy_state(generator)
    state = generator.bit_generator.state
    key = state.get("state", {})
    contents = key.get("key") if isinstance(key, dict) else None
    return _digest(contents.tobytes() + str(key.get("pos")).encode() if contents is not None else repr(state).encode())


def python_state() -> int:
    """A digest of the state of Python's global generator."""
    return _digest(array("q", random.getstate()[1]).tobytes())


def numpy_state(numpy: Any) -> int:
    """A digest of the state of NumPy's global generator, or of one that is made as it is."""
    state = numpy.get_state()
    return _digest(state[1].tobytes() + str(state[2:]).encode())


def _torch_state(torch: Any, generator: Any) -> int:
    state = generator.get_state()
    return _digest(array("q", state[: state.numel() // 8 * 8].view(torch.int64).tolist()).tobytes())


def _digest(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little")


def _text(states: list[int]) -> str:
    return " ".join(f"{state:016x}" for state in states)


def private_bytes() -> int:
    """Memory that only this process has: written pages, shared with nobody; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/smaps_rollup", "rb", buffering=0) as file:
        for line in file.read(2**14).splitlines():
            if line.startswith(b"Private_Dirty:"):
                return int(line.split()[1]) * 1024
    return 0
