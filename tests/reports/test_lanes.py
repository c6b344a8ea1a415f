"""Timelines of single steps: complete as a still picture, small, and live in a real browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tracelyze import reports
from tracelyze.diagnosis import KINDS, Chart, Line, Picture
from tracelyze.reports import html as html_report
from tracelyze.reports import json as json_report
from tracelyze.reports import render
from tracelyze.reports.drawing import lanes, svg

from . import examples, pictures
from .chromium import BINARY, Chromium
from .test_escaping import Elements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

in_browser = pytest.mark.skipif(BINARY is None, reason="no chromium binary is installed")

# What the view of the first timeline shows, from the drawing itself: left edge and width, of 100,000 units.
SHOWN = "document.querySelector('.slices').getAttribute('viewBox').split(' ').map(Number)"
READY = """new Promise((done) => {
  const look = () => document.documentElement.dataset.lanes === "ready" ? done(true) : setTimeout(look, 20);
  look();
})"""
MOVE = """(() => {
  const drawing = document.querySelector('.lanes .drawing');
  const box = document.querySelector('.lanes');
  const frame = drawing.getBoundingClientRect();
  const send = (type, share, y, more) => box.dispatchEvent(new PointerEvent(type, {
    pointerId: 1, pointerType: 'mouse', bubbles: true, cancelable: true, button: 0,
    clientX: frame.left + share * frame.width, clientY: frame.top + y, ...more,
  }));
  const wheel = (share, deltaY, more) => box.dispatchEvent(new WheelEvent('wheel', {
    bubbles: true, cancelable: true, deltaY,
    clientX: frame.left + share * frame.width, clientY: frame.top + 30, ...more,
  }));
  const key = (name) => box.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
  %s
})()"""
TIP = "(() => { const tip = document.querySelector('.lane-tip'); return tip.hidden ? '' : tip.innerText; })()"


def step() -> Any:
    timeline = pictures.timeline(lambda: "name")
    return replace(timeline, names=["loader", "stack", "gemm", "Memcpy"])


def test_every_slice_that_is_wide_enough_is_drawn_where_it_is() -> None:
    drawing = lanes.draw(step(), "t")
    strokes = re.findall(r'<path d="([^"]+)" class="k-compute', drawing)
    at: list[tuple[float, float]] = []
    for path in strokes:
        end = 0.0
        for command, begin, length in re.findall(r"([Mm])([-\d.]+) [-\d.]+h([\d.]+)", path):
            begins = float(begin) + (end if command == "m" else 0.0)
            end = begins + float(length)
            at.append((begins, end))
    wanted = [((50_000 + 5_000 * index) / 50, (54_000 + 5_000 * index) / 50) for index in range(10)]
    assert sorted(at) == [pytest.approx(pair, abs=1) for pair in wanted]


def test_the_still_picture_says_names_kinds_and_numbers() -> None:
    said = " ".join(Elements(render(examples.traced(), "html")).words)
    for words in (
        "volta_sgemm_64x64_nt",  # inside its slices
        "waiting for the data loader",  # in the legend
        "400 activities of about 24 µs or less are drawn together with their neighbours, as 10 slices",
        "main thread",
        "enumerate(DataLoader) (50 ms)",  # in the table
        "void cudnn::dgrad_engine<float, 512>(int)",
        "and 54 more, 23% of the device time",
    ):
        assert words in said


def test_few_bars_lie_in_rows_and_reach_the_sum() -> None:
    page = render(examples.traced(), "html")
    rows = re.findall(r'<div class="bar-row">(.*?)</div></div>', page)
    assert [re.findall(r'class="segment (k-[\w-]+)" style="flex:(\d+)', row) for row in rows] == [
        [("k-compute", "50"), ("k-input", "40"), ("k-other", "10")],
        [("k-compute", "40"), ("k-input", "50")],
        [("k-input", "10"), ("k-other", "90")],
    ]
    assert [re.findall(r"width:([\d.]+)%", row) for row in rows] == [["100.00"], ["90.00"], ["100.00"]]


def test_many_bars_stand_on_each_other_and_reach_the_sum() -> None:
    steps = [float(step) for step in range(10)]
    parts = (("compute", 50.0), ("input", 40.0), ("no such kind", 10.0))
    lines = [Line(kind, [height for _ in steps], "bars", kind) for kind, height in parts]
    drawing = svg.draw(Chart("Where each step went", "step", "ms", steps, lines, over="profiled-steps", unit="ms"))
    paths = re.findall(r'<path d="([^"]+)" class="bars (k-[\w-]+)"', drawing)
    assert [kind for _, kind in paths] == ["k-compute", "k-input", "k-other"]
    spans = [[float(y) for y in re.findall(r"[V ]([\d.]+)", path)] for path, _ in paths]
    # The first bar: 50, 40 and 10 of 100, in a drawing of 300 units.
    assert [span[:2] for span in spans] == [
        [pytest.approx(300), pytest.approx(150)],
        [pytest.approx(150), pytest.approx(30)],
        [pytest.approx(30), pytest.approx(0)],
    ]


def test_the_page_carries_all_slices_packed_and_json_carries_none() -> None:
    diagnosis = examples.traced()
    page = Elements(render(diagnosis, "html"))
    ((_, packed),) = [(one, content) for one, content in page.scripts if one.get("id") == "timelines"]
    found = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert [len(lane["start"]) for lane in found[0]["lanes"]] == [20, 1, 2]
    assert found[0]["lanes"][0]["merged"][:2] == [1, 40]
    assert "picture" not in json_report.contract(diagnosis)


def test_a_page_without_timelines_carries_no_script_for_them() -> None:
    page = Elements(render(examples.chain(), "html"))
    assert len([one for one, _ in page.scripts if "type" not in one]) == 2


def test_timelines_go_last_when_a_page_must_be_smaller() -> None:
    diagnosis = replace(examples.traced(), picture=Picture([step()] * 40, []))
    full = html_report.render(diagnosis)
    small = html_report.render(diagnosis, limit=100_000)
    assert "data-timeline" in full
    assert "data-timeline" not in small
    assert len(small.encode()) <= 100_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reports.write(examples.traced(), tmp_path_factory.mktemp("page") / "traced.html")


@pytest.fixture
def opened(browser: Chromium, page: Path) -> Chromium:
    browser.open(page)
    browser.evaluate(READY)
    return browser


@in_browser
@pytest.mark.parametrize(
    ("act", "left", "width"),
    [
        ("document.querySelectorAll('.lane-controls button')[0].click()", 25_000, 50_000),
        ("key('+'); key('+')", 37_500, 25_000),
        ("key('+'); key('ArrowLeft')", 15_000, 50_000),
        ("key('+'); key('ArrowRight'); key('ArrowRight'); key('ArrowRight')", 50_000, 50_000),
        ("wheel(0.5, -300 * Math.LN2, { ctrlKey: true })", 25_000, 50_000),
        ("send('pointerdown', 0.2, 30); send('pointermove', 0.4, 30); send('pointerup', 0.4, 30)", 20_000, 20_000),
        ("for (let n = 0; n < 20; n += 1) key('+')", 48_437.5, 3_125),
    ],
)
def test_zooming(opened: Chromium, act: str, left: float, width: float) -> None:
    whole = opened.evaluate(SHOWN)
    opened.evaluate(MOVE % act)
    shown = opened.evaluate(SHOWN)
    assert (shown[0], shown[2]) == (pytest.approx(left, abs=120), pytest.approx(width, abs=120))
    opened.evaluate(MOVE % "key('Home')")
    assert opened.evaluate(SHOWN) == whole
    assert opened.console == []


@in_browser
def test_a_wheel_that_only_passes_over_scrolls_the_page(opened: Chromium) -> None:
    whole = opened.evaluate(SHOWN)
    assert opened.evaluate(MOVE % "return wheel(0.5, -200)")  # not prevented
    assert opened.evaluate(SHOWN) == whole


@in_browser
def test_names_follow_the_pointer_and_a_tap(opened: Chromium) -> None:
    first = lanes.HEAD + lanes.ROW / 2
    opened.evaluate(MOVE % f"send('pointermove', 0.52, {first})")
    assert opened.evaluate(TIP).split("\n") == [
        "volta_sgemm_64x64_nt",
        "4 ms, from 50 ms",
        "computing · stream 7, mostly computing",
        "launched 30 ms before",
    ]
    opened.evaluate(MOVE % f"send('pointermove', 0.5403, {first})")
    assert opened.evaluate(TIP).split("\n")[:2] == ["40 short ones, most time in Memcpy DtoD", "45 µs within 90 µs"]
    opened.evaluate(MOVE % "send('pointermove', 0.2, 2)")
    assert opened.evaluate(TIP) == ""
    tap = "{ pointerType: 'touch' }"
    second = first + lanes.HEAD + lanes.ROW + lanes.GAP
    opened.evaluate(MOVE % f"send('pointerdown', 0.2, {second}, {tap}); send('pointerup', 0.2, {second}, {tap})")
    assert opened.evaluate(TIP).startswith("enumerate(DataLoader)")


@in_browser
def test_zoomed_in_more_names_and_a_finer_scale_are_shown(opened: Chromium) -> None:
    ticks = "[...document.querySelector('.scale').querySelectorAll('.tick')].map((one) => one.textContent)"
    assert opened.evaluate(ticks) == ["0", "20", "40", "60", "80", "100"]
    opened.evaluate(MOVE % "send('pointerdown', 0.5, 30); send('pointermove', 0.6, 30); send('pointerup', 0.6, 30)")
    assert opened.evaluate(ticks) == ["50", "52", "54", "56", "58", "60"]
    names = "[...document.querySelectorAll('.slice-names')[0].querySelectorAll('text')].map((one) => one.textContent)"
    assert opened.evaluate(names) == ["volta_sgemm_64x64_nt", "volta_sgemm_64x64_nt"]


TYPE = """(() => {
  const box = document.querySelector('.lane-search');
  box.value = %s;
  box.dispatchEvent(new Event('input'));
  return document.querySelector('.lane-controls output').textContent;
})()"""
ENTER = """document.querySelector('.lane-search').dispatchEvent(
  new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }))"""


@in_browser
def test_a_search_counts_fades_the_rest_and_goes_from_one_to_the_next(opened: Chromium) -> None:
    whole = opened.evaluate(SHOWN)
    assert opened.evaluate(TYPE % "'SGEMM'") == "10 slices, 40 ms. Enter shows the next."
    faded = "document.querySelectorAll('.slices path.faded').length"
    assert opened.evaluate(faded) > 0
    opened.evaluate(ENTER)
    first = opened.evaluate(SHOWN)
    assert first[2] == pytest.approx(24_000, abs=120)  # six times the kernel, of 100,000 units
    opened.evaluate(ENTER)
    assert opened.evaluate(SHOWN)[0] == pytest.approx(first[0] + 5_000, abs=120)
    assert opened.evaluate(TYPE % "'nothing of the kind'") == "No slice has this name."
    opened.evaluate(TYPE % "''")
    assert opened.evaluate(faded) == 0
    opened.evaluate(MOVE % "key('Home')")
    assert opened.evaluate(SHOWN) == whole
    assert opened.console == []


@in_browser
def test_an_arrow_leads_from_the_launch_to_the_kernel(opened: Chromium) -> None:
    ends = "(one) => [one.getAttribute('x1'), one.getAttribute('x2')]"
    arrow = f"[...document.querySelectorAll('.lane-arrow line')].map({ends})"
    first = lanes.HEAD + lanes.ROW / 2
    opened.evaluate(MOVE % f"send('pointermove', 0.52, {first})")
    assert opened.evaluate(arrow) == [["20.000%", "50.000%"]]
    opened.evaluate(MOVE % "send('pointermove', 0.2, 2)")
    assert opened.evaluate(arrow) == []


def deep() -> Any:
    """The traced run, whose host thread shows its outer level at first; its kernels say their grid."""
    traced = examples.traced()
    assert traced.picture is not None
    first, *rest = traced.picture.timelines
    stream, loader, host = first.lanes
    closed = replace(host, shown=1)
    said = replace(stream, detail=[0 if count == 1 else -1 for count in stream.merged])
    timeline = replace(first, lanes=[said, loader, closed], details=["grid 8 \u00d7 1 \u00d7 1"])
    return replace(traced, picture=replace(traced.picture, timelines=[timeline, *rest]))


ROWS = "Number(document.querySelectorAll('.lanes .lane-ground')[2].getAttribute('height'))"
NAME = "document.querySelectorAll('.lanes .lane-name')[2].textContent"
ALL_LEVELS = "[...document.querySelectorAll('.lane-controls button')].find((one) => one.textContent === 'All levels')"


def test_inner_levels_wait_until_they_are_asked_for() -> None:
    timeline = deep().picture.timelines[0]
    placed, _ = lanes.place(timeline)
    assert [(one.rows, one.levels) for one in placed] == [(1, 1), (1, 1), (1, 2)]
    assert placed[2].name.endswith(", the outer 1 of 2 levels")
    assert lanes.draw(timeline, "t").count("k-operator") == 0


@in_browser
def test_a_lane_opens_by_its_name_by_a_button_and_by_a_search(browser: Chromium, tmp_path: Path) -> None:
    browser.open(reports.write(deep(), tmp_path / "deep.html"))
    browser.evaluate(READY)
    assert browser.evaluate(ROWS) == lanes.ROW
    click = "send('pointerdown', 0.01, at); send('pointerup', 0.01, at)"
    name = "const at = Number(document.querySelectorAll('.lane-name')[2].getAttribute('y')) - 4; "
    browser.evaluate(MOVE % (name + click))
    assert browser.evaluate(ROWS) == 2 * lanes.ROW
    assert browser.evaluate(NAME).endswith(", all 2 levels")
    browser.evaluate(MOVE % (name + click))
    assert browser.evaluate(ROWS) == lanes.ROW
    browser.evaluate(f"{ALL_LEVELS}.click()")
    assert browser.evaluate(ROWS) == 2 * lanes.ROW
    assert browser.evaluate(f"{ALL_LEVELS}.getAttribute('aria-pressed')") == "true"
    browser.evaluate(f"{ALL_LEVELS}.click()")
    browser.evaluate(TYPE % "'enumerate'")  # the loader, and what is below it in the host's lane
    assert browser.evaluate(ROWS) == 2 * lanes.ROW
    assert browser.console == []


@in_browser
def test_a_slice_says_what_its_event_says_here_and_in_the_saved_trace(browser: Chromium, tmp_path: Path) -> None:
    browser.open(reports.write(deep(), tmp_path / "deep.html"))
    browser.evaluate(READY)
    browser.evaluate(MOVE % f"send('pointermove', 0.52, {lanes.HEAD + lanes.ROW / 2})")
    assert "grid 8 \u00d7 1 \u00d7 1" in browser.evaluate(TIP).split("\n")
    browser.evaluate("URL.createObjectURL = (blob) => { window.saved = blob; return 'blob:nothing'; }; 0")
    browser.evaluate("HTMLAnchorElement.prototype.click = function () { window.named = this.download; }; 0")
    browser.evaluate("[...document.querySelector('.lane-controls').querySelectorAll('button')].at(-1).click()")
    events = json.loads(browser.evaluate("window.saved.text()"))["traceEvents"]
    assert {"detail": "grid 8 \u00d7 1 \u00d7 1"} in [one.get("args") for one in events if one["ph"] == "X"]
    begins = {one["id"]: one for one in events if one["ph"] == "s"}
    ends = {one["id"]: one for one in events if one["ph"] == "f"}
    assert len(begins) == len(ends) > 0
    assert all(begins[flow]["ts"] <= ends[flow]["ts"] for flow in begins)
    assert browser.console == []


@in_browser
def test_what_is_shown_is_saved_as_a_trace(opened: Chromium) -> None:
    opened.evaluate("URL.createObjectURL = (blob) => { window.saved = blob; return 'blob:nothing'; }; 0")
    opened.evaluate("HTMLAnchorElement.prototype.click = function () { window.named = this.download; }; 0")
    opened.evaluate(MOVE % "send('pointerdown', 0.5, 30); send('pointermove', 0.6, 30); send('pointerup', 0.6, 30)")
    opened.evaluate("[...document.querySelector('.lane-controls').querySelectorAll('button')].at(-1).click()")
    saved = json.loads(opened.evaluate("window.saved.text()"))
    slices = [one for one in saved["traceEvents"] if one["ph"] == "X"]
    assert {one["args"]["name"] for one in saved["traceEvents"] if one["ph"] == "M"} >= {"stream 7, mostly computing"}
    assert [one["ts"] for one in slices if one["name"] == "volta_sgemm_64x64_nt"] == [50_000, 55_000, 60_000]
    assert opened.evaluate("window.named").endswith(".json")


@in_browser
def test_paper_gets_the_whole_step(opened: Chromium) -> None:
    whole = opened.evaluate(SHOWN)
    opened.evaluate(MOVE % "key('+')")
    zoomed = opened.evaluate(SHOWN)
    opened.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.evaluate(SHOWN) == whole
    opened.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.evaluate(SHOWN) == zoomed


@in_browser
def test_hostile_names_stay_words_in_the_live_picture(browser: Chromium, tmp_path: Path) -> None:
    path = reports.write(examples.hostile(), tmp_path / "hostile.html")
    browser.open(path)
    browser.evaluate(READY)
    first = lanes.HEAD + lanes.ROW / 2
    browser.evaluate(MOVE % f"key('+'); for (let x = 0; x < 1; x += 0.01) send('pointermove', x, {first})")
    assert browser.evaluate("document.querySelectorAll('.lanes img, .lanes script, .lanes [onmouseover]').length") == 0
    assert browser.evaluate("document.querySelectorAll('main script').length") == 0
    assert browser.console == []
    assert [address for address in browser.requests if not address.startswith("file:")] == []


@in_browser
def test_without_script_the_picture_is_complete_and_has_no_dead_buttons(browser: Chromium, page: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        drawn = browser.evaluate("document.querySelectorAll('.slices path').length")
        buttons = browser.evaluate("document.querySelectorAll('.lane-controls').length")
        text = browser.evaluate("document.body.innerText")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert drawn >= 6
    assert buttons == 0
    assert "In numbers" in text


@in_browser
def test_stacked_bars_open_live(browser: Chromium, tmp_path: Path) -> None:
    steps = [float(step) for step in range(400)]
    lines = [Line(kind, [1.0 for _ in steps], "bars", kind) for kind in ("compute", "copy", "input")]
    long = replace(
        examples.traced(),
        charts=[Chart("Where each step went", "step", "ms", steps, lines, over="profiled-steps", unit="ms")],
    )
    opened = browser
    opened.open(reports.write(long, tmp_path / "bars.html"))
    opened.evaluate("document.querySelector('.explore').click()")
    opened.evaluate("""new Promise((done) => {
      const look = () => document.querySelector(".canvas.live .barlayer .trace") ? done(true) : setTimeout(look, 20);
      look();
    })""")
    assert opened.evaluate("document.querySelectorAll('.canvas.live .barlayer .trace').length") == 3
    points = "[...document.querySelectorAll('.canvas.live .barlayer .point path')]"
    assert opened.evaluate(f"new Set({points}.map((one) => one.style.fill)).size") == 3
    assert opened.console == []


CONTRAST = """((kinds) => {
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d', { willReadFrequently: true });
  const luminance = (color) => {
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    const [red, green, blue] = [...context.getImageData(0, 0, 1, 1).data].map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const path = document.querySelector('.slices path');
  const ink = luminance(getComputedStyle(document.querySelector('.slice-names text')).fill);
  return kinds.flatMap((kind) => ['t0', 't1'].map((shade) => {
    path.setAttribute('class', `k-${kind} ${shade}`);
    const ground = luminance(getComputedStyle(path).stroke);
    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
  }));
})(%s)"""


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_names_can_be_read_on_every_colour(browser: Chromium, page: Path, scheme: str) -> None:
    browser.open(page, scheme=scheme)
    browser.evaluate(READY)
    kinds = [*KINDS, "other"]
    found = browser.evaluate(CONTRAST % json.dumps(kinds))
    assert len(found) == 2 * len(kinds)
    assert min(found) >= 4.5, dict(zip([kind for kind in kinds for _ in range(2)], found, strict=True))
