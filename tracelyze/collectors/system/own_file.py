"""A file that is written only while its descriptor is still ours.

A program may close descriptors that are not its own: `os.closerange(3, 1000)` before it starts a daemon, or a number
closed twice. The number is then given to the next file that the program opens, and what is written to it would land
there.
"""

from __future__ import annotations

import os
from pathlib import Path


class LostFileError(OSError):
    """The program has closed the descriptor, and may have another file behind its number."""


class OwnFile:
    """A new file, written through a bare descriptor: every write reaches the kernel before it returns."""

    def __init__(self, path: Path) -> None:
        """Create or empty the file. Raises OSError where that cannot be done."""
        self._name = path.name
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._identity = _identity(self.descriptor)

    def is_ours(self) -> bool:
        """Whether the descriptor still belongs to this file."""
        try:
            return _identity(self.descriptor) == self._identity
        except OSError:
            return False

    def write(self, data: bytes) -> None:
        """Append all of `data`. Raises LostFileError if the descriptor is not ours, OSError if the disk refuses."""
        if not self.is_ours():
            raise LostFileError(f"the program closed the descriptor of {self._name}, a file of the recording")
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

    def close(self) -> None:
        """Close the descriptor if it is ours; what else may be behind its number is left alone."""
        if self.is_ours():
            os.close(self.descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
