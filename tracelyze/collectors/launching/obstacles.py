"""What keeps the collector out of a command: it travels in PYTHONPATH, which a flag or a wrapper may not pass on."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?(\.exe)?$")
# Programs that run the rest of their command line as it is, in the environment that they were given.
_WRAPPERS = {
    "chrt",
    "env",
    "ionice",
    "nice",
    "nohup",
    "numactl",
    "setsid",
    "stdbuf",
    "sudo",
    "taskset",
    "time",
    "timeout",
}
_FLAGS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def python_part(command: list[str]) -> list[str]:
    """`python ...` of a command, behind wrappers such as `nice`; empty if it starts no Python by name."""
    for index, word in enumerate(command):
        name = Path(word).name
        if _PYTHON.fullmatch(name):
            return command[index:]
        if index == 0 and name not in _WRAPPERS:
            break
    return []


def script_of(command: list[str]) -> str | None:
    """The script in `python [flags] script.py ...`; None for any other command."""
    arguments = iter(python_part(command)[1:])
    for argument in arguments:
        if argument in _FLAGS_WITH_VALUE:
            next(arguments, None)
        elif argument in ("-m", "-c", "-") or argument.startswith(("-m", "-c")):
            return None
        elif not argument.startswith("-"):
            return argument
    return None


def obstacle(command: list[str], program: str) -> str | None:
    """Why Python will not find the collector, as a clause; None if nothing is in the way. `program`: path of word 0."""
    return _wrapper(command) or _flag(python_part(command)) or _flag(_shebang(program))


def _wrapper(command: list[str]) -> str | None:
    name = Path(command[0]).name
    before = command[1 : len(command) - len(python_part(command))]
    if name == "sudo" and not any(word in ("-E", "--preserve-env") for word in before):
        return "sudo clears the environment, and with it PYTHONPATH"
    if name != "env":
        return None
    for index, word in enumerate(before):
        if word in ("-i", "-", "--ignore-environment"):
            return f"env {word} clears the environment, and with it PYTHONPATH"
        if word == "-uPYTHONPATH" or (word in ("-u", "--unset") and before[index + 1 : index + 2] == ["PYTHONPATH"]):
            return f"env {word} takes PYTHONPATH away"
        if word.startswith("PYTHONPATH="):
            return "env replaces PYTHONPATH"
    return None


def _flag(python: list[str]) -> str | None:
    """The interpreter flag with which Python ignores PYTHONPATH or sitecustomize, if there is one."""
    for argument in python[1:]:
        if not argument.startswith("-") or argument.startswith("--") or argument[1:2] in ("", "m", "c"):
            return None
        for letter in argument[1:]:
            if letter in "IES":
                return f"{python[0]} -{letter} ignores PYTHONPATH"
            if letter in "WX":
                break
    return None


def _shebang(program: str) -> list[str]:
    """The command in the first line of a script; empty if it names no Python."""
    try:
        with open(program, "rb") as file:
            first = file.readline(256)
    except OSError:
        return []
    return python_part(os.fsdecode(first[2:]).split()) if first.startswith(b"#!") else []
