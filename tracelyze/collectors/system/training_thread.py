"""The thread that trains: hooks that run on other threads are none of its recording's business."""

from __future__ import annotations

import threading
from threading import get_ident


class TrainingThread:
    """Which thread one recording belongs to. `number` counts the training threads of the process, from 1 on."""

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self.ident: int | None = None  # None before the first backward or step
        self.name = ""

    def claim(self) -> bool:
        """Whether the calling thread is the one, which it becomes if there is none yet, or if that one has ended."""
        me = get_ident()
        if self.ident != me:
            if self.ident is not None and any(thread.ident == self.ident for thread in threading.enumerate()):
                return False
            self.ident = me
            self.name = self.name or threading.current_thread().name
        return True
