"""pyarrow, the one package that recording needs: imported where it is pyarrow, and never a file of the program."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder


def load() -> None:
    """Import what writing takes. Raises ImportError, with the remedy, where there is no pyarrow, or another one.

    A program may have a `pyarrow.py` of its own beside its script. It stands in front of the package on `sys.path`, and
    to import it would run code of the program at a time that the program did not choose.
    """
    own = _own_of_the_program()
    if own is not None:
        raise ImportError(f"{own} stands in the way of the package pyarrow, which recording takes: rename that file")
    try:
        import pyarrow.ipc  # noqa: F401
    except ImportError as error:
        remedy = f"install it for {sys.executable} (python -m pip install pyarrow; uv run --with pyarrow ...)"
        lacking = f"the environment of the program has no pyarrow, which recording takes: {remedy}"
        raise ImportError(lacking) from error


def _own_of_the_program() -> str | None:
    """The file that `import pyarrow` would run, or has run, if it is not the package's; None if all is well."""
    loaded = sys.modules.get("pyarrow")
    spec = getattr(loaded, "__spec__", None) if loaded is not None else PathFinder.find_spec("pyarrow")
    if spec is None or spec.origin is None:
        return None
    folder = os.path.dirname(spec.origin)
    is_package = os.path.basename(spec.origin).startswith("__init__.")
    if is_package and any(name.startswith("lib.") for name in os.listdir(folder)):  # its extension module
        return None
    return str(spec.origin)
