"""A training's folder in the run directory, and the thread that writes its rows there twice a second.

A disk that refuses ends the recording, with one line for people and the reason on disk; the program goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, thread_time
from typing import Any

from tracelyze import redaction, schema
from tracelyze.collectors.storage import arrow
from tracelyze.collectors.storage.stream import TableStream
from tracelyze.collectors.system import fatal_signals, identity, notices
from tracelyze.collectors.system.threads import Threads

FLUSH_SECONDS = 0.5  # half of the second that may be lost
FIRST_FLUSH_SECONDS = 0.05  # doubles up to the above: a run that dies young leaves something too
FIRST_STATEMENT_SECONDS, STATEMENT_SECONDS = 1.0, 60.0  # between two statements of what everything cost; doubles too
CONVERT_BYTES = 64 * 2**20  # streams above this are left to the first reader: exit must not take seconds
EXIT_SECONDS = 2.0  # after which only rows are written, on a slow disk: the first reader converts the streams
MOST_FOLDERS = 1000  # of one process: `os.execv` starts another program under the same process id
RESERVED_BYTES = 1024  # They are taken on the disk from the start, so that "the disk is full" can be written down.
LONGEST_REASON = 500  # characters of why recording stopped, which have to fit into RESERVED_BYTES


class Statements:
    """When to state what everything has cost: ever more rarely, down to once a minute. `state()` queues the rows."""

    def __init__(self, now: Callable[[], float], state: Callable[[], None]) -> None:
        self._now, self._state = now, state
        self._next, self._between = FIRST_STATEMENT_SECONDS, FIRST_STATEMENT_SECONDS

    def begin(self) -> None:
        """There is a thread that writes from now on."""
        self._next += self._now()

    def state_if_due(self) -> None:
        """Called twice a second."""
        if self._now() >= self._next:
            self._between = min(STATEMENT_SECONDS, 2 * self._between)
            self._next += self._between
            self._state()


class Facts:
    """What process.json says. Any thread adds to it; the one that writes rows writes it, for two writers of a file
    could each take away what the other has half written."""

    def __init__(self) -> None:
        self.changed = False  # since it was written
        self._facts: dict[str, Any] = {}

    def add(self, facts: dict[str, Any]) -> None:
        """These hold from now on."""
        self._facts |= facts
        self.changed = True

    def add_first(self, facts: dict[str, Any]) -> None:
        """These hold too, where nothing else was added under the same name before."""
        self._facts = facts | self._facts

    def now(self) -> dict[str, Any]:
        """A copy: another thread may add more."""
        return dict(self._facts)

    def write(self, folder: Path) -> None:
        """Write them into a process's folder."""
        self.changed = False
        identity.write_json(folder / schema.PROCESS_FILE, self.now())


