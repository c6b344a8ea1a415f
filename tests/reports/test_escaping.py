"""Nothing that a run contains gets out of the place where it is shown, in any format."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tracelyze.reports import escaping, render
from tracelyze.reports import html as html_report
from tracelyze.reports import text as text_report
from tracelyze.reports.html import page

from . import examples

ANY_TEXT = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=60),
    st.text(st.sampled_from("<>&\"'`/\\@#![](){}|*_~:-=+ \n\t\r\x00\x1b$%;w.1a\u202e\udc80"), max_size=60),
    st.lists(st.sampled_from(examples.HOSTILE), min_size=1, max_size=3).map("".join),
)
SEVERAL = st.lists(ANY_TEXT, min_size=1, max_size=5)
WORDS = {"text", "text_special", "softbreak", "code_inline", "strong_open", "strong_close", "em_open", "em_close"}
QUICK = settings(max_examples=60, deadline=None)


class Elements(HTMLParser):
    """What a browser would build: elements with their attributes, text, and the contents of scripts."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.names: set[tuple[str, str]] = set()
        self.links: set[str] = set()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words: list[str] = []
        self.declarations = 0
        self._raw: str | None = None
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {(tag, name) for name, _ in attrs} | {(tag, "")}
        self.links |= {value or "" for name, value in attrs if name in ("href", "src", "action", "xlink:href")}
        self._raw = tag if tag in ("script", "style") else None
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == self._raw:
            self._raw = None

    def handle_data(self, data: str) -> None:
        if self._raw == "script":
            attributes, content = self.scripts[-1]
            self.scripts[-1] = (attributes, content + data)
        elif self._raw is None:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.declarations += 1

    def unknown_decl(self, data: str) -> None:
        self.declarations += 1

    def handle_pi(self, data: str) -> None:
        self.declarations += 1


@pytest.fixture(scope="module")
def known() -> set[tuple[str, str]]:
    """The elements and attributes of pages about runs without anything unusual in them."""
    harmless = examples.hostile("word", "two words", "a line\nand another", "x" * 200)
    pages = [examples.chain(), examples.many(), examples.warning(), examples.healthy(), harmless]
    pages += [examples.crash(), examples.ranks(), examples.empty()]
    return set().union(*(Elements(render(one, "html")).names for one in pages))


def check_page(texts: list[str], known: set[tuple[str, str]]) -> None:
    diagnosis = examples.hostile(*texts)
    built = Elements(page.render(diagnosis, interactive=True, data=True, thinned=False))
    assert built.names <= known
    assert all(link.startswith("#") for link in built.links)
    assert built.declarations == 0
    kinds = [(one.get("type"), one.get("id")) for one, _ in built.scripts]
    data, packed = "application/json", "text/plain"
    assert kinds == [
        (None, None),
        (data, "diagnosis"),
        (None, None),
        (None, None),
        (None, None),
        (packed, "timelines"),
        (packed, "figures"),
        (packed, "plotly"),
    ]
    assert json.loads(built.scripts[1][1]) == json.loads(render(diagnosis, "json"))
    assert [content for (one, content) in built.scripts if "type" not in one] == [
        page.asset("theme.js"),
        page.asset("report.js"),
        page.asset("explore.js"),
        page.asset("lanes.js"),
    ]


def test_known_attacks_stay_words_on_the_page(known: set[tuple[str, str]]) -> None:
    check_page(list(examples.HOSTILE), known)
    words = "".join(Elements(render(examples.hostile(), "html")).words)
    assert "</script><script>alert(1)</script>" in words
    assert '"><img src=x onerror=alert(1)>' in words


@pytest.mark.slow
@QUICK
@given(SEVERAL)
def test_any_text_stays_words_on_the_page(known: set[tuple[str, str]], texts: list[str]) -> None:
    check_page(texts, known)


@QUICK
@given(ANY_TEXT)
def test_escaped_text_reads_as_itself(text: str) -> None:
    for markup in (f"<p>{escaping.html(text)}</p>", f'<p title="{escaping.html(text)}"></p>'):
        parsed = Elements(markup)
        assert {tag for tag, _ in parsed.names} == {"p"}
    assert "".join(Elements(f"<p>{escaping.html(text)}</p>").words) == escaping.printable(text)


@QUICK
@given(SEVERAL)
def test_a_terminal_gets_no_command(texts: list[str]) -> None:
    plain = text_report.render(examples.hostile(*texts))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", plain)
    colored = text_report.render(examples.hostile(*texts), color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain
    plain.encode()


@QUICK
@given(SEVERAL)
@example(["x" * 20_000])
def test_markdown_makes_no_link_image_html_mention_or_reference(texts: list[str]) -> None:
    comment = render(examples.hostile(*texts), "markdown")
    assert len(comment.encode()) < 60_000
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    outside_code: list[str] = []
    for block in reader.parse(comment):
        if block.type == "html_block":
            allowed = r"</?details>|<details><summary>[\w ,]+</summary>"
            assert all(re.fullmatch(allowed, line) for line in block.content.split("\n") if line.strip())
        for token in block.children or []:
            assert token.type in WORDS, (token.type, block.content)
            outside_code.append(token.content if token.type != "code_inline" else " ")
        outside_code.append("\n")
    words = "".join(outside_code)
    assert not re.search(r"@\w|#\d|https?://|www\.|\bGH-\d|mailto:", words, re.IGNORECASE)


@QUICK
@given(ANY_TEXT)
def test_markdown_reads_as_the_text(text: str) -> None:
    said = escaping.one_line(text)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(escaping.markdown(text))
    shown = "".join(part.content for block in tokens for part in block.children or [])
    assert shown.replace("\u200b", "").strip() == said
    code = MarkdownIt("commonmark").parse(escaping.markdown_code(text))
    inline = [part for block in code for part in block.children or []]
    assert [part.type for part in inline] == ["code_inline"]


@QUICK
@given(SEVERAL)
def test_json_and_sarif_are_strict_and_encodable(texts: list[str]) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    for name in ("json", "sarif"):
        report = render(examples.hostile(*texts), name)
        report.encode()
        assert json.loads(report, parse_constant=refuse)


def test_a_page_that_would_be_too_large_is_thinned_until_it_fits() -> None:
    full = len(html_report.render(examples.many()).encode())
    for limit in (full - 1, 120_000, 100_000):
        small = html_report.render(examples.many(), limit=limit)
        assert len(small.encode()) <= limit
        assert "thinned" in "".join(Elements(small).words)


def test_what_is_cut_is_longer_than_the_note_that_says_so() -> None:
    assert escaping.shortened("a" * 121, 120) == "a" * 121
    assert escaping.shortened("a" * 200, 120) == "a" * 120 + "… (80 more characters)"
