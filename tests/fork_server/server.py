"""The process behind `client.ForkServer`: imports once what programs import, then forks for each command.

Started as `python server.py DESCRIPTOR MODULE...`, the descriptor being a Unix socket that listens. For each that
connects there is a process of its own, which serves one request after the other; when all of these have left, the
server ends. A request is one JSON message with the standard streams as descriptors; the answers are the pid of the
child and, when that has ended, its wait status.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import types
import warnings
import weakref
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

LIMIT = 1 << 20  # bytes of a request: command, environment, folder
kept: list[object] = []  # what is not taken apart at the end


class Execute(BaseException):
    """Takes the place of `os.execve` in a child: what it was to become."""

    def __init__(self, path: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.path, self.command = path, command
        self.environment = dict(os.environ) if environment is None else environment


class LoadedTorch:
    """Finds the torch that is in memory, so that a script's `import torch` takes the way through sys.meta_path."""

    def __init__(self) -> None:
        self.torch = sys.modules.pop("torch")
        self.spec, self.loader = self.torch.__spec__, self.torch.__loader__

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec("torch", self) if name == "torch" else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self.torch

    def exec_module(self, module: types.ModuleType) -> None:
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        module.__spec__, module.__loader__ = self.spec, self.loader


def listen(listening: socket.socket) -> socket.socket:
    """Forks for each that connects. Returns in the children alone, with the connection; ends when all have left."""
    serving: set[int] = set()
    while True:
        if select.select([listening], [], [], 0.5 if serving else None)[0]:
            connection, _ = listening.accept()
            child = os.fork()
            if child == 0:
                listening.close()
                return connection
            serving.add(child)
            connection.close()
        while serving and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            serving.discard(ended)
        if not serving:
            _end_unless_called(listening)


def _end_unless_called(listening: socket.socket) -> None:
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # nobody connects meanwhile
        if not select.select([listening], [], [], 0)[0]:
            Path(listening.getsockname()).unlink(missing_ok=True)
            os._exit(0)


