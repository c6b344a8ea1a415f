"""Lines of the script's files that give a constant to a name which a line of interest uses: where `args.lr` of
`Adam(model.parameters(), lr=args.lr)` gets its 3e-4.

Numbers, True, False, None and plain words only. A line with another string on it is left out, a help text aside.
"""

from __future__ import annotations

import linecache
import re
from collections import defaultdict
from collections.abc import Container
from typing import Any, Final, NamedTuple

from tracelyze import redaction
from tracelyze.collectors.program.call_sites import Sites, script_modules
from tracelyze.collectors.program.lines.settings import given_values
from tracelyze.collectors.program.lines.settings.given_values import Given
from tracelyze.collectors.program.lines.settings.source_text import HIDDEN, SourceText

USING: Final = frozenset({
    "optimizer", "scheduler", "schedule", "dataloader", "clip", "setting", "average", "draw", "anomaly", "epochs",
    "step-text", "dropout", "length", "scaler-text", "average-made",
})  # fmt: skip
"""Roles of lines that may use a setting by its name."""
SOUGHT: Final = frozenset({"momentum"})
"""Settings that are looked for by name once an object has an odd value of them, whatever line makes that object."""
WEIGHS: Final = re.compile(r"balanc|(?:^|_)(?:aux|lb|load|router|moe)(?:_|$)", re.IGNORECASE)
"""Names of what may weigh a term for the balance of experts. Such a setting is looked for where it is 0."""
MOST: Final = 200  # lines
MOST_FILES: Final = 60
MOST_CHARACTERS: Final = 600_000  # of all files, some 15,000 lines: they are read on a thread of ours
LONGEST_BODY: Final = 2_000  # characters of a function that a line names
HOPS: Final = 3  # `lr=rate`, `rate=args.learning_rate`, and its default
_MIXED: Final = re.compile(rf"{HIDDEN}|(?=.*[A-Za-z]).*\d")
_AROUND: Final = 3  # lines before and after
_ZERO: Final = re.compile(r"0+(?:\.0*)?")
_WORDS: Final = re.compile(r"[A-Za-z_]\w*")
_STRING: Final = re.compile(r"[\"'](?P<words>[^\"']*)[\"'](?P<key>\s*[:\]])?")


class _File(NamedTuple):
    """What is known of a file: its text, what gives a name a value in it, and the lines that do so with a constant."""

    source: SourceText
    given: list[Given]
    lines: set[int]


