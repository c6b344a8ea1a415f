"""Which recording is this thread's, if any. The hooks say how to find it; scripts and callbacks ask.

Imported with the package, so it imports nothing that is not there anyway.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing and pathlib take as long to import as Python takes to start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any, Protocol

    class Recording(Protocol):
        """What scripts and callbacks use of a recorder."""

        run: Path

        @property
        def off(self) -> bool: ...

        @property
        def ended(self) -> bool: ...

        def logged(
            self, unnamed: tuple[Any, ...], values: Mapping[str, Any], batch: Any, phase: Any, step: Any
        ) -> None: ...

        def fire(self, event: str, *args: Any) -> None: ...

        def record_event(self, kind: str, name: str, text: str = "", **more: Any) -> None: ...

        def add_facts(self, facts: dict[str, Any]) -> None: ...


_find: Callable[[], Recording] | None = None


def set_finder(find: Callable[[], Recording]) -> None:
    """From now on `find()` is the calling thread's recorder."""
    global _find
    _find = find


def is_set() -> bool:
    """Whether there are hooks in this process."""
    return _find is not None


def active() -> Recording | None:
    """The recorder of this thread, None if nothing is being recorded."""
    if _find is None:
        return None
    recorder = _find()
    return None if recorder.off or recorder.ended else recorder
