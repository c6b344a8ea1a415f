"""The page: the verdict and the first cause on the first screen, then why that is known, then everything else."""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from tracelyze.reports import escaping
from tracelyze.reports import json as json_report
from tracelyze.reports.html import checks, hero, listings, ranks, run, summary, timelines, unknown
from tracelyze.reports.html.charts import Gallery, Shown
from tracelyze.reports.html.findings import finding, repair
from tracelyze.reports.html.head import asset, head, source_hash
from tracelyze.reports.html.icons import logo
from tracelyze.reports.markup import Child, Markup, element
from tracelyze.reports.wording import run_words, story

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis
    from tracelyze.reports.wording.story import Chapter

_ASSETS = files("tracelyze.reports") / "assets"
_PLOTLY = "vendor/plotly/plotly-basic.min.js.gz"
_SECTIONS = (
    ("chart", "Chart"),
    ("traceback", "Traceback"),
    ("todo", "What to do"),
    ("after", "What followed"),
    ("evidence", "Evidence"),
    ("more", "Also found"),
    ("steps", "Detail"),
    ("ranks", "Ranks"),
    ("checks", "Checks"),
    ("run", "Run"),
)
"""Ids of sections with their names in the bar at the top."""


def render(diagnosis: Diagnosis, interactive: bool, data: bool, thinned: bool) -> str:
    """The whole page. `thinned` says that it holds less than the diagnosis, to fit the limit."""
    chapters = story.chapters(diagnosis)
    gallery = Gallery(data)
    sections = [
        element("div", _head(diagnosis, chapters), class_="hero"),
        finding.first(chapters[0], diagnosis, gallery) if chapters else unknown.section(diagnosis.run),
        finding.others(chapters[1:], gallery, diagnosis),
        run.notes(diagnosis),
        _picture(diagnosis, gallery, leading=not chapters),
        ranks.section(diagnosis),
        checks.section(diagnosis),
        run.section(diagnosis),
        _chat(diagnosis, chapters),
        _thinned() if thinned else None,
        _footer(diagnosis),
    ]
    main = element("main", hero.run_line(diagnosis.run), sections, id="main", class_="wrap")
    interactive = interactive and bool(gallery.explored)
    return (
        "<!DOCTYPE html>\n"
        + element(
            "html",
            _document_head(diagnosis, chapters, interactive),
            _body(diagnosis, main, gallery, interactive, data),
            lang="en",
        )
        + "\n"
    )


def title(diagnosis: Diagnosis, chapters: list[Chapter]) -> str:
    """The title of the window: the first finding, or that there is none, and the program."""
    if chapters:
        said = escaping.one_line(chapters[0].root.finding.title)
    else:
        known = diagnosis.verdict != "unknown" and story.checks(diagnosis, "passed")
        said = "No fault found" if known else "Nothing could be checked"
    return f"{said}: {run_words.program(diagnosis.run)}"


def _head(diagnosis: Diagnosis, chapters: list[Chapter]) -> Child:
    if not chapters:
        return hero.of_nothing_found(diagnosis)
    first = chapters[0]
    return [
        hero.of_finding(first, diagnosis, len(chapters) - 1),
        repair.pair(first.root, diagnosis.run),
    ]


def _document_head(diagnosis: Diagnosis, chapters: list[Chapter], interactive: bool) -> Markup:
    allowed = [source_hash(script.encode()) for script in _scripts(diagnosis, interactive)]
    if interactive:
        allowed.append(f"'sha256-{base64.b64encode(bytes.fromhex(_vendored('sha256'))).decode()}'")
    version, style = diagnosis.tracelyze_version, asset("report.css")
    return head(title(diagnosis, chapters), version, style, asset("theme.js"), allowed, "img-src data: blob:; ")


def _scripts(diagnosis: Diagnosis, interactive: bool) -> list[str]:
    scripts = [asset("report.js")]
    scripts += [asset("explore.js")] if interactive else []
    scripts += [asset("lanes.js")] if diagnosis.picture and diagnosis.picture.timelines else []
    return scripts


