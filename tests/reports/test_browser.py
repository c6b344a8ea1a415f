"""The page in a real browser: words, themes, no errors, no network, interactive charts, nothing of a run executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracelyze import reports

from . import examples
from .chromium import BINARY, Chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(BINARY is None, reason="no chromium binary is installed")


OPENED = """new Promise((done) => {
  const button = document.querySelector(".zoom");
  const look = () => button.textContent.startsWith("Back") ? done(true) : setTimeout(look, 20);
  look();
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: reports.write(make(), folder / f"{name}.html") for name, make in examples.ALL.items()}


@pytest.mark.parametrize("name", examples.ALL)
def test_every_page_loads_without_error_request_or_sideways_scrolling(
    browser: Chromium, pages: dict[str, Path], name: str
) -> None:
    for width in (380, 1200):
        browser.open(pages[name], width=width)
        assert browser.console == []
        assert browser.requests == [pages[name].as_uri()]
        browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_the_answer_is_the_first_thing_on_the_screen(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["chain"])
    assert browser.evaluate("document.querySelector('h1').innerText") == "Root cause: Gradients are never cleared"
    assert browser.evaluate("document.querySelector('h1').getBoundingClientRect().bottom") < 400
    assert browser.evaluate("document.title").startswith("Root cause: Gradients are never cleared")


def test_nothing_of_a_run_is_executed(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert browser.evaluate("document.querySelectorAll('main img, main script, main [onmouseover]').length") == 0
    assert browser.evaluate("document.querySelectorAll('a[href]:not([href^=\"#\"])').length") == 0


def test_a_script_that_got_in_is_refused(browser: Chromium, pages: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    injected = "<script>window.injected = 1</script><img src=x onerror='window.injected = 1'></main>"
    page.write_text(pages["chain"].read_text(encoding="utf-8").replace("</main>", injected), encoding="utf-8")
    browser.open(page)
    assert browser.evaluate("window.injected") is None
    assert any("Content Security Policy" in line for line in browser.console)


@pytest.mark.parametrize(
    ("scheme", "query", "dark"),
    [("light", "", False), ("dark", "", True), ("light", "?theme=dark", True), ("dark", "?theme=light", False)],
)
def test_themes(browser: Chromium, pages: dict[str, Path], scheme: str, query: str, dark: bool) -> None:
    browser.open(pages["chain"], query, scheme=scheme)
    red = "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
    assert (browser.evaluate(red) < 128) == dark
    browser.evaluate("document.getElementById('theme').click()")
    assert (browser.evaluate(red) < 128) != dark
    browser.evaluate("localStorage.clear()")


@pytest.mark.parametrize("name", ["chain", "hostile"])
def test_interactive_charts_open_and_close(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    assert browser.evaluate("typeof window.Plotly") == "undefined"
    browser.evaluate("document.querySelector('.zoom').click()")
    browser.evaluate(OPENED)
    assert browser.evaluate("document.querySelectorAll('.canvas.live .scatterlayer .trace').length") == 2
    assert browser.evaluate("document.querySelectorAll('.canvas.live a[href]:not(.modebar-btn)').length") == 0
    # Its own button that sends the chart to a server is not offered.
    offered = "[...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)"
    assert browser.evaluate(offered) == ["Download plot as a PNG", "Zoom", "Pan", "Reset axes"]
    browser.evaluate("document.getElementById('theme').click()")
    browser.evaluate("localStorage.clear()")
    browser.evaluate("document.querySelector('.zoom').click()")
    assert browser.evaluate("document.querySelectorAll('.canvas.live').length") == 0
    assert browser.evaluate("document.querySelectorAll('figure svg.drawing').length") > 0
    assert browser.console == []
    assert [address for address in browser.requests if not address.startswith(("file:", "data:", "blob:"))] == []


def test_a_link_opens_the_folded_finding(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["chain"], "#loss-nonfinite")
    assert browser.evaluate("document.getElementById('loss-nonfinite').open")
    assert not browser.evaluate("document.getElementById('exploding-gradients').open")


def test_words_and_charts_need_no_script(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["chain"])
        text = browser.evaluate("document.body.innerText")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    for words in (
        "Root cause: Gradients are never cleared",
        "optimizer.zero_grad()",
        "31 checks passed",
        "What followed",
    ):
        assert words in text
    assert "Zoom and hover" not in text


def test_paper_shows_what_is_folded(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["chain"])
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate("document.querySelectorAll('details:not([open])').length") > 0
