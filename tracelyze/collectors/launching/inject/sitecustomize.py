"""Runs at the start of every Python process of a collected program: waits for torch, costs nothing before.

The folder of this file comes first in PYTHONPATH. It waits for `import torch` and installs the hooks right after,
before the next line of the script. A sitecustomize of the user's own is run as if this one were not there.
"""

from __future__ import annotations

import atexit
import os
import sys
from importlib._bootstrap import module_from_spec  # importlib.util costs 8 ms
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.abc import Loader
    from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(HERE))))


class _TorchFinder:
    """Finds torch as Python would, then installs the hooks when torch's own code has run.

    To look for torch is not to import it (`importlib.util.find_spec`): it stays until torch's code really runs.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        spec = None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not _TorchFinder else None
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                break
        if spec is not None and getattr(spec.loader, "exec_module", None) is not None:
            spec.loader = _TorchLoader(spec.loader)
        return spec


class _TorchLoader:
    def __init__(self, inner: Loader) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        atexit.unregister(_say_that_torch_never_came)
        # What the program can see of torch is what it would see without us.
        if _TorchFinder in sys.meta_path:
            sys.meta_path.remove(_TorchFinder)
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        try:
            self._inner.exec_module(module)
        except BaseException as error:
            _leave_no_frame(error)
            raise
        _install(module)


def _install(torch: ModuleType) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  # this file runs in whatever Python the program starts
        version = ".".join(map(str, sys.version_info[:2]))
        _give_up(f"{sys.executable} is Python {version}, recording takes 3.11")
        return
    try:
        if "tracelyze" not in sys.modules:
            # The script may run in another environment than tracelyze: take the package from where this file lies.
            _import(PathFinder.find_spec("tracelyze", [PACKAGE_PARENT]))
        from tracelyze.collectors.hooks import install

        install.install(torch)
    except Exception as error:  # recording is lost, the program is not
        import traceback

        _give_up(f"{type(error).__name__}: {error}", traceback.format_exc())


def _give_up(why: str, text: str = "") -> None:
    """Say so at once, and in the run (analyzers/recorded/run_directory.py reads it)."""
    sys.stderr.write(f"[tracelyze] not recording: {why}\n")
    import json

    seen = {"argv": sys.argv[:1], "error": why, "traceback": text}  # arguments may hold secrets
    try:
        with open(os.path.join(os.environ["TRACELYZE_RUN"], f"seen-{os.getpid()}.json"), "w", encoding="utf-8") as file:
            json.dump(seen, file)
    except OSError:
        pass  # the line above has said it


def _say_that_torch_never_came() -> None:
    """At the end of the program that `collect` became: nothing was recorded, and why. Also left in the run.

    A launcher needs no torch of its own: nothing is said where a process that it started has left something.
    """
    import json

    run = os.environ.get("TRACELYZE_RUN", "")
    try:
        with open(os.path.join(run, "run.json"), encoding="utf-8") as file:
            launched = json.load(file).get("pid") == os.getpid()
        left = [name for name in os.listdir(run) if name.startswith(("rank", "seen-"))]
        quiet = json.loads(os.environ.get("TRACELYZE_OPTIONS") or "{}").get("quiet")
        if not launched or any(name.startswith("rank") for name in left):
            return
        if not left:
            with open(os.path.join(run, f"seen-{os.getpid()}.json"), "w", encoding="utf-8") as file:
                json.dump({"argv": sys.argv[:1]}, file)  # arguments may hold secrets
        if not quiet:
            why = "torch was imported, but nothing trained" if left else "the program never imported torch"
            sys.stderr.write(f"[tracelyze] nothing was recorded: {why}\n")
    except (OSError, ValueError, AttributeError):
        pass  # the program ends as it would without us


def _leave_no_frame(error: BaseException) -> None:
    """Take the frames of this file from the front of the traceback: a bare `raise` then adds none."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == _install.__code__.co_filename:
        trace = trace.tb_next
    error.__traceback__ = trace


def _run_users_own() -> None:
    """Run the sitecustomize that Python would have found without this one, under its own name."""
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != HERE])
    if spec is not None and spec.loader is not None:
        _import(spec)


def _import(spec: ModuleSpec | None) -> None:
    """Import the module of this spec under its own name, whatever is there under that name now."""
    if spec is None or spec.loader is None:
        raise ImportError(f"tracelyze is not where it was: {PACKAGE_PARENT}")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


def _is_loader_worker() -> bool:
    """Whether a DataLoader spawned this process (hooks/loaders.py says so); what it starts is none."""
    if os.environ.get("TRACELYZE_SPAWNED_WORKER") != "1":
        return False
    os.environ["TRACELYZE_SPAWNED_WORKER"] = "0"
    return "--multiprocessing-fork" in sys.orig_argv


if os.environ.get("TRACELYZE_RUN") and os.environ.get("TRACELYZE_DISABLE", "") in ("", "0") and not _is_loader_worker():
    sys.meta_path.insert(0, _TorchFinder)
    atexit.register(_say_that_torch_never_came)
sys.path[:] = [entry for entry in sys.path if entry != HERE]
try:
    _run_users_own()
except BaseException as error:
    _leave_no_frame(error)
    raise
