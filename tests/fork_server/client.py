"""Run commands by `server`, as `subprocess.run` would."""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .server import can_run

SERVER: Final = Path(__file__).with_name("server.py")
READY_SECONDS: Final = 120.0  # to import torch on a busy machine
COMMANDS: Final = (
    "numpy",
    "pandas",
    "pyarrow.parquet",
    "tracelyze.cli",
    "tracelyze.analyzers.engine",
    "tracelyze.analyzers.rules",
    "tracelyze.analyzers.kineto.diagnose",
    "tracelyze.analyzers.windows",
    "tracelyze.config",
    "tracelyze.catalogue.entries",
    "tracelyze.api",
    "tomllib",
    "tracelyze.collectors.launching.launch",
    "tracelyze.collectors.hooks.install",
    "tracelyze.reports.html",
    "tracelyze.reports.json",
    "tracelyze.reports.text",
)
"""What the command line imports, and the program that it records: 170 modules, 0.2 s of each recording."""
TRAININGS: Final = ("torch", "torch._dynamo", *COMMANDS)
"""What a recorded program imports, and the command line that judges it."""
FRAMEWORKS: Final = (
    *TRAININGS,
    "torch._inductor.compile_fx",
    *(one for one in ("transformers.trainer", "accelerate", "lightning") if find_spec(one.partition(".")[0])),
)
"""What programs import that use a framework or torch.compile: 1.5 s of each. Every fork takes longer with them."""


class ForkServer:
    """A server process with `modules` in memory, for all processes of a run of pytest.

    The first that has a command starts it; it ends when the last one has called `close`.
    """

    def __init__(self, modules: Sequence[str] = TRAININGS) -> None:
        self._modules = modules
        self._connection: socket.socket | None = None

    def run(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | Path | None = None,
        input: str = "",
        timeout: float = 300.0,
    ) -> subprocess.CompletedProcess[str]:
        """Like `subprocess.run` with captured text. ValueError for a command that is no plain call of this Python."""
        if not can_run(command):
            raise ValueError(f"not a plain call of {sys.executable}: {command}")
        request = {"command": list(command), "environment": dict(env), "folder": str(cwd or Path.cwd())}
        connection = self._connect()
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(input.encode())
            given.seek(0)
            streams = [given.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(connection, [json.dumps(request).encode()], streams)
            connection.settimeout(READY_SECONDS)
            child = _number(connection)
            connection.settimeout(timeout)
            try:
                status = _number(connection)
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                connection.settimeout(None)
                _number(connection)
                raise subprocess.TimeoutExpired(list(command), timeout) from None
            return subprocess.CompletedProcess(
                list(command), os.waitstatus_to_exitcode(status), *(_text(stream) for stream in (out, err))
            )

    def close(self) -> None:
        """Leave the server, which ends if nobody else uses it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> socket.socket:
        if self._connection is None:
            run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
            name = hashlib.sha256(" ".join([run, sys.executable, *self._modules]).encode()).hexdigest()[:20]
            address = Path(tempfile.gettempdir()) / f"fork-server-{name}"
            connection = socket.socket(socket.AF_UNIX)
            with SERVER.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    connection.connect(str(address))
                except OSError:
                    address.unlink(missing_ok=True)
                    self._start(address)
                    connection.connect(str(address))  # answered when the modules are in memory
            self._connection = connection
        return self._connection

    def _start(self, address: Path) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHONWARNINGS")}
        environment |= {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(address))
            listening.listen()
            listening.set_inheritable(True)
            os.posix_spawn(
                sys.executable,
                [sys.executable, str(SERVER), str(listening.fileno()), *self._modules],
                environment,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            )


@functools.cache
def shared(modules: tuple[str, ...] = TRAININGS) -> ForkServer:
    """The server with these modules, as all tests of this process of pytest share it."""
    server = ForkServer(modules)
    atexit.register(server.close)
    return server


def _number(connection: socket.socket) -> int:
    received = b""
    while len(received) < 4:
        more = connection.recv(4 - len(received))
        if not more:
            raise RuntimeError("the fork server has ended")
        received += more
    return int.from_bytes(received, "little")


def _text(stream: object) -> str:
    stream.seek(0)  # type: ignore[attr-defined]
    return str(stream.read().decode(errors="replace"))  # type: ignore[attr-defined]