def serve(connection: socket.socket) -> dict[str, Any]:
    """Forks for each request. Returns in the children alone, with what is asked of them."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, LIMIT, 3)
        if not message:
            os._exit(0)  # the tests are over
        child = os.fork()
        if child == 0:
            connection.close()
            for wanted, stream in enumerate(streams):
                os.dup2(stream, wanted)
                os.close(stream)
            return dict(json.loads(message))
        for stream in streams:
            os.close(stream)
        connection.sendall(child.to_bytes(4, "little"))
        _, status = os.waitpid(child, 0)
        connection.sendall(status.to_bytes(4, "little"))


def start(command: list[str], environment: dict[str, str], search: list[str]) -> tuple[types.CodeType, dict[str, Any]]:
    """What a Python does that is started with this command, up to the first line of the script."""
    os.environ.clear()
    os.environ.update(environment)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by every Python from its start
        signal.signal(ignored, signal.SIG_IGN)
    random.seed()  # a new process draws its seeds from the system
    sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    flags, arguments = split(command[1:])
    for flag in flags:
        warnings.simplefilter(flag)  # type: ignore[arg-type]
        sys.warnoptions.append(flag)
    if arguments[:2] == ["-m", "tracelyze"]:
        wanted = become(arguments[2:])
        if not can_run(wanted.command):
            os.execve(wanted.path, wanted.command, wanted.environment)
        return start(wanted.command, wanted.environment, search)
    sys.orig_argv[:] = command
    sys.path[:] = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *search]
    kept.append(sys.path_importer_cache)  # to free it takes 8 ms
    sys.path_importer_cache = {}
    if "torch" in sys.modules:
        sys.meta_path.insert(0, LoadedTorch())  # type: ignore[arg-type]
    sys.modules.pop("sitecustomize", None)
    if PathFinder.find_spec("sitecustomize") is not None:
        importlib.import_module("sitecustomize")
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    names = vars(module)
    names["__builtins__"] = __builtins__
    if arguments[0] == "-c":
        sys.argv[:] = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        return compile(arguments[1], "<string>", "exec"), names
    script = arguments[0]
    sys.argv[:] = arguments
    sys.path.insert(0, str(Path(script).resolve().parent))
    names["__file__"] = script
    return compile(Path(script).read_bytes(), script, "exec"), names


def keep(modules: dict[str, types.ModuleType], started: set[str]) -> None:
    """Leave `modules` as they are when the interpreter ends.

    To take apart torch and what it imports is 0.4 s with `skip_destructors`, most of what a short program costs. The
    modules and objects of the program itself are taken apart as ever. `sys.modules` changes its contents with a
    dictionary that is kept: a module that is taken out is written to, which copies its page, 10 ms for all of them.
    """
    others = {name: sys.modules[name] for name in started if name in sys.modules}
    since = len(sys.modules) - len(modules) - len(started) + 50  # and a few that were taken out and put back
    for name in list(islice(reversed(sys.modules), max(since, 0))):
        if modules.get(name) is not sys.modules[name]:
            others[name] = sys.modules[name]
    for leaving in (modules, kept, others):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(leaving))  # so that nothing ever frees them
    contents = dict.__basicsize__ - object.__basicsize__  # of a dictionary, behind its count of references and its type
    everything, rest = (
        (ctypes.c_char * contents).from_address(id(one) + object.__basicsize__) for one in (sys.modules, others)
    )
    everything[:], rest[:] = rest[:], everything[:]
    if LastOfAll.status is not None and all(map(flushes, (sys.stdout, sys.stderr))):
        sys._last_of_all = LastOfAll(LastOfAll.status)  # type: ignore[attr-defined]


def flushes(stream: Any) -> bool:
    """Whether a stream has nothing left to write. Where it cannot, the interpreter says so, and ends with 120."""
    try:
        stream.flush()
    except BaseException:
        return False
    return True


class LastOfAll:
    """Ends the process where the interpreter has taken apart all modules and is about to empty `sys` and `builtins`.

    After that an interpreter frees its own memory alone, which copies half of what it shares with the server: 20 ms.
    """

    status: int | None = None  # of a program that has come to its end or called sys.exit with a number

    def __init__(self, status: int) -> None:
        self.ending = status
        self.collect, self.exit = gc.collect, ctypes.PyDLL(None).exit
        self.streams = sys.__stdout__, sys.__stderr__  # of which the interpreter makes sys.stdout and sys.stderr again

    def __del__(self) -> None:
        self.collect()
        for stream in self.streams:
            if stream is not None and not stream.closed:
                stream.flush()
        self.exit(self.ending)


def skip_destructors() -> None:
    """Let a process end without the destructors of what is in memory now; its C streams are flushed."""
    for registered in weakref.finalize._registry:  # type: ignore[attr-defined]  # torch's operators, one by one
        registered.atexit = False
    c = ctypes.CDLL(None)
    if hasattr(c, "on_exit"):  # glibc; called in reverse order, when Python has ended
        c.on_exit(c._exit, None)
        c.on_exit(c.fcloseall, None)


def can_run(command: Sequence[str]) -> bool:
    """Whether this is this Python with a script, code or tracelyze itself, and no option but `-W ACTION`."""
    if command[0] != sys.executable or len(command) == 1:
        return False
    _, words = split(list(command[1:]))
    return words[:2] == ["-m", "tracelyze"] or words[:1] == ["-c"] or not words[0].startswith("-")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Actions of `-W`, and the rest of the command."""
    actions = []
    while words[0] == "-W" and ":" not in words[1]:
        actions.append(words[1])
        words = words[2:]
    return actions, words


def become(arguments: list[str]) -> Execute:
    """What `tracelyze ARGUMENTS` would execute; ends this process if it executes nothing."""
    real = os.execv, os.execve
    os.execv = os.execve = _execute  # type: ignore[assignment]
    sys.argv[:] = ["tracelyze", *arguments]
    try:
        importlib.import_module("tracelyze.cli").main()
    except Execute as wanted:
        return wanted
    finally:
        os.execv, os.execve = real
    sys.exit(0)


def _execute(path: str, command: list[str], environment: dict[str, str] | None = None) -> NoReturn:
    raise Execute(path, command, environment)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    searched = list(sys.path)
    started = set(sys.modules)  # what the end of an interpreter itself may need
    imported: dict[str, types.ModuleType] = {}
    atexit.register(keep, imported, started)  # before anybody else does, so that it is called last
    for name in sys.argv[2:]:
        importlib.import_module(name)
    started |= {name for name in sys.modules if name.startswith("tracelyze.collectors")}  # its end is under test
    imported |= {name: module for name, module in sys.modules.items() if name not in started}
    skip_destructors()
    gc.collect()
    gc.freeze()  # else a child would look through all of torch at its end: 0.3 s instead of 1.1
    request = serve(listen(socket.socket(fileno=int(sys.argv[1]))))
    os.chdir(request["folder"])
    places = sys.modules.get("tracelyze.collectors.program.call_sites")
    if places is not None:
        places._START = request["folder"]  # that a program was started in: the module notes it when it is imported
    try:
        code, names = start(request["command"], request["environment"], searched)
        exec(code, names)  # at the outermost level: what ends the program ends the interpreter
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            LastOfAll.status = (ending.code or 0) & 0xFF
        raise
    LastOfAll.status = 0
