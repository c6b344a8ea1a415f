"""Which lines of a file give a name a value: assignments, fields, defaults of functions and of command lines, what the
script's own functions and classes are called with, and dictionaries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tracelyze.collectors.program.lines.settings.source_text import HIDDEN, Bracket, SourceText, arguments

Signatures = Mapping[str, Sequence[str]]
"""The parameters of the script's functions and classes, in order; none where several have one name."""
HOLDERS: Final = frozenset({
    "dict", "Namespace", "SimpleNamespace", "set_defaults", "EasyDict", "ConfigDict", "Munch", "AttrDict", "DotMap",
    "replace", "update",
})  # fmt: skip
"""What is called to keep settings by their names."""
OPTIONS: Final = frozenset({"add_argument", "option"})  # argparse and click
FLAGS: Final = re.compile(r"DEFINE_(?:float|integer|bool(?:ean)?|string)")  # absl
_NUMBER: Final = r"[-+]?(?:\d[\d_]*+(?:\.[\d_]*+)?|\.\d[\d_]*+)(?:[eE][-+]?\d++)?"
_COMPUTED: Final = rf"{_NUMBER}(?:[ \t]*(?:\*\*|//|[-+*/])[ \t]*{_NUMBER})*+"
"""A number, or several that are put together: `4 * 256`."""
_CONSTANT: Final = re.compile(
    rf"{_COMPUTED}|True|False|None|\"[^\"{HIDDEN}]*+\"|'[^'{HIDDEN}]*+'|\(\s*{_NUMBER}(?:\s*,\s*{_NUMBER})*\s*,?\s*\)"
)
_REFERENCE: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:\[(?:\"(\w+)\"|'(\w+)')\])?")
_FIELD: Final = re.compile(
    rf"(?:\w+\.)?(?:field|Field|Option|Argument)\(\s*(?:default\s*=\s*)?(?P<value>{_COMPUTED}|[^\s,()]+)\s*[,)].*"
)
_ASSIGNED: Final = re.compile(
    r"^[ \t]*(?:(?:if|elif|else|for|while|with|try|except|finally)\b[^:\n]*:[ \t]+)?"
    r"(?P<target>[A-Za-z_][\w.]*+(?:\[[^\]\n]*+\])?)[ \t]*(?::[^=\n]*+)?(?P<changed>[-+*/%&|^@]|//|\*\*)?=(?!=)"
    r"[ \t]*(?P<value>[^\n;]*+)",
    re.MULTILINE,
)
_TOGETHER: Final = re.compile(
    r"^[ \t]*(?P<targets>[A-Za-z_][\w.]*+(?:[ \t]*,[ \t]*[A-Za-z_][\w.]*+)+)[ \t]*=(?!=)[ \t]*(?P<values>[^\n;=]*+)$",
    re.MULTILINE,
)
_LOOPED: Final = re.compile(r"\bfor[ \t]+\(?(?P<targets>\w+(?:[ \t]*,[ \t]*\w+)*)\)?[ \t]+in\b")
_KEYED: Final = re.compile(
    rf"[\"'](?P<name>[A-Za-z_]\w*)[\"']\s*+:\s*+(?P<value>{_COMPUTED}(?=\s*+[,}}])|[^\s,{{}}()\[\]:]++)\s*+(?=[,}}])"
)
_PARAMETER: Final = re.compile(r"(?P<name>[A-Za-z_]\w*+)\s*(?::[^=]*+)?(?:=(?P<value>.*))?", re.DOTALL)
_NAMED: Final = re.compile(r"(?P<name>[A-Za-z_]\w*+)\s*=(?!=)\s*(?P<value>.*)", re.DOTALL)
_WORD: Final = re.compile(r"[\"'](-*)([A-Za-z][\w\-]*)[\"']")
_IMPLIED: Final = {"store_true": "False", "store_false": "True"}


class Given(NamedTuple):
    """A name and where it is given a value. `value`: a constant, as it is written, or empty; `refers`: the last name of
    a plain reference, `lr` of `args.lr`, or empty for what is computed. `option`: of a command line."""

    name: str
    at: int
    value: str
    refers: str = ""
    option: bool = False


def signatures(source: SourceText) -> dict[str, list[str]]:
    """The parameters of the functions and classes of a file that may be given by their place."""
    found: dict[str, list[str]] = {}
    parameters = {one.begin: one for one in source.brackets if one.defined}
    begins = sorted(parameters)
    for number, head in enumerate(source.heads):
        end = source.heads[number + 1].begin if number + 1 < len(source.heads) else len(source.text)
        if head.kind == "class":
            fields = _ASSIGNED.finditer(source.text, head.begin, end) if head.name not in found else ()
            found.setdefault(head.name, [one["target"] for one in fields if "\n" not in one["target"]])
            continue
        bracket = next((parameters[begin] for begin in begins if head.begin < begin < end), None)
        names = _positional(source, bracket) if bracket is not None else []
        if head.owner:
            names = names[1:]  # self
        name = head.owner if head.name == "__init__" else head.name
        found[name] = names if head.name == "__init__" or name not in found or found[name] == names else []
    return found


def values(source: SourceText, own: Signatures) -> Iterator[Given]:
    """Everything in a file that gives a name a value. `own`: functions and classes of the script."""
    yield from _assigned(source)
    for bracket in source.brackets:
        if bracket.defined:
            yield from _defaults(source, bracket)
        elif bracket.called in OPTIONS or FLAGS.fullmatch(bracket.called):
            yield from _option(source, bracket)
        elif bracket.called in own or bracket.called in HOLDERS:
            yield from _called_with(source, bracket, own.get(bracket.called, ()))
    for match in _KEYED.finditer(source.text):
        if _CONSTANT.fullmatch(match["value"]):
            yield Given(match["name"], match.start("value"), match["value"])


def _assigned(source: SourceText) -> Iterator[Given]:
    for match in _ASSIGNED.finditer(source.text):
        if source.is_continued(match.start("target")):
            continue
        name = re.findall(r"[A-Za-z_]\w*", match["target"])[-1]
        if match["changed"]:
            yield Given(name, match.start("target"), "")
        else:
            field = _FIELD.fullmatch(match["value"].rstrip())
            at = match.start("value") + (field.start("value") if field else 0)
            yield _given(name, at, field["value"] if field else match["value"])
    for match in _TOGETHER.finditer(source.text):
        names, begin = match["targets"].split(","), match.start("values")
        texts = arguments(source, Bracket("", False, begin, match.end("values")))
        if not source.is_continued(match.start("targets")):
            for number, name in enumerate(names):
                at, text = texts[number] if len(texts) == len(names) else (begin, "?")
                yield _given(name.strip().rpartition(".")[2], at, text)
    for match in _LOOPED.finditer(source.text):
        for name in match["targets"].split(","):
            yield Given(name.strip(), match.start(), "")


def _defaults(source: SourceText, bracket: Bracket) -> Iterator[Given]:
    for at, text in arguments(source, bracket):
        match = _PARAMETER.fullmatch(text)
        if match is not None and match["value"] is not None:
            yield _given(match["name"], at + match.start("value"), match["value"])


def _called_with(source: SourceText, bracket: Bracket, parameters: Sequence[str]) -> Iterator[Given]:
    for number, (at, text) in enumerate(arguments(source, bracket)):
        match = _NAMED.fullmatch(text)
        if match is not None:
            yield _given(match["name"], at + match.start("value"), match["value"])
        elif text.startswith("*"):
            return
        elif number < len(parameters):
            yield _given(parameters[number], at, text)


def _option(source: SourceText, bracket: Bracket) -> Iterator[Given]:
    """An option of a command line and its default."""
    given = arguments(source, bracket)
    named = {match["name"]: (at + match.start("value"), match["value"]) for at, text in given
             if (match := _NAMED.fullmatch(text)) is not None}  # fmt: skip
    words = [match for _, text in given if (match := _WORD.fullmatch(text)) is not None]
    names = [one[2] for one in words if len(one[1]) > 1] or [one[2] for one in words]
    destination = _WORD.fullmatch(named["dest"][1]) if "dest" in named else None
    if destination is None and not names:
        return
    name = (destination[2] if destination is not None else names[0]).replace("-", "_")
    plain = [one for one in given if _NAMED.fullmatch(one[1]) is None]
    at, value = named.get("default", plain[1] if FLAGS.fullmatch(bracket.called) and len(plain) > 1 else (0, ""))
    action = named.get("action", (0, ""))
    implied = _IMPLIED.get(action[1].strip("\"'")) if not value else None
    found = Given(name, action[0], implied) if implied else _given(name, at or bracket.begin, value)
    yield found._replace(option=True)


def _positional(source: SourceText, bracket: Bracket) -> list[str]:
    names: list[str] = []
    for _, text in arguments(source, bracket):
        match = _PARAMETER.fullmatch(text)
        if match is None:  # a star: what follows is given by name
            if text == "/":
                continue
            break
        names.append(match["name"])
    return names


def _given(name: str, at: int, text: str) -> Given:
    text = text.strip()
    if _CONSTANT.fullmatch(text):
        return Given(name, at, text)
    reference = _REFERENCE.fullmatch(text)
    return Given(name, at, "", (reference[2] or reference[3] or reference[1]) if reference is not None else "")
