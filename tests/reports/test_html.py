"""The page: what it says, in which order, how large it is, and that it asks nothing of anybody."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files

import pytest

from tracelyze.diagnosis import Chart, Line
from tracelyze.reports import html as html_report
from tracelyze.reports import render
from tracelyze.reports.html import thinned

from . import examples
from .test_escaping import Elements

ASSETS = files("tracelyze.reports") / "assets"


def words(name: str) -> str:
    return " ".join(Elements(render(examples.ALL[name](), "html")).words)


@pytest.mark.parametrize("name", examples.ALL)
def test_size_stays_far_below_a_megabyte(name: str) -> None:
    assert len(render(examples.ALL[name](), "html").encode()) < 1_000_000


@pytest.mark.parametrize("name", examples.ALL)
def test_same_diagnosis_same_bytes(name: str) -> None:
    assert render(examples.ALL[name](), "html") == render(examples.ALL[name](), "html")


@pytest.mark.parametrize("name", ["chain", "warning", "healthy", "empty", "many"])
def test_no_reference_leads_out_of_the_file(name: str) -> None:
    page = Elements(render(examples.ALL[name](), "html"))
    assert all(link.startswith("#") for link in page.links)
    css = (ASSETS / "report.css").read_text(encoding="utf-8")
    assert "url(" not in css
    assert "@import" not in css


def test_links_within_the_page_have_targets() -> None:
    for make in examples.ALL.values():
        page = render(make(), "html")
        targets = set(re.findall(r' id="([^"]+)"', page))
        assert {link[1:] for link in Elements(page).links} <= targets
        identities = re.findall(r' id="([^"]+)"', page)
        assert len(identities) == len(set(identities))


def test_policy_allows_exactly_the_scripts_of_the_page() -> None:
    page = render(examples.chain(), "html")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in html.unescape(policy[1]).split("; "))
    assert rules["default-src"] == "'none'"
    runnable = [content for one, content in Elements(page).scripts if "type" not in one]
    plotly = [line for line in (ASSETS / "vendor/plotly/VERSION").read_text().splitlines() if line.startswith("sha256")]
    hashes = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in runnable]
    hashes.append(base64.b64encode(bytes.fromhex(plotly[0].split(": ")[1])).decode())
    assert rules["script-src"] == " ".join(f"'sha256-{one}'" for one in hashes)


def test_order_is_cause_then_consequences_then_the_rest() -> None:
    said = words("chain").split("tracelyze", 1)[1]  # after the title of the window
    order = [
        "Something is seriously wrong with this run.", "Root cause: ", "About this record", "What to change",
        "Evidence",
        "When this would be a false alarm", "What followed: 3 consequences", "The loss is not a number",
        "What was checked", "The run at a glance", "python train.py --lr 3e-4", "How to read this report",
    ]  # fmt: skip
    positions = [said.index(part) for part in order]
    assert positions == sorted(positions)


def test_every_finding_appears_once_and_none_is_lost() -> None:
    page = render(examples.many(), "html")
    assert len(re.findall(r'<article id="', page)) + len(re.findall(r"card consequence", page)) == 25
    assert 'id="gradient-spikes"' in page
    assert 'id="gradient-spikes-2"' in page
    assert 'id="rule-10"' in page  # its cause is not among the findings


def test_numbers_that_are_none_are_named() -> None:
    said = words("chain")
    assert "NaN" in said
    assert "Inf" in said


def test_a_healthy_run_says_what_was_looked_at_and_what_was_not() -> None:
    said = words("healthy")
    assert "No fault found" in said
    assert "44 checks passed" in said
    assert "5 checks could not be made" in said
    assert "the run has one rank" in said
    assert "Root cause" not in said.replace("A root cause", "")


def test_an_empty_run_is_not_called_healthy() -> None:
    said = words("empty")
    assert "Nothing could be checked" in said
    assert "No fault found" not in said
    assert "OK" not in said.split()


def test_a_page_without_charts_carries_no_library() -> None:
    assert len(render(examples.empty(), "html")) < 60_000


def test_the_diagnosis_is_in_the_page_as_data() -> None:
    for make in examples.ALL.values():
        scripts = Elements(render(make(), "html")).scripts
        data = next(content for one, content in scripts if one.get("id") == "diagnosis")
        assert json.loads(data) == json.loads(render(make(), "json"))


def test_thinning_keeps_ends_extremes_and_alignment() -> None:
    y: list[float | None] = [None if index % 7 == 0 else float(index % 100) for index in range(10_000)]
    y[4321], y[8765] = 1e9, -1e9
    chart = Chart("t", "x", "y", [float(index) for index in range(10_000)], [Line("a", y), Line("b", y[::-1])])
    diagnosis = thinned(examples.healthy().__class__(**{**vars(examples.healthy()), "charts": [chart]}), 400)
    small = diagnosis.charts[0]
    assert len(small.x) <= 420
    assert (small.x[0], small.x[-1]) == (0.0, 9999.0)
    for line, original in zip(small.lines, chart.lines, strict=True):
        assert max(value for value in line.y if value is not None) == 1e9
        assert min(value for value in line.y if value is not None) == -1e9
        assert all(value == original.y[int(at)] for at, value in zip(small.x, line.y, strict=True))


def test_limit_leaves_room_below_ten_megabytes() -> None:
    assert html_report.LIMIT < 10_000_000


# Text on its ground, as the style sheet pairs them.
PAIRS = [
    *((ink, ground) for ink in ("ink", "quiet", "link") for ground in ("ground", "surface", "sunken")),
    *((severity, ground) for severity in ("critical", "warning", "info", "ok") for ground in ("ground", "surface")),
    *((severity, f"{severity}-tint") for severity in ("critical", "warning", "info", "ok")),
    ("quiet", "critical-tint"), ("ink", "critical-tint"), ("quiet", "warning-tint"), ("quiet", "info-tint"),
    *((f"series-{number}", "surface") for number in range(8)),
]  # fmt: skip


@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_contrast(ink: str, ground: str) -> None:
    css = (ASSETS / "report.css").read_text(encoding="utf-8")
    pairs = dict(re.findall(r"--([\w-]+): light-dark\(([^)]+)\)", css))
    for theme in (0, 1):
        light, dark = sorted((luminance(pairs[name].split(", ")[theme]) for name in (ink, ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, theme


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
