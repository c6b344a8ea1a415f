"""The page: what went wrong first, then why that is known, then everything else."""

from __future__ import annotations

import base64
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import escaping, story, words
from tracelyze.reports import json as json_report
from tracelyze.reports.html import chain, checks, facts, finding, listings, timelines
from tracelyze.reports.html.charts import Gallery
from tracelyze.reports.html.head import asset, head, source_hash
from tracelyze.reports.html.icons import badge
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis
    from tracelyze.reports.story import Chapter

_ASSETS = files("tracelyze.reports") / "assets"
_PLOTLY = "vendor/plotly/plotly-basic.min.js.gz"
_INDEXED_FROM = 4  # findings: a page with fewer needs no list of them


def render(diagnosis: Diagnosis, interactive: bool, data: bool, thinned: bool) -> str:
    """The whole page. `thinned` says that it holds less than the diagnosis, to fit the limit."""
    chapters = story.chapters(diagnosis)
    gallery = Gallery()
    main = element(
        "main",
        _hero(diagnosis, chapters),
        facts.notes(diagnosis.run),
        element(
            "p",
            "This report was thinned to fit the size limit of attachments; the JSON report holds everything.",
            class_="notes",
        )
        if thinned
        else None,
        _index(chapters),
        [_chapter(chapter, gallery, diagnosis) for chapter in chapters],
        _picture(diagnosis, gallery),
        checks.section(diagnosis),
        None if diagnosis.picture else _overview(diagnosis, gallery),
        facts.section(diagnosis),
        facts.reading(),
        id="top",
    )
    interactive = interactive and bool(gallery.charts)
    return (
        "<!DOCTYPE html>\n"
        + element(
            "html",
            _head(diagnosis, chapters, interactive),
            _body(diagnosis, main, gallery, interactive, data),
            lang="en",
        )
        + "\n"
    )


def title(diagnosis: Diagnosis, chapters: list[Chapter]) -> str:
    """The first words of the page: the root cause, or that there is none."""
    if chapters:
        return f"{_kind(chapters)}: {escaping.one_line(chapters[0].root.finding.title)}"
    return "No fault found" if story.checks(diagnosis, "passed") else "Nothing could be checked"


def _kind(chapters: list[Chapter]) -> str:
    """Notes are causes of nothing."""
    return "Root cause" if chapters[0].root.finding.severity != "info" else "Worth knowing"


def _head(diagnosis: Diagnosis, chapters: list[Chapter], interactive: bool) -> Markup:
    scripts = [asset("report.js")]
    if diagnosis.picture and diagnosis.picture.timelines:
        scripts.append(asset("lanes.js"))
    allowed = [source_hash(script.encode()) for script in scripts]
    if interactive:
        allowed.append(f"'sha256-{base64.b64encode(bytes.fromhex(_vendored('sha256'))).decode()}'")
    version, style = diagnosis.tracelyze_version, asset("report.css")
    return head(title(diagnosis, chapters), version, style, asset("theme.js"), allowed, "img-src data: blob:; ")


def _body(diagnosis: Diagnosis, main: Markup, gallery: Gallery, interactive: bool, data: bool) -> Markup:
    blocks: list[Child] = []
    if data:
        diagnosis_json = escaping.script_json(json_report.contract(diagnosis))
        blocks.append(element("script", Markup(diagnosis_json), type="application/json", id="diagnosis"))
    blocks.append(element("script", Markup(asset("report.js"))))
    if diagnosis.picture and diagnosis.picture.timelines:
        slices = timelines.packed(diagnosis.picture.timelines)
        blocks.append(element("script", Markup(asset("lanes.js"))))
        blocks.append(element("script", Markup(slices), type="text/plain", id="timelines"))
    if interactive:
        # Last, so that the words are on the screen before these have arrived.
        blocks.append(element("script", Markup(gallery.figures()), type="text/plain", id="figures"))
        blocks.append(element("script", Markup(_packed(_PLOTLY)), type="text/plain", id="plotly"))
    return element("body", _bar(diagnosis), main, _footer(diagnosis), blocks)


def _bar(diagnosis: Diagnosis) -> Markup:
    return element(
        "div",
        element("a", "tracelyze", href="#top", class_="brand"),
        element("span", diagnosis.run.path, class_="path"),
        element("button", "Theme", type="button", id="theme", hidden=True, aria_label="Switch between light and dark"),
        class_="bar",
    )


