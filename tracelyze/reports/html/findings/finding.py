"""Findings on the page: the first root cause in full, what followed it, and the other causes as rows that open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.diagnosis import Mark
from tracelyze.reports import escaping
from tracelyze.reports.drawing import bars
from tracelyze.reports.html import hero
from tracelyze.reports.html.charts import Shown, proves_nothing
from tracelyze.reports.html.findings import evidence, repair
from tracelyze.reports.html.icons import icon
from tracelyze.reports.markup import Child, Markup, element
from tracelyze.reports.wording import run_words, words
from tracelyze.reports.wording.tracebacks import is_text, is_traceback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.diagnosis import Chart, Diagnosis, Finding
    from tracelyze.reports.html.charts import Gallery
    from tracelyze.reports.wording.story import Anchored, Chapter

_MOST_CHARTS = 3  # of a card with the loss in front


def first(chapter: Chapter, diagnosis: Diagnosis, gallery: Gallery) -> Child:
    """Below the head: the chart that convinces, the traceback of a crash, what followed, why we say so."""
    cards = gallery.cards(charts(chapter, diagnosis))
    chart = element(
        "section", element("h2", "The chart", class_="hidden-label"), cards, id="chart", class_="after-hero"
    )
    traceback = evidence.traceback_section(chapter.root.finding)
    convinced: Child = chart if cards else None
    return [
        [traceback, convinced] if traceback else convinced,
        consequences(chapter.consequences, gallery, diagnosis),
        evidence.section(chapter.root.finding),
    ]


def consequences(following: Sequence[Anchored], gallery: Gallery, diagnosis: Diagnosis) -> Child:
    """One line each, without a fix of their own."""
    if not following:
        return None
    goes = "This should go away with it." if len(following) == 1 else "These should go away with it."
    return element(
        "section",
        element("h2", "What followed"),
        element("p", f"Fix the cause first. {goes}", class_="intro"),
        element("div", [_consequence(anchored, gallery, diagnosis) for anchored in following], class_="rows"),
        id="after",
    )


def others(chapters: Sequence[Chapter], gallery: Gallery, diagnosis: Diagnosis) -> Child:
    """The other causes: one line each, the whole finding inside."""
    if not chapters:
        return None
    faults = sum(chapter.root.finding.severity != "info" for chapter in chapters)
    notes = len(chapters) - faults
    said = [formatting.plural(faults, "fault")] if faults else []
    said += [formatting.plural(notes, "note")] if notes else []
    return element(
        "section",
        element("h2", "Also found"),
        element("p", f"{' and '.join(said)} that the cause above does not explain.", class_="intro"),
        element("div", [_other(chapter, gallery, diagnosis) for chapter in chapters], class_="rows"),
        id="more",
    )


def charts(chapter: Chapter, diagnosis: Diagnosis) -> list[Shown]:
    """What shows the finding best, first: the loss where the fault is about what the model learns, then its own charts.

    The onset of each consequence is marked beside that of the cause.
    """
    finding = chapter.root.finding
    ranks, own = _ranks(finding, diagnosis), _shown(finding, diagnosis)
    own = [one for one in own if not proves_nothing(one.chart)]
    if ranks:
        # One bar of one rank stands among its neighbors already.
        own = ranks + [one for one in own if not bars.are_drawn(one.chart) or len(one.chart.x) > 1]
    marks = _following(chapter)
    if _about_learning(finding) and (own or not any(is_text(one) for one in finding.evidence)):
        loss = _loss(chapter, diagnosis)
        if loss is not None and not any(_is_loss(one.chart) for one in own):
            onset = own[0].chart.marks[:1] if own else _onset(finding)
            leading = replace(loss, chart=replace(loss.chart, marks=onset))
            if not proves_nothing(leading.chart):
                own = [leading, *own][:_MOST_CHARTS]
        elif any(_is_loss(one.chart) for one in own):
            own.sort(key=lambda one: not _is_loss(one.chart))
    return [_placed(one, marks) for one in own]


def _consequence(anchored: Anchored, gallery: Gallery, diagnosis: Diagnosis) -> Markup:
    finding = anchored.finding
    return element(
        "details",
        element(
            "summary",
            element("span", icon(finding.severity), class_="sign"),
            element("span", finding.title, class_="title"),
            element("span", since(finding), class_="aside"),
        ),
        element(
            "div",
            repair.paragraphs(words.lead(finding)),
            gallery.cards(_shown(finding, diagnosis), take=False),
            evidence.flat(finding),
            class_="inside page",
        ),
        id=anchored.anchor,
        class_=f"consequence {finding.severity}",
    )


def _other(chapter: Chapter, gallery: Gallery, diagnosis: Diagnosis) -> Markup:
    anchored = chapter.root
    finding = anchored.finding
    following = [
        element(
            "li",
            element("b", one.finding.title, id=one.anchor),
            element("span", f"{since(one.finding)}. {words.lead(one.finding)}".removeprefix(". ")),
        )
        for one in chapter.consequences
    ]
    return element(
        "details",
        element(
            "summary",
            element("span", icon(finding.severity), class_="sign"),
            element("span", finding.title, class_="title"),
            element("span", _aside(finding), class_="aside"),
        ),
        element(
            "div",
            hero.verdict_line(anchored),
            repair.paragraphs(words.lead(finding)),
            hero.key_facts(finding, diagnosis.run),
            repair.pair(anchored, diagnosis.run),
            gallery.cards(charts(chapter, diagnosis)),
            element("div", element("h3", "What followed"), element("ul", following, class_="readings"), class_="card")
            if following
            else None,
            evidence.flat(finding),
            class_="inside page",
        ),
        id=anchored.anchor,
        class_=f"other {finding.severity}",
    )


def since(finding: Finding) -> str:
    """`since step 17, 13:32:29 UTC`."""
    parts = [f"since {finding.counts} {finding.first_step:,}"] if finding.first_step is not None else []
    parts += [at] if (at := run_words.clock(finding.first_at)) else []
    return ", ".join(parts)


def _aside(finding: Finding) -> str:
    cost = finding.cost
    if cost is not None and cost.seconds is not None:
        share = f", {formatting.percent(cost.share)}" if cost.share is not None and cost.share <= 0.995 else ""
        return f"costs {formatting.duration(cost.seconds)}{share}"
    return since(finding) if finding.first_step is None or finding.first_step > 1 else "from the start"


def _shown(finding: Finding, diagnosis: Diagnosis) -> list[Shown]:
    place = next(index for index, one in enumerate(diagnosis.findings) if one is finding)
    return [Shown(chart, f"findings.{place}.charts.{index}") for index, chart in enumerate(finding.charts)]


def _about_learning(finding: Finding) -> bool:
    """Whether the charts of the finding show what the model does rather than where time or memory went."""
    if any(is_traceback(one) for one in finding.evidence):
        return True
    # Time, memory and shares of them have a unit; what a model computes has none.
    return all(not chart.unit for chart in finding.charts) and bool(finding.charts or finding.first_step is not None)


def _loss(chapter: Chapter, diagnosis: Diagnosis) -> Shown | None:
    """The loss of the run, of the training that the finding is about where there are several, or of a consequence."""
    of = chapter.root.finding.trainings
    for index, chart in enumerate(diagnosis.charts):
        if _is_loss(chart) and (not of or chart.training in of):
            return Shown(chart, f"charts.{index}")
    shown = [one for anchored in chapter.consequences for one in _shown(anchored.finding, diagnosis)]
    return next((one for one in shown if _is_loss(one.chart)), None)


def _ranks(finding: Finding, diagnosis: Diagnosis) -> list[Shown]:
    """The ranks side by side, those of the finding marked, where it is about some of them only."""
    if diagnosis.run.ranks < 2 or len(set(finding.ranks)) >= diagnosis.run.ranks:
        return []
    marks = [Mark(float(rank), "this rank") for rank in finding.ranks]
    return [
        Shown(replace(chart, marks=marks), f"charts.{index}")
        for index, chart in enumerate(diagnosis.charts)
        if chart.shows == "ranks"
    ]


def _is_loss(chart: Chart) -> bool:
    return chart.shows == "loss"


def _onset(finding: Finding) -> list[Mark]:
    return [Mark(float(finding.first_step), "")] if finding.first_step else []


def _following(chapter: Chapter) -> list[Mark]:
    """The onset of each consequence, named by what it is."""
    return [
        Mark(float(anchored.finding.first_step), f"{escaping.one_line(anchored.finding.title).partition(':')[0]}")
        for anchored in chapter.consequences[:3]
        if anchored.finding.first_step is not None
    ]


def _placed(one: Shown, further: Sequence[Mark]) -> Shown:
    """The chart with its marks and those of what followed, each with its step."""
    chart = one.chart
    places = {mark.x for mark in chart.marks}
    marks = [*chart.marks, *(mark for mark in further if mark.x not in places)]
    placed = chart.over == "steps"
    if placed:
        unit = "epoch" if chart.x_label == "epoch" else "step"
        marks = [
            replace(mark, label=f"{unit} {mark.x:,.0f}: {mark.label}" if mark.label else f"since {unit} {mark.x:,.0f}")
            for mark in marks
        ]
    return replace(one, chart=replace(chart, marks=marks), placed=placed)
