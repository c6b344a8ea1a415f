"""The page in a real browser: words, themes, no errors, no network, interactive charts, nothing of a run executed."""

from __future__ import annotations

import base64
import re
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
  const button = document.querySelector(".explore");
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


LARGE_ON_PAPER = """[...document.querySelectorAll('main *')]
  .filter((one) => !one.closest('h1, h2, .lead, .key-facts') && one.checkVisibility())
  .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .filter((one) => parseFloat(getComputedStyle(one).fontSize) > 12)
  .map((one) => `${one.tagName}.${one.className}: ${one.textContent.slice(0, 60)}`)"""


@pytest.mark.parametrize("name", examples.ALL)
def test_on_paper_only_the_head_is_larger_than_the_rest(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name], width=718)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.evaluate(LARGE_ON_PAPER) == []
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")


BELOW = """[...document.querySelectorAll('.ran, .badge, h1, .lead, .key-facts, .seen, .fix, .area')]
  .slice(0, 8).map((part) => part.getBoundingClientRect().bottom)"""


def test_the_answer_is_on_the_first_screen(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["chain"], width=1400)
    assert browser.evaluate("document.querySelector('h1').innerText") == "Gradients are never cleared"
    assert browser.evaluate("document.title").startswith("Gradients are never cleared: train.py")
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    # What ran, the verdict, the headline, the facts, the line, its fix and the first chart, at 1400 by 900.
    assert max(browser.evaluate(BELOW)) <= 900
    browser.open(pages["chain"], width=400)
    fix, seen = (f"document.querySelector('.{name}').getBoundingClientRect().top" for name in ("fix", "seen"))
    assert browser.evaluate(fix) < browser.evaluate(seen)  # an edit comes before the line on a phone
    assert browser.evaluate(fix) < 800


def test_the_crosshair_reads_values_with_pointer_and_keys(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["ranks"])
    said = "document.querySelector('.chart output').textContent"
    press = "document.querySelector('[data-crosshair]').dispatchEvent(new KeyboardEvent('keydown', { key: '%s' }))"
    browser.evaluate(press % "End")
    assert browser.evaluate(said).startswith("step 300: rank 0 9")
    browser.evaluate(press % "ArrowLeft")
    assert browser.evaluate(said).startswith("step 299: ")
    browser.evaluate("""(() => {
      const area = document.querySelector('.area'), box = area.getBoundingClientRect();
      area.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width / 2, clientY: box.top + 9 }));
    })()""")
    assert browser.evaluate(said).startswith("step 15")
    browser.evaluate("document.querySelector('.area').dispatchEvent(new PointerEvent('pointerleave'))")
    assert browser.evaluate(said) == ""


def test_the_filter_opens_what_matches_and_says_how_many(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.open(pages["chain"])
    browser.evaluate("""(() => {
      const filter = document.getElementById('filter');
      filter.value = 'rank';
      filter.dispatchEvent(new Event('input'));
    })()""")
    assert browser.evaluate("document.getElementById('hits').textContent") == "3 of 36 checks shown"
    assert browser.evaluate("[...document.querySelectorAll('.group[open]')].length") == 1


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


@pytest.mark.parametrize("name", ["ranks", "hostile"])
def test_interactive_charts_open_and_close(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name])
    assert browser.evaluate("typeof window.Plotly") == "undefined"
    browser.evaluate("document.querySelector('.explore').click()")
    browser.evaluate(OPENED)
    lines = {"ranks": 8, "hostile": 2}[name]
    assert browser.evaluate("document.querySelectorAll('.canvas.live .scatterlayer .trace').length") == lines
    if name == "ranks":  # the mark, the limit, the healthy side, and ticks in percent stay
        assert browser.evaluate("document.querySelectorAll('.canvas.live .shapelayer path').length") == 3
        assert browser.evaluate("document.querySelector('.canvas.live .ytick').textContent").endswith("%")
    assert browser.evaluate("document.querySelectorAll('.canvas.live a[href]:not(.modebar-btn)').length") == 0
    # Its own button that sends the chart to a server is not offered.
    offered = "[...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)"
    assert browser.evaluate(offered) == ["Download plot as a PNG", "Zoom", "Pan", "Reset axes"]
    browser.evaluate("document.getElementById('theme').click()")
    browser.evaluate("localStorage.clear()")
    browser.evaluate("document.querySelector('.explore').click()")
    assert browser.evaluate("document.querySelectorAll('.canvas.live').length") == 0
    assert browser.evaluate("document.querySelectorAll('figure .area svg').length") > 0
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
        "Gradients are never cleared",
        "Root cause",
        "optimizer.zero_grad()",
        "31 passed",
        "What followed",
    ):
        assert words in text
    for control in ("Zoom and pan", "Copy", "Dark theme", "Point at"):
        assert control not in text


def test_it_prints_on_few_sheets_with_folds_closed(browser: Chromium, pages: dict[str, Path]) -> None:
    for name in ("chain", "healthy", "crash", "warning"):
        browser.open(pages[name])
        sheet = browser.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
        assert 1 <= len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(sheet))) <= 4