def _body(diagnosis: Diagnosis, main: Markup, gallery: Gallery, interactive: bool, data: bool) -> Markup:
    blocks: list[Child] = []
    if data:
        diagnosis_json = escaping.script_json(json_report.contract(diagnosis))
        blocks.append(element("script", Markup(diagnosis_json), type="application/json", id="diagnosis"))
    blocks += [element("script", Markup(script)) for script in _scripts(diagnosis, interactive)]
    if diagnosis.picture and diagnosis.picture.timelines:
        slices = timelines.packed(diagnosis.picture.timelines)
        blocks.append(element("script", Markup(slices), type="text/plain", id="timelines"))
    if interactive:
        # Last, so that the words are on the screen before these have arrived.
        blocks.append(element("script", Markup(gallery.figures()), type="text/plain", id="figures"))
        blocks.append(element("script", Markup(_packed(_PLOTLY)), type="text/plain", id="plotly"))
    skip = element("a", "Skip to the diagnosis", href="#main", class_="skip")
    toast = element("div", role="status", id="toast", class_="toast")
    return element("body", skip, _bar(main), main, toast, blocks)


def _bar(main: Markup) -> Markup:
    """The bar at the top, with links to the sections that the page has."""
    places = sorted((main.find(f' id="{ident}"'), ident, name) for ident, name in _SECTIONS)
    links = [element("a", name, href=f"#{ident}") for place, ident, name in places if place >= 0]
    return element(
        "header",
        element(
            "div",
            element("a", logo(), element("span", "tracelyze"), href="#main", class_="brand", aria_label="tracelyze"),
            element("nav", links, aria_label="Sections"),
            element(
                "div",
                element("button", "Copy summary", type="button", data_copy="summary", hidden=True),
                element("button", "Theme", type="button", id="theme", hidden=True),
                class_="actions",
            ),
            class_="wrap",
        ),
        class_="top",
    )


def _picture(diagnosis: Diagnosis, gallery: Gallery, leading: bool) -> Child:
    """The charts of the run that no finding has drawn; single steps and what took the time, where a trace was read."""
    # The loss of one rank stands for that of the others: where a finding has drawn that of rank 1, rank 0 is not drawn.
    shown = [
        Shown(replace(chart, marks=[mark for mark in chart.marks if mark.kind != "finding"]), f"charts.{index}")
        for index, chart in enumerate(diagnosis.charts)
        if not gallery.draws_another_rank(chart)
    ]
    cards = gallery.cards(shown, onset=False)
    ident = None if not leading else "chart"
    heading = element("h2", "The run at a glance", class_="hidden-label" if leading else None)
    charts = element("section", heading, cards, id=ident, class_="glance after-hero" if leading else "glance")
    picture = diagnosis.picture
    return [
        charts if cards else None,
        timelines.section(picture.timelines) if picture else None,
        listings.section(picture.listings) if picture else None,
    ]


def _chat(diagnosis: Diagnosis, chapters: list[Chapter]) -> Markup:
    lines = "\n".join(summary.lines(diagnosis, chapters))
    return element(
        "section",
        element(
            "details",
            element("summary", "Five lines for a chat or a ticket"),
            element("pre", lines, id="summary", class_="command"),
            class_="fold",
        ),
        id="chat",
    )


def _thinned() -> Markup:
    said = "This report was thinned to fit the size limit of attachments; the JSON report holds everything."
    return element("p", said, class_="cost-of-recording")


def _footer(diagnosis: Diagnosis) -> Markup:
    return element(
        "footer",
        element("p", f"tracelyze {diagnosis.tracelyze_version}, diagnosis schema {diagnosis.schema_version}."),
        element("p", "This file is complete and loads nothing. The diagnosis as data stands at its end."),
        class_="page-foot",
    )


@cache
def _packed(name: str) -> str:
    return base64.b64encode((_ASSETS / name).read_bytes()).decode()


@cache
def _vendored(key: str) -> str:
    lines = (_ASSETS / "vendor/plotly/VERSION").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)[key]