class Constants:
    """Records such lines as sites with the role constant."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._known = -1  # sites at the last look
        self._files: dict[str, _File] = {}
        self._own: dict[str, list[str]] = {}  # functions and classes of the script, with their parameters
        self._emitted: set[tuple[str, int, str]] = set()
        self._characters = 0

    def read(self) -> None:
        """Look for the names that lines use which are known by now."""
        known = list(self._sites.known)
        if len(known) == self._known:
            return
        self._look(known)
        self._known = len(known)  # Not before: the program may end while the thread is in here, and then begins anew.

    def _look(self, known: list[tuple[str, str, int]]) -> None:
        uses = {(file, line) for role, file, line in known if role in USING}
        if not uses:
            return
        self._open([*dict.fromkeys(file for file, _ in uses)])
        asked = {name for file, line in uses for name in self._names_at(file, line)}
        schedulers = {(file, line) for role, file, line in known if role == "scheduler"}
        asked |= {name for file, line in schedulers for name in self._names_in_functions(file, line)}
        asked |= SOUGHT & self._sites.wanted
        self._open([file for file in _unread(self._files) if any(name in _text_of(file) for name in asked)])
        given = [one for known_file in list(self._files.values()) for one in known_file.given]
        asked |= {one.name for one in given if _ZERO.fullmatch(one.value) and WEIGHS.search(one.name)}
        by_name: dict[str, list[tuple[str, Given]]] = defaultdict(list)
        for file, known_file in list(self._files.items()):
            for one in known_file.given:
                by_name[one.name].append((file, one))
        for name in sorted(asked):
            for file, one in _constants(name, by_name):
                self._emit(name, file, one)

    def _open(self, files: list[str]) -> None:
        """Read files that were not read yet."""
        new: dict[str, SourceText] = {}
        for file in files:
            text = _text_of(file)
            self._characters += len(text) if file not in self._files else 0
            if file not in self._files and len(self._files) + len(new) < MOST_FILES:
                new[file] = SourceText(text if self._characters <= MOST_CHARACTERS else "")
        for source in new.values():
            for name, parameters in given_values.signatures(source).items():
                self._own[name] = parameters if self._own.get(name, parameters) == parameters else []
        for file, source in new.items():
            given = list(given_values.values(source, self._own))
            lines = {source.line_of(one.at) for one in given if one.value}
            self._files[file] = _File(source, given, lines)

    def _names_at(self, file: str, line: int) -> set[str]:
        """The names in the statement at a line."""
        known = self._files.get(file)
        return set(_WORDS.findall(known.source.lines(*known.source.span_of(line)))) if known is not None else set()

    def _names_in_functions(self, file: str, line: int) -> set[str]:
        """The names in the functions of the file that the statement at a line names: such as compute a schedule."""
        known = self._files.get(file)
        if known is None:
            return set()
        bodies = [known.source.body_of(name) for name in self._names_at(file, line)]
        return {word for body in bodies if len(body) <= LONGEST_BODY for word in _WORDS.findall(body)}

    def _emit(self, name: str, file: str, one: Given) -> None:
        known = self._files[file]
        line = known.source.line_of(one.at)
        key = file, line, name
        if key in self._emitted or len(self._emitted) >= MOST:
            return
        self._emitted.add(key)
        raw = linecache.getline(file, line)
        text = known.source.lines(line, line)
        if not (one.option or _has_plain_words(text)) or redaction.redact_text(raw) != raw:
            return
        self._sites.add(
            "constant",
            file,
            line,
            known.source.function_at(one.at),
            name=name,
            own_name=one.name,
            value=one.value,
            **_excerpt(file, line, known),
        )


def _constants(name: str, by_name: dict[str, list[tuple[str, Given]]]) -> list[tuple[str, Given]]:
    """What gives a constant to a name, or to what the name is set to."""
    names = {name: None}
    for _ in range(HOPS):
        further = {one.refers: None for known in names for _, one in by_name.get(known, ()) if one.refers}
        names |= further
    return [(file, one) for known in names for file, one in by_name.get(known, ()) if one.value]


def _excerpt(file: str, line: int, known: _File) -> dict[str, Any]:
    """The line and those around it that hold no strings but such as stand beside constants, as columns of sites."""
    lines = linecache.getlines(file)
    first, last = line, line
    while first > max(1, line - _AROUND) and _may_be_shown(first - 1, known):
        first -= 1
    while last < min(len(lines), line + _AROUND) and _may_be_shown(last + 1, known):
        last += 1
    text = "\n".join(one.rstrip() for one in lines[first - 1 : last])
    return {"excerpt": redaction.redact_text(text), "excerpt_line": first}


def _may_be_shown(line: int, known: _File) -> bool:
    text = known.source.lines(line, line)
    options = all(match["words"].startswith("-") for match in _STRING.finditer(text))
    return HIDDEN not in text and (options or (line in known.lines and _has_plain_words(text)))


def _has_plain_words(text: str) -> bool:
    """Whether all strings of a line are keys, options, or words without digits, of which secrets seldom are made."""
    strings = [match for match in _STRING.finditer(text) if not match["key"]]
    return all(match["words"].startswith("-") or not _MIXED.search(match["words"]) for match in strings)


def _text_of(file: str) -> str:
    return "".join(linecache.getlines(file))


def _unread(known: Container[str]) -> list[str]:
    """Files of Python of the modules that are loaded and no library's, but for those that are known."""
    files = dict.fromkeys(file for file, _ in script_modules())
    return [file for file in files if file.endswith(".py") and file not in known]
