"""Runs at the start of every Python process of a collected program: waits for torch, costs nothing until then.

The folder of this file comes first in PYTHONPATH. It waits for `import torch` and installs the hooks right after, before
the next line of the script. A sitecustomize of the user's own is run as if this one were not there.
"""

import os
import sys
from importlib.machinery import PathFinder

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


class _TorchFinder:
    """Finds torch as Python would, then installs the hooks when torch's own code has run."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(_TorchFinder)
        spec = None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                break
        if spec is not None and getattr(spec.loader, "exec_module", None) is not None:
            spec.loader = _TorchLoader(spec.loader)
        return spec


class _TorchLoader:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def create_module(self, spec):
        return self._inner.create_module(spec)

    def exec_module(self, module):
        # What the program can see of torch is what it would see without us.
        module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        _install(module)


def _install(torch):
    try:
        if "tracelyze" not in sys.modules:
            # The script may run in another environment than tracelyze: take the package from where this file lies.
            spec = PathFinder.find_spec("tracelyze", [PACKAGE_PARENT])
            module = type(sys)("tracelyze")
            module.__spec__ = spec
            module.__loader__ = spec.loader
            module.__file__ = spec.origin
            module.__path__ = list(spec.submodule_search_locations)
            sys.modules["tracelyze"] = module
            spec.loader.exec_module(module)
        from tracelyze.collectors import hooks

        hooks.install(torch)
    except Exception as error:  # recording is lost, the program is not
        sys.stderr.write(f"[tracelyze] not recording: {type(error).__name__}: {error}\n")


def _run_users_own():
    """Run the sitecustomize that Python would have found without this one, under its own name."""
    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != HERE])
    if spec is None or spec.loader is None:
        return
    module = type(sys)("sitecustomize")
    module.__spec__ = spec
    module.__loader__ = spec.loader
    module.__file__ = spec.origin
    module.__cached__ = spec.cached
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if os.environ.get("TRACELYZE_RUN") and os.environ.get("TRACELYZE_DISABLE", "") in ("", "0"):
    sys.meta_path.insert(0, _TorchFinder)
sys.path[:] = [entry for entry in sys.path if entry != HERE]
_run_users_own()
