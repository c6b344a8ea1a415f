"""What the hooks cost: seconds that they took on the training's own thread, in all and per row of the table steps."""

from __future__ import annotations


class Overhead:
    """`seconds` since the recording began, and how many of them the rows written so far have `stated`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.stated = 0.0

    def charge(self, seconds: float) -> None:
        """Add time that rows which are written already state."""
        self.seconds += seconds
        self.stated += seconds
