"""What followed from a root cause: its consequences on one line of time, cause above effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import axes, escaping
from tracelyze.reports.html.finding import consequence
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.reports.axes import Axis
    from tracelyze.reports.html.charts import Gallery
    from tracelyze.reports.story import Chapter, Told

_ROW = 44  # px
_TOP = 8
_FOOT = 40
_LONGEST = 44  # characters of a title in the drawing


def section(chapter: Chapter, gallery: Gallery, of_ranks: int, steps: int) -> Child:
    """The drawing and a folded card for each consequence; nothing where nothing followed."""
    if not chapter.consequences:
        return None
    everyone = [chapter.root, *chapter.consequences]
    count = formatting.plural(len(chapter.consequences), "consequence")
    cards = [consequence(told, _cause(told, everyone), gallery, of_ranks) for told in chapter.consequences]
    return element(
        "section",
        element("h3", f"What followed: {count}"),
        element("p", "Repair the cause first: these should go away with it.", class_="quiet"),
        _drawing(everyone, steps),
        cards,
        class_="chain",
    )


def _drawing(everyone: list[Told], steps: int) -> Child:
    """Cause and effects as bars over the steps; None where fewer than two of them have a first step."""
    timed = [told for told in everyone if told.finding.first_step is not None]
    if len(timed) < 2:
        return None
    known = [step for told in timed for step in (told.finding.first_step, told.finding.last_step) if step is not None]
    axis = axes.linear([0.0, float(max(*known, steps - 1))], whole=True)
    rows: dict[str, tuple[float, float]] = {}  # by rule: position along x, height of its bar
    drawn: list[Child] = []
    links: list[Child] = []
    for index, told in enumerate(timed):
        finding = told.finding
        start = axis.fraction(float(finding.first_step or 0)) or 0.0
        bar = _TOP + index * _ROW + 28
        cause = rows.get(finding.caused_by or "")
        if cause is not None:
            links.append(_link(cause, (start, bar)))
        rows.setdefault(finding.rule, (start, bar))
        drawn.append(_row(told, axis, start, bar))
    bottom = _TOP + len(timed) * _ROW
    said = ", then ".join(
        f"{escaping.one_line(told.finding.title)} at step {told.finding.first_step:,}" for told in timed
    )
    ident = f"chain-{timed[0].anchor}"
    drawing = element(
        "svg",
        element("title", "Cause and consequences over the steps of the run", id=f"{ident}-title"),
        element("desc", said, id=f"{ident}-description"),
        links,
        drawn,
        _scale(axis, bottom),
        role="group",
        aria_labelledby=f"{ident}-title {ident}-description",
        width="100%",
        height=bottom + _FOOT,
        class_="drawing",
    )
    return element("div", drawing, class_="timeline")


def _row(told: Told, axis: Axis, start: float, bar: float) -> Markup:
    finding = told.finding
    title = escaping.one_line(finding.title)
    shown = title if len(title) <= _LONGEST else title[: _LONGEST - 1] + "…"
    last = finding.last_step
    end = (axis.fraction(float(last)) or start) if last is not None else start
    return element(
        "a",
        element(
            "text",
            element("tspan", shown, class_="name"),
            element("tspan", f"  step {finding.first_step:,}"),
            x=0,
            y=bar - 12,
            class_="event",
        ),
        element("line", x1="0", x2="100%", y1=bar, y2=bar, class_="track"),
        element("line", x1=_percent(start), x2=_percent(end), y1=bar, y2=bar, class_="bar") if end > start else None,
        element("circle", cx=_percent(start), cy=bar, r=5, class_="start"),
        href=f"#{told.anchor}",
        class_=finding.severity,
    )


def _link(cause: tuple[float, float], effect: tuple[float, float]) -> list[Markup]:
    (x_cause, y_cause), (x_effect, y_effect) = cause, effect
    return [
        element("line", x1=_percent(x_cause), x2=_percent(x_cause), y1=y_cause, y2=y_effect, class_="link"),
        element("line", x1=_percent(x_cause), x2=_percent(x_effect), y1=y_effect, y2=y_effect, class_="link"),
    ]


def _scale(axis: Axis, bottom: int) -> Child:
    marks: list[Child] = [element("line", x1="0", x2="100%", y1=bottom, y2=bottom, class_="axis")]
    for tick in axis.ticks:
        at = _percent(axis.fraction(tick) or 0.0)
        marks.append(element("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="axis"))
        marks.append(element("text", axes.label(tick), x=at, y=bottom + 18, class_="tick middle"))
    marks.append(element("text", "step", x="100%", y=bottom + 34, class_="name end"))
    return marks


def _cause(told: Told, everyone: list[Told]) -> Told | None:
    return next((other for other in everyone if other.finding.rule == told.finding.caused_by), None)


def _percent(fraction: float) -> str:
    return f"{fraction * 100:.2f}".rstrip("0").rstrip(".") + "%"