class Writer:
    """Rows of one recording on their way to the disk. `off`: nothing is recorded any more."""

    def __init__(self, now: Callable[[], float], steps: Callable[[], int], state_costs: Callable[[], None]) -> None:
        """`now()` is the process's clock, `steps()` how many steps were made; `state_costs()` is called by the thread
        every so often, to queue what everything has cost."""
        self._steps = steps
        self._statements = Statements(now, state_costs)
        self.off = False
        self.opened = False
        self.ended = False
        self.folder: Path | None = None
        self.seconds = 0.0  # processor time of the thread
        self._run: Path | None = None
        self._facts = Facts()
        self._in_main_thread = True  # the training runs there
        self._stopped: dict[str, Any] | None = None  # why and where recording stopped early
        self._lock = threading.Lock()
        self._holder: int | None = None  # the thread that holds the lock
        self.threads = Threads()
        self.streams = {table.name: TableStream(table) for table in schema.TABLES}

    def emit(self, table: str, row: dict[str, Any]) -> None:
        """Queue a row."""
        if self.off:
            return
        if self.threads.paused:
            self.threads.resume()
        self.streams[table].append(row)

    def add_facts(self, facts: dict[str, Any]) -> None:
        """More for process.json, which is written with the next rows."""
        self._facts.add(facts)

    def start(self, run: Path, facts: dict[str, Any]) -> None:
        """Write rows into a folder of the run directory from now on, beside process.json with these facts.

        Raises ImportError where pyarrow cannot be had.
        """
        self._run = run
        self._facts.add_first(facts)
        self._in_main_thread = threading.current_thread() is threading.main_thread()
        arrow.load()  # Now, on this thread: an import on the thread that writes could meet a fork.

        self._statements.begin()
        self.threads.start(self._write_forever)

    def _make_folder(self) -> None:
        """The folder and its first files. By the thread that writes: on a slow disk the training does not wait."""
        run, facts = self._run, self._facts.now()
        assert run is not None
        folder = run / identity.folder_name(facts)
        for number in range(2, MOST_FOLDERS):
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:  # of a program that this process was before it called `os.execv`
                folder = run / f"{identity.folder_name(facts)}-program{number}"
        # First, so that what fails next can be written there. Where no descriptor is free, the folder alone says it.
        self.folder = folder
        (folder / schema.STOPPED_FILE).write_bytes(b" " * RESERVED_BYTES)
        self._facts.write(folder)
        if facts["thread"] == 1 and not fatal_signals.watch(folder, self._in_main_thread):
            self.add_facts({"own_faulthandler": True})
        for stream in self.streams.values():
            stream.folder = folder

    def flush(self) -> None:
        """Write all rows that are complete. A disk that refuses ends the recording, never the program."""
        if not self.opened or self.off or not self._lock.acquire(timeout=2.0):
            return
        self._holder = threading.get_ident()
        try:
            if self.folder is None and self._run is not None:
                self._make_folder()
            if self.folder is not None and self._facts.changed:
                self._facts.write(self.folder)
            for stream in self.streams.values():
                stream.flush()
        except Exception as error:
            self.stop(error)
        finally:
            self._holder = None
            self._lock.release()

    def close(self) -> None:
        """Write the rest and, unless that would take long, turn the streams into Parquet."""
        until = monotonic() + EXIT_SECONDS
        with self._lock:
            if not self.opened or self.off:
                return
            self._holder = threading.get_ident()
            try:
                if self.folder is None and self._run is not None:
                    self._make_folder()
                for stream in self.streams.values():  # all rows first: a launcher ends ranks that lost a peer at once
                    stream.flush()
                for stream in self.streams.values():
                    in_time = monotonic() < until
                    stream.close(convert=in_time and stream.size < CONVERT_BYTES, mark_end=in_time)
                if self.folder is not None:
                    self._facts.write(self.folder)
                    (self.folder / schema.STOPPED_FILE).unlink(missing_ok=True)  # blank: nothing stopped it
            except Exception as error:
                self.stop(error)
            finally:
                self._holder = None

    def end(self) -> None:
        """No more writing by the thread."""
        self.ended = True
        self.threads.end()

    def let_go(self) -> None:
        """Close the files, into which nothing more is written: in a forked child those of the parent, before Python
        warns that nobody closed them, and those of a recording that had to stop."""
        for stream in self.streams.values():
            stream.let_go()

    def stop(self, error: Exception) -> None:
        """End the recording because of an error of ours or of the disk; the reason goes to the reserved file."""
        if self.off:
            return
        self.off = True
        reason = redaction.redact_text(f"{type(error).__name__}: {error}")[:LONGEST_REASON]
        self._stopped = {"step": self._steps(), "reason": reason}
        self._make_folder_for_the_reason()
        self._write_reason()
        self.complain(error)

    def _make_folder_for_the_reason(self) -> None:
        """So that the run can say why it is empty. The thread that writes may be about to make it, too."""
        holds = self._holder == threading.get_ident()  # What failed is a flush.
        if self.folder is not None or self._run is None or not (holds or self._lock.acquire(timeout=2.0)):
            return
        try:
            if self.folder is None:
                with contextlib.suppress(Exception):
                    self._make_folder()
        finally:
            if not holds:
                self._lock.release()

    def note_end(self, name: str, code: float | None) -> None:
        """How the program ended, where no row can say it any more: what is recorded up to a full disk is no death."""
        if self._stopped is not None:
            self._stopped |= {"end": name, "code": code}
            self._write_reason()

    def _write_reason(self) -> None:
        try:
            if self.folder is not None:
                reserved = os.open(self.folder / schema.STOPPED_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
                with open(reserved, "wb", buffering=0) as file:
                    file.write(json.dumps(self._stopped).encode()[:RESERVED_BYTES])
        except OSError:
            pass

    def complain(self, error: Exception) -> None:
        """One line for people."""
        notices.say(f"recording stopped, the program goes on: {type(error).__name__}: {error}")

    def _write_forever(self, stop: threading.Event) -> None:
        self.flush()
        pause = FIRST_FLUSH_SECONDS
        while not stop.wait(pause) and not self.off:
            pause = min(FLUSH_SECONDS, 2 * pause)
            self._statements.state_if_due()
            self.flush()
            fatal_signals.check()
            self.seconds = thread_time()
