"""Exceptions that speak of names, files, types and shapes: wrong numbers do not raise them."""

from __future__ import annotations

import re
from typing import Final

_CLASSES: Final = (
    "AttributeError|ConnectionError|FileExistsError|FileNotFoundError|ImportError|KeyError|ModuleNotFoundError"
    "|NameError|NotImplementedError|OSError|PermissionError|StopIteration|TimeoutError|TypeError|UnboundLocalError"
)
_OWN: Final = re.compile(rf"(?:{_CLASSES})$")  # of a library, too: ClientConnectionError
_MESSAGES: Final = re.compile(
    rf"\b(?:{_CLASSES})\b|cannot be multiplied|expected scalar type|same device|size of tensor", re.IGNORECASE
)  # what torch says of shapes, types and devices, and classes that the message of another exception names


def spoken_of(name: str, message: str) -> bool:
    """Whether an exception of this class with this message is one of them."""
    return _OWN.search(name) is not None or _MESSAGES.search(message) is not None
