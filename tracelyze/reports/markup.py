"""HTML and SVG as nested calls, in which text is escaped unless it came out of such a call."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from tracelyze.reports import escaping

if TYPE_CHECKING:
    from collections.abc import Iterable

VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "wbr"})
SELF_CLOSING = frozenset({"circle", "line", "path", "polygon", "rect", "use"})


class Markup(str):
    """Text that is HTML already. Only this module and constant templates make it."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | int | float | Iterable[Child] | None"


def element(tag: str, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """`<tag attributes>children</tag>`.

    Attributes that are None or False are left out, True writes the bare name; `class_` and `for_` lose their
    underscore, `aria_label` becomes `aria-label`. Children that are None are left out.
    """
    opened = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}"
    if tag in VOID:
        return Markup(f"{opened}>")
    inside = join(children)
    if tag in SELF_CLOSING and not inside:
        return Markup(f"{opened}/>")
    return Markup(f"{opened}>{inside}</{tag}>")


def join(children: Child) -> Markup:
    """All children one after another, escaped where they are not markup."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int | float):
        return Markup(escaping.html(children))
    return Markup("".join(join(child) for child in children))


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaping.html(value)}"'


def with_code(text: str) -> Child:
    """Text in which what stands between backticks is set as code."""
    return [element("code", part) if index % 2 else part for index, part in enumerate(re.split(r"`([^`\n]+)`", text))]
