"""The head of a page: what a browser may do with it, its title, its style and its first script.

Only the scripts named in the policy may run, whatever the strings of a run contain, and nothing may be loaded or sent.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from tracelyze.reports.markup import Markup, element


def head(title: str, version: str, style: str, first: str, allowed: Iterable[str] = (), images: str = "") -> Markup:
    """The element `head` with the script `first` in it; `allowed` are hashes of more scripts, `images` a directive."""
    scripts = " ".join([source_hash(first.encode()), *allowed])
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; {images}base-uri 'none'; "
        "form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"tracelyze {version}"),
        element("title", f"{title} · tracelyze"),
        element("style", Markup(style)),
        element("script", Markup(first)),
    )


def source_hash(script: bytes) -> str:
    """A script as the policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"


@cache
def asset(name: str) -> str:
    """The text of a file of tracelyze/reports/assets."""
    return (files("tracelyze.reports") / "assets" / name).read_text(encoding="utf-8")
