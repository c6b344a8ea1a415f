"""What an exception says: its family, its message in one line, whose memory ran out, and what to change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.analyzers.computed.crashes import looked_up, unreduced
from tracelyze.analyzers.computed.crashes.families import (
    BACKWARD_TWICE,
    BATCH_OF_ONE,
    FAMILIES,
    IDS,
    SHAPES,
    UNREDUCED,
    Family,
)
from tracelyze.analyzers.script import carried_states
from tracelyze.analyzers.script.datasets import batch_of_one
from tracelyze.analyzers.script.editing import own_command
from tracelyze.analyzers.script.editing.remade import crashed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

DEVICE_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory|MPS backend out of memory",
    re.IGNORECASE,
)
HOST_MEMORY = re.compile(r"DefaultCPUAllocator|can't allocate memory|Cannot allocate memory|Unable to allocate")


def recognise(name: str, text: str) -> Family | None:
    """The family of an exception with class `name` and message or traceback `text`, None if it is not a known one."""
    said = f"{name}: {message(name, text)}"
    whole = said if "\n" not in text.strip() else f"{said}\n{_last_block(name, text)}"
    for family in FAMILIES:
        if re.search(family.pattern, whole, re.DOTALL) and re.search(family.source, text):
            return family
    return None


def remedy(family: Family | None, process: Process, where: Location | None) -> tuple[str, str]:
    """What to change, in words and in code."""
    if family is None:
        return unknown(where), own_command.in_example(own_command.DEBUGGED, process)
    fix, code = carried_states.remedy(process, where) if family.name == BACKWARD_TWICE else ("", "")
    looked = looked_up.at(process, where) if family.name == IDS else None
    fix = looked_up.OF_POSITIONS if looked is not None and looked.of_positions else fix
    code = looked.example if looked is not None else code
    code = unreduced.example(process) if family.name == UNREDUCED else code
    code = code or crashed.example(family.name, process, where)
    return fix or family.fix, code or own_command.in_example(family.fix_code, process)


def unknown(where: Location | None) -> str:
    """What to do about an exception that is not known."""
    place = f"at {where.file}:{where.line}" if where else "in the traceback's last frame of your own"
    return (
        f"Look at the values {place}: run the command again under `python -m pdb -c continue`, which stops there, and "
        "print the variables of that line. Then handle or prevent the case that raised it."
    )


def out_of_memory(name: str, text: str) -> str | None:
    """Whose memory ran out according to the exception, "device" or "host"; None if it says nothing of the kind."""
    said = f"{name}: {_last_block(name, text)}"
    if HOST_MEMORY.search(said) or name.rsplit(".", 1)[-1] == "MemoryError":
        return "host"
    return "device" if DEVICE_MEMORY.search(said) else None


def is_interruption(name: str, end: str) -> bool:
    """Whether the program was stopped on purpose, from its keyboard."""
    return end == "interrupted" or name.rsplit(".", 1)[-1] == "KeyboardInterrupt"


def message(name: str, text: str) -> str:
    """The exception in one line, without its class: the first line after the traceback, but for a sentence that goes on
    in the next line."""
    lines = [line.strip() for line in _last_block(name, text).splitlines() if line.strip()] or [""]
    short = name.rsplit(".", 1)[-1]
    said = re.sub(rf"^(?:(?:\w+\.)*{re.escape(short)}: )+", "", lines[0])
    whole, stop, begun = said.rpartition(". ")
    if stop and begun[-1:].isalnum() and lines[1:] and lines[1][0].islower():
        said = f"{whole}."
    return formatting.without_source(said) or short


LONGEST_MESSAGE, LONGEST_TITLE = 80, 90  # characters of an exception's message in a title, and of the title


def title(name: str, message: str, place: str = "") -> str:
    """Class, message and place of an exception, the message shortened to fit: `KeyError: 'tok100' at train.py:26`."""
    short, text = name.rsplit(".", 1)[-1], " ".join(message.split())
    if not message or message == short:
        return short + place
    room = max(20, min(LONGEST_MESSAGE, LONGEST_TITLE - len(short) - 2 - len(place)))
    alone = min(LONGEST_MESSAGE, LONGEST_TITLE - len(short) - 2)
    if room < len(text) <= alone:  # a whole message says more than half of it and its place
        return f"{short}: {text}"
    if len(text) > room:
        return f"{short}: {_begin(text, room - 2)} …{place}"
    return f"{short}: {text.removesuffix('.') if place else text}{place}"  # the place goes on with the sentence


def _begin(text: str, most: int) -> str:
    """The first words that fit; of a word longer than half of that, its beginning. No bracket stays open."""
    cut = text[: most + 1].rpartition(" ")[0].rstrip()
    if cut.count("(") > cut.count(")"):
        before = cut[: cut.rindex("(")].rstrip()
        cut = before if len(before) > most // 2 else cut
    return cut if len(cut) > most // 2 else text[:most].rstrip()


def _last_block(name: str, text: str) -> str:
    """The message at the end of a traceback, which may have several lines; all of `text` if it is a message alone."""
    short = name.rsplit(".", 1)[-1]
    lines = text.strip().splitlines()
    for index in range(len(lines) - 1, -1, -1):
        if re.match(rf"([\w.]+\.)?{re.escape(short)}\b(:|$)", lines[index]):
            return "\n".join(lines[index:])
    return text.strip()


def meaning(family: Family, process: Process, text: str) -> str:
    """What the exception with this message or traceback means, in a sentence or two, by what is known of this run."""
    which = f" {batch_of_one.which(process)}" if family.name == BATCH_OF_ONE else unreduced.which(process, text)
    return f"It means that {family.title}. {family.meaning}{which}"


def of_shapes(family: Family | None) -> bool:
    """Whether tensors did not fit together."""
    return family is not None and family.name == SHAPES


def edit(family: Family | None, process: Process, where: Location | None) -> tuple[Diff | None, Location | None]:
    """A changed line that mends it, and the place of that line."""
    looked = looked_up.at(process, where) if family is not None and family.name == IDS else None
    if looked is not None:
        return None, looked.made if looked.of_positions else None
    if family is not None and family.name == UNREDUCED:
        return None, unreduced.wrapper(process)
    return (None, None) if family is None or family.name != BATCH_OF_ONE else batch_of_one.left_out(process)
