"""The one error that people see: a sentence that names the input, the reason and the remedy."""

from __future__ import annotations


class InputError(Exception):
    """The input or the call is wrong. The command line prints the message alone and exits with 2."""