def _hero(diagnosis: Diagnosis, chapters: list[Chapter]) -> Markup:
    return element(
        "header",
        element(
            "p",
            badge(diagnosis.verdict) if chapters or _looked(diagnosis) else None,
            element("span", words.verdict(diagnosis)) if chapters else None,
            class_="verdict",
        ),
        element("h1", _headline(diagnosis, chapters)),
        _lead(diagnosis, chapters),
        class_=f"hero {diagnosis.verdict if chapters or _looked(diagnosis) else 'none'}",
    )


def _looked(diagnosis: Diagnosis) -> bool:
    return diagnosis.verdict != "unknown"


def _headline(diagnosis: Diagnosis, chapters: list[Chapter]) -> Child:
    if not chapters:
        return title(diagnosis, chapters)
    first = chapters[0].root
    return [element("span", f"{_kind(chapters)}: "), element("a", first.finding.title, href=f"#{first.anchor}")]


def _lead(diagnosis: Diagnosis, chapters: list[Chapter]) -> Child:
    if not chapters:
        return element("p", _counts(diagnosis) if _looked(diagnosis) else words.verdict(diagnosis), class_="lead")
    notes = sum(chapter.root.finding.severity == "info" for chapter in chapters)
    following = sum(len(chapter.consequences) for chapter in chapters)
    found = [formatting.plural(len(chapters) - notes, "root cause")] if len(chapters) > notes else []
    found += [formatting.plural(notes, "note")] if notes else []
    found += [formatting.plural(following, "consequence")] if following else []
    return element("p", f"{', '.join(found)}. {_counts(diagnosis)}", class_="lead")


def _counts(diagnosis: Diagnosis) -> str:
    passed, skipped = len(story.checks(diagnosis, "passed")), len(story.checks(diagnosis, "skipped"))
    return f"{formatting.plural(passed, 'check')} passed, {skipped:,} could not be made."


def _index(chapters: list[Chapter]) -> Child:
    """The list of findings, where there are too many to see at once."""
    if len(chapters) < 2 and sum(1 + len(chapter.consequences) for chapter in chapters) < _INDEXED_FROM + 1:
        return None
    rows: list[Child] = []
    for chapter in chapters:
        one = chapter.root.finding
        following = [
            element("li", element("a", told.finding.title, href=f"#{told.anchor}")) for told in chapter.consequences
        ]
        rows.append(
            element(
                "li",
                element(
                    "div",
                    badge(one.severity),
                    element("a", one.title, href=f"#{chapter.root.anchor}"),
                    element("span", words.cost(one), class_="when"),
                ),
                element("ul", following) if following else None,
            )
        )
    return element("nav", element("h2", "Findings"), element("ol", rows), class_="index", aria_label="Findings")


def _chapter(chapter: Chapter, gallery: Gallery, diagnosis: Diagnosis) -> Child:
    run = diagnosis.run
    return [
        finding.root(chapter.root, gallery, run.ranks),
        chain.section(chapter, gallery, run.ranks, run.steps),
    ]


def _overview(diagnosis: Diagnosis, gallery: Gallery) -> Child:
    if not diagnosis.charts:
        return None
    charts = [gallery.show(chart, onset=False) for chart in diagnosis.charts]
    return element(
        "section", element("h2", "The run at a glance"), element("div", charts, class_="grid"), id="overview"
    )


def _picture(diagnosis: Diagnosis, gallery: Gallery) -> Child:
    """Where the time went, where a trace was read: all steps, single steps, kernels and operators."""
    if diagnosis.picture is None:
        return None
    return [
        _overview(diagnosis, gallery),
        timelines.section(diagnosis.picture.timelines),
        listings.section(diagnosis.picture.listings),
    ]


def _footer(diagnosis: Diagnosis) -> Markup:
    return element(
        "footer",
        element("p", f"tracelyze {diagnosis.tracelyze_version}, diagnosis schema {diagnosis.schema_version}."),
    )


@cache
def _packed(name: str) -> str:
    return base64.b64encode((_ASSETS / name).read_bytes()).decode()


@cache
def _vendored(key: str) -> str:
    lines = (_ASSETS / "vendor/plotly/VERSION").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)[key]
