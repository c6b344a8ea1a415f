"""A call that cannot be carried out: what typer refuses, and a folder that is gone, in the one line of every error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from tracelyze.cli.app import ExitCode
from tracelyze.errors import Cause, InputError

# Typer brings its own copy of click in some versions, whose classes have no public name but this one's bases.
_REFUSALS = tuple(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def refusal(error: Exception) -> InputError | None:
    """The error to show for what typer raised, or for a call from a folder that is gone; None for any other exception.

    A bare call of a group shows its help.
    """
    if isinstance(error, FileNotFoundError) and _folder_is_gone():
        return InputError(Cause.NO_SUCH_PATH, "the working directory was removed; change into one that is there")
    if not isinstance(error, _REFUSALS):
        return None
    said: Any = error
    context = getattr(said, "ctx", None)
    if type(said).__name__ == "NoArgsIsHelpError":
        said.show()
        sys.exit(ExitCode.WRONG_INPUT)
    command = context.command_path if context is not None else "tracelyze"
    why = _reason(said, command)
    return InputError(Cause.WRONG_CALL, f"{why}{'' if why.endswith('?') else ';'} {command} --help shows the call")


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _reason(error: Any, command: str) -> str:
    """What is wrong with the call, with the names that are near to a mistyped one."""
    option, argument = getattr(error, "option_name", None), getattr(error, "param", None)
    if type(error).__name__ == "NoSuchOption" and option:
        return f"{command}: no such option: {option}{_near(option, error.possibilities or ())}"
    if type(error).__name__ == "MissingParameter" and argument is not None:
        return f"{command}: {argument.make_metavar(error.ctx).strip('{}')} is missing"
    text = str(error.format_message()).rstrip(".").replace("'", "").replace(". Did you", ", did you")
    text = text.replace("Got unexpected extra argument(s)", "unexpected argument")
    text = text.replace("a valid float range", "a number").replace("a valid integer range", "a whole number")
    return f"{command}: {text[:1].lower()}{text[1:]}"


def _near(name: str, known: Any) -> str:
    import difflib

    near = difflib.get_close_matches(name, sorted(known), n=2, cutoff=0.7)
    return f", did you mean {' or '.join(near)}?" if near else ""
